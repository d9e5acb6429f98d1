"""Chains against densities that are known, in place of the network."""

from dataclasses import dataclass

import numpy as np
import pytest

from tabiced import ICED
from tabiced.generate.density import NetworkDensity
from tabiced.generate.diagnostics import Diagnostics, nearest_distances
from tabiced.generate.kernels import Kernels
from tabiced.generate.layout import Grid, Layout, State
from tabiced.generate.sampler import TRUSTED_WIDTH, Langevin, Metropolis, start_rows
from tests_support import random_network


@dataclass
class Mixture:
    """Two Gaussians in the plane, a narrow correlated one and a wide one; and its truth."""

    share: float = 0.2

    def __post_init__(self) -> None:
        self.means = np.array([[-2.0, 0.0], [2.0, 1.0]])
        self.roots = [np.array([[0.7, 0.0], [0.6, 0.3]]), np.array([[0.5, 0.0], [-0.3, 1.0]])]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        parts = []
        shares = (self.share, 1 - self.share)
        for w, mean, root in zip(shares, self.means, self.roots, strict=True):
            u = np.linalg.solve(root, (rows - mean).T)
            parts.append(np.log(w) - 0.5 * (u**2).sum(0) - np.log(np.linalg.det(root)))
        return np.logaddexp(*parts)

    def draw(self, n: int, draw: np.random.Generator) -> np.ndarray:
        k = (draw.random(n) >= self.share).astype(int)
        noise = draw.standard_normal((n, 2))
        return self.means[k] + np.einsum("nij,nj->ni", np.stack(self.roots)[k], noise)


def energy_distance(x: np.ndarray, y: np.ndarray) -> float:
    def mean(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a[:, None] - b[None]) ** 2).sum(2)).mean())

    return 2 * mean(x, y) - mean(x, x) - mean(y, y)


def run(layout: Layout, density: object, chains: int, sampler: Metropolis) -> np.ndarray:
    draw = np.random.default_rng(1)
    start = layout.context.take(start_rows(len(layout.context.numbers), chains, draw))
    state, _ = sampler.run(layout, density, start, draw)  # type: ignore[arg-type]
    return layout.rows_of(state).astype(np.float64)


@pytest.mark.parametrize(
    "sampler",
    [Metropolis(80, trust=1, jumps=0.3), Metropolis(250, trust=1, kernel_moves=0)],
    ids=["jumps", "walks"],
)
def test_metropolis_finds_the_density_from_a_context_that_is_biased(sampler: Metropolis) -> None:
    density, draw = Mixture(), np.random.default_rng(0)
    context = Mixture(share=0.6).draw(150, draw).astype(np.float32)
    rows = run(Layout(context, []), density, 1200, sampler)
    truth = density.draw(1200, draw)
    assert energy_distance(context, truth) > 0.2  # the context itself would not pass
    assert energy_distance(rows, truth) < 0.02  # two true samples: about 0.004
    left = rows[:, 0] < 0
    np.testing.assert_allclose(left.mean(), density.share, atol=0.05)
    for part, mean, root in zip(
        (rows[left], rows[~left]), density.means, density.roots, strict=True
    ):
        np.testing.assert_allclose(part.mean(0), mean, atol=0.2)
        np.testing.assert_allclose(np.cov(part.T), root @ root.T, atol=0.2)


def test_kernel_moves_leave_the_kernel_density_as_it_is() -> None:
    """The move alone, always accepted, is stationary for q: numbers, levels, correlation."""
    draw = np.random.default_rng(0)
    numbers = np.concatenate([draw.normal(-3, 1, (40, 2)), draw.normal(2, 0.3, (40, 2))])
    level = np.concatenate([draw.integers(0, 2, 40), draw.integers(1, 3, 40)])
    matrix = np.concatenate([numbers, np.eye(3)[level]], 1).astype(np.float32)
    layout = Layout(matrix, [[2, 3, 4]])
    kernels = Kernels(layout, draw)
    start = layout.context.take(draw.integers(80, size=2000))
    first, _ = kernels.move(start, 1.0, draw, local=False)  # a draw from q itself
    state = first
    for _ in range(12):
        state, _ = kernels.move(state, 1.0, draw, local=True)
    assert not np.allclose(state.numbers, first.numbers)
    assert energy_distance(state.numbers[:1200], first.numbers[:1200]) < 0.02
    for k in range(3):
        old, new = first.levels[:, 0] == k, state.levels[:, 0] == k
        np.testing.assert_allclose(new.mean(), old.mean(), atol=0.04)
        np.testing.assert_allclose(state.numbers[new].mean(0), first.numbers[old].mean(0), atol=0.4)


