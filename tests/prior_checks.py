"""Numeric truths the prior's tests compare with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import torch
from scipy import stats
from torch import Tensor

from tabiced.prior.ingredient import Ingredient, Recipe, ingredients
from tabiced.prior.laws import EllipticalT
from tabiced.prior.numbers import Rounded, ZeroInflated
from tabiced.prior.plan import draw_process
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.prior.structural import Stepped, Structural

# One axis of a grid: cells, each with points to evaluate and their weights.
Axis = list[tuple[Tensor, Tensor]]


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


def atoms(process: Process) -> list[float | None]:
    """Return for each column the weight of an atom: None if measured, nan if zero-inflated."""
    found: list[float | None] = [None] * process.source.measured
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
        elif isinstance(side, ZeroInflated):
            found += [float("nan")] * len(side.encodings)
        else:
            found += [1.0 if e.levels else None for e in side.encodings]
    return found


def axis(values: Tensor, atom: float | None, bins: int, points: int) -> Axis:
    """Cut a column into cells: quantile bins of measured values, one cell per value of others."""
    one = values.new_ones(1)
    if atom is not None and atom == atom:
        common = values.unique(return_counts=True)
        keep = common[0][common[1].argsort(descending=True)[:12]]
        return [(value.view(1), atom * one) for value in keep]
    cells: Axis = []
    if atom is not None:
        cells.append((0 * one, one))
        values = values[values > 0]
    edges = torch.quantile(values, torch.linspace(0.04, 0.96, bins + 1, dtype=torch.float64))
    place = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    for low, high in itertools.pairwise(edges):
        cells.append((low + (high - low) * place, ((high - low) / points).expand(points)))
    return cells


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


def follows_density(preset: str, *names: str, seeds: Iterable[int], points: int = 48) -> float:
    """Return the p-value of "samples follow the density" over single tables of several seeds.

    At least three of the tables must suit the grid.
    """
    statistic, freedom, used = 0.0, 0, 0
    for seed in seeds:
        process, sample = process_with(preset, *names, seed=seed, tables=1, columns=2, rows=4500)
        result = chi_square(process, sample[0], points)
        if result is not None:
            statistic, freedom, used = statistic + result[0], freedom + result[1], used + 1
    assert used >= 3, f"only {used} of the densities suit the grid"
    return float(stats.chi2.sf(statistic, freedom))


def importance_check(process: Process, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Integrate the density of measured columns over the box of their 5 % to 95 % quantiles.

    The proposal puts a Student-t kernel on every row, shaped like its neighbourhood, so that it
    follows ridges. Returns the integral minus the share of rows in the box, and the standard error
    of that difference, per table.
    """
    t, n, d = rows.shape
    random, kernel, near = randomness(seed), EllipticalT(4), 40
    low, high = (rows.quantile(q, 1, keepdim=True) for q in (0.05, 0.95))
    unit = (rows - low) / (high - low)
    nearest = torch.cdist(unit, unit).topk(near, largest=False).indices  # (T, n, near)
    block = (
        unit.unsqueeze(1).expand(-1, n, -1, -1).gather(2, nearest[..., None].expand(-1, -1, -1, d))
    )
    block = block - block.mean(2, keepdim=True)
    root = torch.linalg.cholesky(block.mT @ block / near + 1e-12 * torch.eye(d))  # (T, n, d, d)
    pick = random.integers((t, n), 0, n)
    chosen = root.gather(1, pick[..., None, None].expand(-1, -1, d, d))
    step = (chosen @ kernel.sample(random, (t, n, d)).unsqueeze(-1)).squeeze(-1)
    x = unit.gather(1, pick[..., None].expand(-1, -1, d)) + step
    z = torch.linalg.solve_triangular(root, (x.unsqueeze(1) - unit.unsqueeze(2)).mT, upper=False)
    log_kernel = kernel.log_joint(z.mT) - root.diagonal(dim1=-2, dim2=-1).log().sum(
        -1, keepdim=True
    )
    log_q = torch.logsumexp(log_kernel, 1) - math.log(n) - (high - low).log().sum(-1)
    ratio = torch.exp(process.log_density(x * (high - low) + low) - log_q)
    ratio = ratio * ((x > 0) & (x < 1)).all(-1)
    share = ((unit > 0) & (unit < 1)).all(-1).double().mean(1)
    error = (ratio.var(1) + share * (1 - share)).sqrt() / math.sqrt(n)
    return ratio.mean(1) - share, error
