"""Numeric truths the prior's tests compare with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from scipy import stats
from torch import Tensor

from tabiced.prior.atoms import WithAtom
from tabiced.prior.ingredient import Ingredient, Recipe, ingredients
from tabiced.prior.laws import Cauchy
from tabiced.prior.mixture import Mixture
from tabiced.prior.numbers import Rounded
from tabiced.prior.plan import draw_process
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.prior.scene import rows_of
from tabiced.prior.structural import Stepped, Structural

# One axis of a grid: cells, each with points to evaluate and their weights.
Axis = list[tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: for these small matrices others would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def randomness(seed: int) -> Random:
    return Random(torch.Generator().manual_seed(seed))


class Forced(Recipe):
    """A recipe that has the chosen ingredients for certain and no others.

    The base is Gaussian unless named; "any_noise" lets structural tables have heavy tails.
    """

    def __init__(self, preset: str, *names: str):
        super().__init__(preset)
        self.names = names

    def _odds(self, slot: str) -> list[tuple[type[Ingredient], float]]:
        members = [m for m in ingredients().get(slot, []) if m.odds[self.preset] > 0]
        chosen = [(m, 1.0) for m in members if m.name in getattr(self, "names", ())]
        if slot == "base" and not chosen:
            chosen = [(m, 1.0) for m in members if m.name == "gaussian"]
        return chosen

    def allows(self, name: str) -> bool:
        return name in self.names or (name == "heavy_tails" and "any_noise" in self.names)


def every(*slots: str) -> list[tuple[str, str]]:
    """Return (preset, name) of every ingredient of some slots."""
    return [
        (preset, member.name)
        for slot in slots
        for member in ingredients()[slot]
        for preset, odds in member.odds.items()
        if odds > 0
    ]


def process_with(
    preset: str, *names: str, seed: int, tables: int, columns: int, rows: int
) -> tuple[Process, Tensor]:
    """Draw a process made of the named ingredients, and rows of it (T, rows, c)."""
    random = randomness(seed)
    process = draw_process(Forced(preset, *names), random, tables, columns)
    return process, process.sample(random, 500, rows)[1]


# The weight of every value of a discrete column, or an atom's (value, weight) in a measured one.
Atoms = float | tuple[float, float] | None


def atoms(process: Process) -> list[Atoms]:
    """Return what each column of the first table has: None if just measured."""
    found: list[Atoms] = [None] * process.source.measured
    if isinstance(process.source, Structural):
        units = [
            layer.unit.tolist() if isinstance(layer, Stepped) else [1.0] * len(layer.encodings)
            for layer in process.source.layers
        ]
        flat = [unit for layer in units for unit in layer]
        found += [flat[i] for i in process.source.to_core[process.source.measured :]]
    for side in process.sides:
        if isinstance(side, Rounded):
            found += side.unit.tolist()
        elif isinstance(side, WithAtom):
            found += zip(side.atom[0, 0].tolist(), side.width[0, 0].tolist(), strict=True)
        else:
            found += [1.0 if e.levels else None for e in side.encodings]
    return found


def axis(values: Tensor, atom: Atoms, bins: int, points: int) -> Axis:
    """Cut a column into cells: quantile bins of measured values, one cell per value of others."""
    one = values.new_ones(1)
    if isinstance(atom, float):
        common = values.unique(return_counts=True)
        keep = common[0][common[1].argsort(descending=True)[:12]]
        return [(value.view(1), atom * one) for value in keep]
    cells: Axis = []
    special: Axis = []
    if atom is not None:
        value, width = atom
        special.append((value * one, width * one))
        values = values[values != value]
    edges = torch.quantile(values, torch.linspace(0.04, 0.96, bins + 1, dtype=torch.float64))
    place = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    for low, high in itertools.pairwise(edges):
        cells.append((low + (high - low) * place, ((high - low) / points).expand(points)))
    return cells + special  # the atom last: it may lie within a bin


def cell_probabilities(process: Process, *axes: Axis) -> Tensor:
    """Return the integral of a single table's density over every cell of a two-column grid."""
    x, y = (torch.cat([points for points, _ in a]) for a in axes)
    wx, wy = (torch.cat([weights for _, weights in a]) for a in axes)
    grid = torch.stack(torch.meshgrid(x, y, indexing="ij"), -1).view(1, -1, 2)
    mass = process.log_density(grid).exp().view(len(x), len(y)) * wx[:, None] * wy[None, :]
    rows = mass.split([len(points) for points, _ in axes[0]], 0)
    widths = [len(points) for points, _ in axes[1]]
    return torch.stack([torch.stack([c.sum() for c in r.split(widths, 1)]) for r in rows])


def cell_index(values: Tensor, cells: Axis) -> Tensor:
    """Return the cell every value falls into, -1 for none."""
    index = torch.full(values.shape, -1)
    for i, (points, weights) in enumerate(cells):
        if len(points) == 1:
            inside = (values - points).abs() <= 1e-9 * points.abs()
        else:
            half = weights[0] / 2
            inside = (values > points[0] - half) & (values <= points[-1] + half)
        index[inside] = i
    return index