@pytest.mark.parametrize(("rows", "columns"), [(30, 3), (4, 6), (40, 1), (3, 2)])
def test_kernels_are_those_of_the_obvious_way(rows: int, columns: int) -> None:
    draw = np.random.default_rng(0)
    layout = Layout(draw.normal(size=(rows, columns)), [])
    kernels, places = Kernels(layout, draw), draw.normal(size=(7, columns))
    expected = np.empty((7, rows))
    for i in range(rows):
        inside = kernels.along[i].T @ kernels.along[i] + kernels.round[i] * np.eye(columns)
        covariance = 0.7**2 * kernels.shape @ inside @ kernels.shape.T
        gap = places - kernels.centres.numbers[i]
        square = np.einsum("md,md->m", gap, np.linalg.solve(covariance, gap.T).T)
        expected[:, i] = -0.5 * square - 0.5 * np.linalg.slogdet(covariance)[1]
    difference = kernels._log_kernels(layout.state_of(places), 0.7) - expected
    np.testing.assert_allclose(difference, difference[0, 0], atol=1e-9)
    noise = kernels.noise(np.zeros(20_000, int), draw)
    inside = kernels.along[0].T @ kernels.along[0] + kernels.round[0] * np.eye(columns)
    root = np.linalg.inv(np.linalg.cholesky(kernels.shape @ inside @ kernels.shape.T))
    np.testing.assert_allclose(np.cov((noise @ root.T).T), np.eye(columns), atol=0.06)


def test_kernels_are_as_thin_as_the_cluster_they_lie_in() -> None:
    """Two sticks, one along each column: no single shape fits both."""
    draw = np.random.default_rng(0)
    long, thin = draw.normal(0, 2, (2, 80)), draw.normal(0, 0.02, (2, 80))
    sticks = [np.stack([long[0] - 8, thin[0]], 1), np.stack([thin[1], long[1] + 8], 1)]
    kernels = Kernels(Layout(np.concatenate(sticks), []), draw)
    centre = draw.integers(160, size=4000)
    rows = kernels.centres.numbers[centre] + 0.3 * kernels.noise(centre, draw)
    on_first = rows[:, 0] < -1
    assert np.quantile(np.abs(rows[on_first, 1]), 0.9) < 0.1
    assert np.quantile(np.abs(rows[~on_first, 0]), 0.9) < 0.1


def test_rows_of_many_columns_keep_their_spread() -> None:
    """Nearest rows lie further inside: kernels must not pull rows there."""
    draw = np.random.default_rng(0)
    context = draw.normal(size=(300, 20))

    def density(rows: np.ndarray) -> np.ndarray:
        return -0.5 * (rows.astype(np.float64) ** 2).sum(1)

    rows = run(Layout(context, []), density, 600, Metropolis())
    np.testing.assert_allclose((rows**2).mean(), (context**2).mean(), rtol=0.12)


def test_levels_follow_their_joint_probabilities() -> None:
    table = np.array([[0.40, 0.02, 0.08], [0.05, 0.30, 0.15]])  # of two dependent columns

    def density(rows: np.ndarray) -> np.ndarray:
        return np.log(table[rows[:, 0].astype(int), rows[:, 1:].argmax(1)])

    draw = np.random.default_rng(0)
    first, second = draw.integers(0, 2, 300), draw.integers(0, 3, 300)
    context = np.concatenate([first[:, None], np.eye(3)[second]], 1).astype(np.float32)
    rows = run(Layout(context, [[0], [1, 2, 3]]), density, 2500, Metropolis(50, trust=1))
    assert np.isin(rows, [0, 1]).all() and (rows[:, 1:].sum(1) == 1).all()
    found = np.zeros((2, 3))
    np.add.at(found, (rows[:, 0].astype(int), rows[:, 1:].argmax(1)), 1 / len(rows))
    np.testing.assert_allclose(found, table, atol=0.03)


