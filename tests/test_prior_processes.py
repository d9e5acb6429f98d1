"""Every part of a clean process: density and sampler agree, and equal slow, obvious versions."""

import math

import pytest
import torch
from scipy import stats

from prior_checks import (
    Forced,
    cell_ratios,
    every,
    follows_grid,
    integral,
    one_thread,  # noqa: F401
    process_with,
    randomness,
)
from tabiced.prior import laws
from tabiced.prior.mixture import Mixture
from tabiced.prior.plan import draw_process
from tabiced.prior.structural import Classes, Measured, Stepped

MIXTURES = [
    pair for pair in every("base", "covariance", "flows", "marginals") if pair[1] != "structural"
]
SLOW = ("paper", "realnvp")  # thirty coupling layers
# one-hot blocks of the paper do not fit into two columns; their levels' sum is tested below
SIDES = [pair for pair in every("categorical", "columns") if pair[0] == "full"]


@pytest.mark.parametrize(("preset", "name"), MIXTURES)
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_mixture_densities_integrate_to_one(preset, name, columns):
    random = randomness(columns)
    tables, rows = (2, 300) if (preset, name) == SLOW else (4, 600)
    process, _ = process_with(preset, name, seed=columns, tables=tables, columns=columns, rows=1)
    mean, error = integral(process, random, rows)
    assert (error < 0.2).all()
    assert ((mean - 1).abs() < 4 * error).all()


@pytest.mark.parametrize(("preset", "name"), MIXTURES)
def test_mixture_samples_follow_the_density(preset, name):
    """On a grid of 8 cells per component; the statistics of all cells and tables are pooled."""
    tables = 1 if (preset, name) == SLOW else 4
    process, rows = process_with(preset, name, seed=5, tables=tables, columns=3, rows=1500)
    mean, error = cell_ratios(process, rows)
    score = (mean - 1) / error
    assert score.abs().max() < 4.5
    assert stats.chi2.sf(score.square().sum().item(), score.numel()) > 1e-4


@pytest.mark.parametrize("nodes", ["categorical", "rounded", "any_noise"])
def test_structural_samples_follow_the_density(nodes):
    """Chi-square on a grid of two columns; the cells' sum is also the integral of the density."""
    assert follows_grid("full", "structural", nodes, seeds=8, points=64) > 1e-3


@pytest.mark.parametrize(("preset", "name"), SIDES)
def test_side_columns_follow_the_density(preset, name):
    """Chi-square on a grid of a measured and a side column."""
    assert follows_grid(preset, name, seeds=8, points=128) > 1e-3


@pytest.mark.parametrize("preset", ["paper", "full"])
@pytest.mark.parametrize("base", ["gaussian", "heavy_tails"])
def test_components_come_with_their_weights(preset, base):
    random = randomness(2)
    source = draw_process(Forced(preset, base), random, 3, 2).source
    component = source.sample(random, 4000)[1]
    for t in range(3):
        seen = component[t].bincount(minlength=source.components).double()
        expected = 4000 * source.log_weights[t].exp()
        assert ((seen - expected).square() / expected).sum() < 3 * source.components + 20


def slow_mixture(mixture: Mixture, x: torch.Tensor) -> float:
    """log sum_k w_k p_0(M_k^-T (x - b_k)) / |det M_k| of a row, one component at a time."""
    total = 0.0
    for k in range(mixture.components):
        matrix = mixture.maps.matrix[0, k].numpy()
        shift = (x - mixture.maps.centres[0, k]).numpy()
        weight = mixture.log_weights[0, k].exp().item()
        if mixture.law.name == "normal":
            density = stats.multivariate_normal(cov=matrix.T @ matrix).pdf(shift)
        else:
            e = torch.linalg.solve(torch.from_numpy(matrix).T, torch.from_numpy(shift))
            log_p = mixture.law.log_joint(e).item()
            density = math.exp(log_p) / abs(torch.linalg.det(torch.from_numpy(matrix)).item())
        total += weight * density
    return math.log(total)


@pytest.mark.parametrize("preset", ["paper", "full"])
@pytest.mark.parametrize("base", ["gaussian", "heavy_tails"])
@pytest.mark.parametrize("columns", [1, 4])
def test_mixture_equals_a_slow_one(preset, base, columns):
    random = randomness(columns)
    source = draw_process(Forced(preset, base), random, 2, columns).source
    x, _ = source.sample(random, 5)
    fast = torch.logsumexp(source.component_log_density(x), -1)
    for i in range(5):
        assert fast[0, i].item() == pytest.approx(slow_mixture(source, x[0, i]), abs=1e-8)


def test_near_low_rank_reaches_condition_numbers_of_ten_thousand():
    random = randomness(0)
    source = draw_process(Forced("full", "gaussian", "low_rank"), random, 400, 12).source
    condition = torch.linalg.cond(source.maps.matrix)
    assert condition.max() > 3e3
    x, _ = source.sample(random, 3)
    assert source.component_log_density(x).isfinite().all()