def chi_square(process: Process, rows: Tensor, points: int) -> tuple[float, int] | None:
    """Compare rows (N, 2) of a single table with its density: statistic and degrees of freedom.

    Cells are integrated with `points` points along a side and with half of that; None if the
    density is too sharp for the two to agree.
    """
    # cells come from other rows than those counted: chosen by their own counts, they would mislead
    chosen, rows = rows[: len(rows) // 3], rows[len(rows) // 3 :]
    kinds = atoms(process)
    coarse, axes = (
        [axis(chosen[:, j], kinds[j], 5, n) for j in range(2)] for n in (points // 2, points)
    )
    fine = cell_probabilities(process, *axes)
    if (fine - cell_probabilities(process, *coarse)).abs().sum() > 0.005:
        return None
    i, j = (cell_index(rows[:, c], axes[c]) for c in range(2))
    inside = (i >= 0) & (j >= 0)
    counts = torch.zeros(fine.shape, dtype=torch.float64)
    counts.index_put_((i[inside], j[inside]), counts.new_ones(int(inside.sum())), True)
    expected = torch.cat((fine.flatten(), (1 - fine.sum()).view(1))) * len(rows)
    seen = torch.cat((counts.flatten(), (~inside).sum().double().view(1)))
    small = expected < 8  # cells expected to hold few rows are pooled
    expected = torch.cat((expected[~small], expected[small].sum().view(1)))
    seen = torch.cat((seen[~small], seen[small].sum().view(1)))
    statistic = (seen - expected).square() / expected.clamp_min(1.0)
    return float(statistic.sum()), len(expected) - 1


def follows_grid(preset: str, *names: str, seeds: int, points: int) -> float:
    """Return the p-value of "samples follow the density" over single tables of several seeds.

    At least half of the tables must suit the grid.
    """
    statistic, freedom, used = 0.0, 0, 0
    for seed in range(seeds):
        process, sample = process_with(preset, *names, seed=seed, tables=1, columns=2, rows=4500)
        result = chi_square(process, sample[0], points)
        if result is not None:
            statistic, freedom, used = statistic + result[0], freedom + result[1], used + 1
    assert 2 * used >= seeds, f"only {used} of the densities suit the grid"
    return float(stats.chi2.sf(statistic, freedom))


def autograd_log_det(process: Process, u: Tensor) -> Tensor:
    """Return log |det dT/du| of a process's chain by differentiating its forward map."""
    with torch.enable_grad():
        u = u.detach().requires_grad_()
        y = process.chain.forward(u)
        rows = [
            torch.autograd.grad(y[..., i].sum(), u, retain_graph=True)[0]
            for i in range(y.shape[-1])
        ]
    return torch.linalg.slogdet(torch.stack(rows, -2)).logabsdet


def slow_whiten(mixture: Mixture, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the noise (T, N, K, d) that each component maps to u, and log |det M_k|."""
    shifted = u.unsqueeze(1) - mixture.maps.centres.unsqueeze(2)  # (T, K, N, d)
    e = torch.linalg.solve(mixture.maps.matrix, shifted, left=False)
    return e.transpose(1, 2), torch.linalg.slogdet(mixture.maps.matrix).logabsdet


def integral(process: Process, random: Random, rows: int) -> tuple[Tensor, Tensor]:
    """Integrate the density of a mixture's chain over all of space: (mean, error) per table.

    Importance sampling; the proposal has the mixture's components with Cauchy noise and even
    weights, so it covers every ridge, and its Jacobian is autograd's.
    """
    mixture = process.source
    assert isinstance(mixture, Mixture)
    t, k, d = mixture.maps.centres.shape
    pick = random.integers((t, rows), 0, k)
    e = Cauchy().sample(random, (t, rows, d))
    matrix = mixture.maps.matrix.gather(1, pick[..., None, None].expand(-1, -1, d, d))
    u = (e.unsqueeze(2) @ matrix).squeeze(2) + rows_of(mixture.maps.centres, pick)
    noise, log_det = slow_whiten(mixture, u)
    log_q = torch.logsumexp(Cauchy().log_joint(noise) - log_det.unsqueeze(1), -1) - math.log(k)
    log_q = log_q - autograd_log_det(process, u)
    ratio = torch.exp(process.log_density(process.chain.forward(u)) - log_q)
    return ratio.mean(1), ratio.std(1) / math.sqrt(rows)


def cell_ratios(process: Process, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compare rows of a mixture's chain with its density on a grid that follows the components.

    The cells of component k are the 2^d corners of the cube |e| < 1 around its centre. With q the
    density that is even over corner c of every component, E_p[q(x) / p(x)] = 1 if and only if rows
    come from p there. Returns the mean of the ratio and its error, (T, 2^d).
    """
    mixture = process.source
    assert isinstance(mixture, Mixture)
    u, _ = process.chain.inverse(x)
    noise, log_det = slow_whiten(mixture, u)  # (T, N, K, d)
    d = u.shape[-1]
    corner = ((noise > 0) * 2 ** torch.arange(d)).sum(-1)  # (T, N, K)
    weight = torch.exp(mixture.log_weights - log_det).unsqueeze(1) * (noise.abs() < 1).all(-1)
    density = torch.exp(-autograd_log_det(process, u) - process.log_density(x))  # (T, N)
    q = torch.stack([(weight * (corner == c)).sum(-1) for c in range(2**d)], -1)
    ratio = q * density.unsqueeze(-1)
    return ratio.mean(1), ratio.std(1) / math.sqrt(x.shape[1])