def test_a_grid_gets_the_mass_of_its_points() -> None:
    """On the whole numbers 0, 1, 2, ... a chain visits k in proportion to p(k)."""

    def density(rows: np.ndarray) -> np.ndarray:  # geometric: p(k) proportional to 0.6^k
        k = rows[:, 0].astype(np.float64)
        return np.where(k >= 0, k * np.log(0.6), -np.inf)

    draw = np.random.default_rng(0)
    context = draw.integers(0, 8, (100, 1)).astype(np.float32)
    rows = run(Layout(context, [], {0: Grid(0.0, 1.0)}), density, 3000, Metropolis(60, trust=1))
    assert (rows == np.round(rows)).all() and rows.min() >= 0
    for k in range(4):
        np.testing.assert_allclose((rows == k).mean(), 0.4 * 0.6**k, atol=0.03)


def test_with_less_trust_chains_follow_the_geometric_mean() -> None:
    """p^0.5 q^0.5 in one column, integrated numerically."""

    def density(rows: np.ndarray) -> np.ndarray:
        return -np.abs(rows[:, 0].astype(np.float64) - 1)

    draw = np.random.default_rng(0)
    context = np.concatenate([draw.normal(-2, 0.5, 30), draw.normal(1, 0.5, 20)])
    layout = Layout(context[:, None].astype(np.float32), [])
    rows = run(layout, density, 2500, Metropolis(80, trust=0.5, jumps=0.3))[:, 0]
    low, high = (float(end[0]) for end in layout.box)
    grid = np.linspace(low, high, 4001)[:, None]
    kernels = Kernels(layout, np.random.default_rng(1))
    log_mean = 0.5 * density(grid) + 0.5 * kernels.log_density(layout.state_of(grid), TRUSTED_WIDTH)
    weight = np.exp(log_mean - log_mean.max())
    exact = np.cumsum(weight) / weight.sum()
    found = np.searchsorted(np.sort(rows), grid[:, 0]) / len(rows)
    assert np.abs(found - exact).max() < 0.04  # Kolmogorov's distance


def test_missing_cells_stay_missing_and_the_others_follow_the_density() -> None:
    def density(rows: np.ndarray) -> np.ndarray:
        known = np.where(np.isnan(rows), 0.0, rows - np.array([1.0, -1.0]))
        return -0.5 * (known**2 / np.array([1.0, 0.25])).sum(1)

    draw = np.random.default_rng(0)
    context = draw.normal(0, 1.5, (120, 2)).astype(np.float32)
    context[:60, 0] = np.nan
    rows = run(Layout(context, []), density, 1800, Metropolis(80, trust=1))
    assert np.isnan(rows[:, 0]).mean() == 0.5 and not np.isnan(rows[:, 1]).any()
    for part in (rows[np.isnan(rows[:, 0])], rows[~np.isnan(rows[:, 0])]):
        np.testing.assert_allclose(part[:, 1].mean(), -1, atol=0.05)
        np.testing.assert_allclose(part[:, 1].std(), 0.5, atol=0.05)
    known = rows[~np.isnan(rows[:, 0]), 0]
    np.testing.assert_allclose([known.mean(), known.std()], [1, 1], atol=0.12)


def test_chains_stay_where_the_density_is_not_zero() -> None:
    def density(rows: np.ndarray) -> np.ndarray:  # uniform on a half-disc
        inside = ((rows**2).sum(1) <= 1) & (rows[:, 0] >= 0)
        return np.where(inside, 0.0, -np.inf)

    draw = np.random.default_rng(0)
    angle, radius = draw.uniform(-1.5, 1.5, 80), 0.3 * np.sqrt(draw.random(80))
    context = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    layout = Layout(context, [])
    low, high = layout.box
    rows = run(layout, density, 1000, Metropolis(100, trust=1))
    assert np.isfinite(density(rows)).all()
    assert (rows >= low - 1e-6).all() and (rows <= high + 1e-6).all()
    flat = Metropolis(100, trust=1)
    far = run(layout, lambda rows: np.zeros(len(rows)), 500, flat)  # no finite mass without the box
    assert (far >= low - 1e-6).all() and (far <= high + 1e-6).all()