def test_counts_of_the_paper_follow_the_weights():
    random = randomness(0)
    source = draw_process(Forced("paper", "gaussian"), random, 3, 2).source
    component = source.sample(random, 1000)[1]
    counts = torch.stack([(component == k).sum(1) for k in range(source.components)], 1)
    assert (counts - 1000 * source.log_weights.exp()).abs().max() < 1.001


def slow_structural(source, x: torch.Tensor) -> float:
    """Sum conditional log-densities of the first table's row, column by column."""
    total, signals = 0.0, torch.zeros(1, 1, 0).double()
    cells = [c[:1, None] for c in x[None, source.to_layers].split(source.widths, -1)]
    first = [c.expand(source.layers[0].mechanism.tables, 1, -1) for c in cells]
    for layer, mine in zip(source.layers, first, strict=True):
        parents = signals.expand(mine.shape[0], 1, -1)
        out = layer.mechanism(parents)[0, 0]  # (p, o)
        for j, value in enumerate(mine[0, 0]):
            if isinstance(layer, Classes):
                allowed = out[j, : layer.encodings[j].levels]
                total += (allowed - allowed.logsumexp(0))[int(value)].item()
                continue
            assert isinstance(layer, Measured)
            scale = layer.scale[0, 0, j] * torch.exp(layer.hetero[0, 0, 0] * torch.tanh(out[j, 1]))
            if isinstance(layer, Stepped):
                i, step = round((value / layer.unit[j]).item()), layer.step[0, 0, j]
                upper = layer.law.log_cdf(((i + 0.5) * step - out[j, 0]) / scale).exp()
                lower = layer.law.log_cdf(((i - 0.5) * step - out[j, 0]) / scale).exp()
                total += math.log((upper - lower).item() / layer.unit[j].item())
            else:
                total += layer.law.log_prob((value - out[j, 0]) / scale).item()
                total -= math.log(scale.item())
        signals = torch.cat((parents, layer.signal(mine)), -1)[:1]
    return total


def test_structural_density_equals_a_slow_one():
    """Over many structures, so that every mechanism, node kind and noise law occurs."""
    mechanisms, nodes, noises = set(), set(), set()
    for seed in range(40):
        random = randomness(seed)
        recipe = Forced("full", "structural", "categorical", "rounded", "any_noise")
        source = draw_process(recipe, random, 2, 9).source
        x, _ = source.sample(random, 3)
        fast = source.component_log_density(x)[0, :, 0]
        for i in range(3):
            assert fast[i].item() == pytest.approx(slow_structural(source, x[0, i]), abs=1e-6)
        for layer in source.layers:
            mechanisms.add(getattr(layer.mechanism, "kind", type(layer.mechanism).__name__))
            nodes.add(type(layer).__name__)
            noises.add(layer.law.name if isinstance(layer, Measured) else "categorical")
    assert mechanisms == {"Constant", "tanh", "sine", "relu", "linear", "Trees"}
    assert nodes == {"Measured", "Stepped", "Classes"}
    assert {law.name for law in laws.LIGHT + laws.HEAVY} <= noises


@pytest.mark.parametrize(("preset", "name"), every("categorical"))
def test_probabilities_of_the_levels_sum_to_one(preset, name):
    process, rows = process_with(preset, name, seed=3, tables=4, columns=12, rows=20)
    categories = process.sides[0]
    first = categories.encodings[0].levels
    others = rows[..., process.widths[0] + 1 :]
    sums = []
    for level in range(first):
        cells = torch.cat((torch.full((*rows.shape[:2], 1), float(level)).double(), others), -1)
        sums.append(categories.log_prob(cells))
    without = categories.log_probabilities[:, :, 1:]
    index = others.long()
    slow = torch.zeros_like(sums[0])
    for t in range(slow.shape[0]):
        for n in range(slow.shape[1]):
            for k in range(slow.shape[2]):
                for j in range(others.shape[-1]):
                    slow[t, n, k] += without[t, k, j, index[t, n, j]]
    assert torch.allclose(torch.stack(sums).logsumexp(0), slow, atol=1e-10)


def test_components_matter_to_dependent_categories_only():
    for name, depends in (("dependent_categories", True), ("independent_categories", False)):
        random = randomness(1)
        process = draw_process(Forced("full", name), random, 8, 10)
        probabilities = process.sides[0].log_probabilities
        assert (probabilities.shape[1] > 1) == depends


def test_cells_outside_the_support_get_the_documented_floor():
    process, rows = process_with("full", "zero_inflated", seed=2, tables=3, columns=3, rows=50)
    inside = process.log_density(rows)
    rows = rows.clone()
    rows[..., -1] = -1.0
    outside = process.log_density(rows)
    assert outside.isfinite().all()
    assert (outside < inside + laws.IMPOSSIBLE / 2).all()