@dataclass
class Gaussian:
    """A Gaussian of independent columns with its gradient."""

    mean: float = 3.0
    deviation: float = 2.0

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return -0.5 * (((rows - self.mean) / self.deviation) ** 2).sum(1)

    def gradient(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self(rows), -(rows.astype(np.float64) - self.mean) / self.deviation**2


def test_langevin_walks_up_the_density_and_then_stays() -> None:
    draw = np.random.default_rng(0)
    context = draw.normal(0, 2, (200, 2)).astype(np.float32)
    layout = Layout(context, [])
    step = 0.05
    sampler = Langevin(steps=150, step=step, noise=np.sqrt(2 * step))
    start = layout.context.take(start_rows(200, 1000, draw))
    state, trace = sampler.run(layout, Gaussian(), start, draw)
    assert trace.log_density[-1] > trace.log_density[0] + 0.5
    np.testing.assert_allclose(state.numbers.mean(0), 3, atol=0.3)
    np.testing.assert_allclose(state.numbers.std(0), 2, atol=0.3)


def test_every_context_row_starts_equally_many_chains() -> None:
    draw = np.random.default_rng(0)
    for chains in (3, 10, 37):
        counts = np.bincount(start_rows(10, chains, draw), minlength=10)
        assert counts.sum() == chains and counts.max() - counts.min() <= 1


def test_rows_survive_the_way_to_the_state_and_back() -> None:
    draw = np.random.default_rng(0)
    rows = np.concatenate(
        [
            draw.normal(size=(30, 2)),
            np.eye(4)[draw.integers(0, 4, 30)],
            draw.integers(0, 9, (30, 1)),
        ],
        1,
    ).astype(np.float32)
    rows[3, 0] = rows[5, 6] = np.nan
    rows[7, 2:6] = np.nan
    layout = Layout(rows, [[2, 3, 4, 5]], {6: Grid(0.0, 1.0)})
    np.testing.assert_array_equal(layout.rows_of(layout.context), rows)
    loose = layout.loosened(layout.context, draw)
    assert not np.array_equal(loose.numbers, layout.context.numbers)
    np.testing.assert_allclose(layout.rows_of(loose), rows, atol=1e-6)


def test_the_density_is_log_density_and_its_gradient() -> None:
    draw = np.random.default_rng(0)
    table, new = draw.normal(2, 3, (40, 3)), draw.normal(2, 3, (12, 3))
    model = ICED(weights=random_network(), n_views=2).fit(table)
    density = NetworkDensity(model.reference_, 2)
    encoded = np.stack(
        [
            (np.ldexp(new[:, j], c.power) - c.centre) / c.scale
            for j, c in enumerate(model.plan_.columns)
        ],
        1,
    ).astype(np.float32)
    expected = model.log_density(new) + model.plan_.log_volume
    keep = np.isfinite(density(encoded))
    assert keep.any()
    np.testing.assert_allclose(density(encoded)[keep], expected[keep], rtol=1e-4, atol=1e-4)
    (value, slope), width = density.gradient(encoded), 3e-4
    np.testing.assert_allclose(value, density(encoded), rtol=1e-4, atol=1e-4)
    for j in range(3):
        ahead, behind = encoded.copy(), encoded.copy()
        ahead[:, j] += width
        behind[:, j] -= width
        finite = (density(ahead) - density(behind)) / (2 * width)
        # The energy has kinks at context values, which a difference may straddle.
        close = np.abs(finite - slope[:, j]) <= 0.1 * np.abs(slope[:, j]) + 1
        assert close.mean() >= 0.7


def test_the_same_seed_gives_the_same_chains() -> None:
    context = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    first, second = (run(Layout(context, []), Mixture(), 20, Metropolis(10)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_distances_to_the_nearest_row_are_those_of_the_obvious_way() -> None:
    draw = np.random.default_rng(0)
    context, rows = draw.normal(size=(20, 3)), draw.normal(size=(15, 3))
    rows[4] = context[2]
    gaps = np.sqrt(((rows[:, None] - context[None]) ** 2).sum(2) / 3)
    np.testing.assert_allclose(nearest_distances(rows, context), gaps.min(1), atol=1e-7)
    own = np.sqrt(((context[:, None] - context[None]) ** 2).sum(2) / 3) + np.diag([np.inf] * 20)
    np.testing.assert_allclose(nearest_distances(context), own.min(1), atol=1e-7)
    told = Diagnostics(0.3, np.zeros(2), gaps.min(1), own.min(1))
    assert told.copies == 1 / 15
    less = (gaps.min(1)[:, None] < own.min(1)).mean()
    np.testing.assert_allclose(told.closer_than_context, less)
    assert "6.7% copies" in str(told)


def test_no_chain_changes_the_state_it_came_from() -> None:
    context = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    layout = Layout(context, [])
    start = layout.context.take(np.arange(30))
    before = State(*(part.copy() for part in vars(start).values()))
    Metropolis(5).run(layout, Mixture(), start, np.random.default_rng(0))  # type: ignore[arg-type]
    for old, new in zip(vars(before).values(), vars(start).values(), strict=True):
        np.testing.assert_array_equal(old, new)
