"""Drawing tables: shapes, numerics over many tables, reproducibility, switches."""

from dataclasses import fields

import pytest
import torch

from prior_checks import one_thread  # noqa: F401
from tabiced.prior import Prior, Tables, ingredients
from tabiced.prior import rows as rows_module
from tabiced.prior.flows import Coupling
from tabiced.prior.ingredient import Recipe
from tabiced.prior.plan import draw_process
from tabiced.prior.pointwise import Pointwise
from tabiced.prior.randomness import Random
from tabiced.prior.structural import Measured, Structural


def draw(preset="full", seed=0, tables=16, n=64, m=32, columns=6, without=()):
    generator = torch.Generator().manual_seed(seed)
    return Prior(preset, without).draw(tables, n, m, columns, "cpu", generator)


@pytest.mark.parametrize("preset", ["paper", "full"])
@pytest.mark.parametrize("columns", [1, 2, 3, 9])
def test_shapes_and_types(preset, columns):
    tables = draw(preset, columns=columns, tables=40, n=300)
    assert tables.context.shape == (40, 300, columns)
    assert tables.query.shape == (40, 32, columns)
    assert tables.log_density.shape == (40, 32)
    assert tables.anchors.shape == (40, 256)
    assert tables.categorical.shape == (40, columns)
    assert tables.categorical.dtype == torch.bool
    assert {t.dtype for t in (tables.context, tables.query, tables.log_density)} == {torch.float32}
    assert len(tables[3:9]) == 6


@pytest.mark.parametrize(("preset", "count"), [("full", 2000), ("paper", 240)])
def test_no_table_has_nan_or_infinity(preset, count):
    """Over 2,000 tables of 2 to 64 columns; NaN stands for missing cells alone."""
    sizes = (2, 3, 5, 8, 13, 21, 34, 64)
    for columns in sizes:
        tables = draw(preset, columns, count // len(sizes), 64, 32, columns)
        for values in (tables.context, tables.query):
            assert not values.isinf().any()
            assert values.nan_to_num().abs().max() < 1e12
            assert not values.isnan().all(-1).any()
        assert tables.log_density.isfinite().all()
        assert tables.anchors.isfinite().all()
        if preset == "paper" or columns == 2:
            continue
        # most tables have neither infinite contrast nor none
        spread = tables.anchors.quantile(0.9, 1) - tables.anchors.quantile(0.1, 1)
        assert (spread > 1e-3).float().mean() > 0.98


def test_float32_targets_are_within_a_thousandth_of_float64(monkeypatch):
    """For 99.9 % of the queries in the range a loss looks at: ten percentile ranges."""
    exact = []
    original = rows_module.exact_log_density

    def record(*arguments):
        exact.append(original(*arguments))
        return exact[-1]

    monkeypatch.setattr(rows_module, "exact_log_density", record)
    monkeypatch.setattr(Random, "permutations", keep_tables_in_order(Random.permutations))
    differences = []
    for columns in (3, 12, 40, 64):
        exact.clear()
        tables = draw(seed=columns, tables=64, n=80, m=32, columns=columns)
        low, high = (tables.anchors.double().quantile(q, 1, keepdim=True) for q in (0.1, 0.9))
        targets = torch.cat((tables.anchors, tables.log_density), 1).double()
        place = 2 * (targets - low) / (high - low) - 1
        truth = [torch.cat((e[:, :80], e[:, -32:]), 1) for e in exact]  # anchors, queries
        gap = (targets - torch.cat(truth)).abs()
        differences.append(gap[place.abs() <= 10])
    assert (torch.cat(differences) < 1e-3).double().mean() >= 0.999


def keep_tables_in_order(original):
    def permutations(self, shape):
        return torch.arange(shape[0]) if len(shape) == 1 else original(self, shape)

    return permutations


@pytest.mark.parametrize("preset", ["paper", "full"])
def test_equal_generators_give_equal_tables(preset):
    first, second, other = draw(preset, seed=4), draw(preset, seed=4), draw(preset, seed=5)
    for field in (f.name for f in fields(Tables)):
        a, b = getattr(first, field), getattr(second, field)
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    assert not torch.equal(first.context, other.context)
    generator = torch.Generator().manual_seed(4)
    prior = Prior(preset)
    one = prior.draw(16, 64, 32, 6, "cpu", generator)
    two = prior.draw(16, 64, 32, 6, "cpu", generator)
    assert torch.equal(one.log_density, first.log_density)
    assert not torch.equal(one.log_density, two.log_density)


def processes(preset, without, count=60, columns=9):
    recipe = Recipe(preset, without)
    random = Random(torch.Generator().manual_seed(0))
    return [draw_process(recipe, random, 1, columns) for _ in range(count)]


def has_heavy_tails(process):
    if isinstance(process.source, Structural):
        return any(isinstance(x, Measured) and x.law.heavy for x in process.source.layers)
    return process.source.law.heavy


def has_gaussian(process):
    return not isinstance(process.source, Structural) and process.source.law.name == "normal"


def has_flow(process):
    return any(isinstance(part, Coupling | Pointwise) for part in process.chain.parts)


def has_categories(process):
    return any(encoding.levels > 0 for encoding in process.encodings)


@pytest.mark.parametrize("preset", ["paper", "full"])
@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("heavy_tails", has_heavy_tails),
        ("gaussian", has_gaussian),
        ("flows", has_flow),
        ("categorical", has_categories),
    ],
)
def test_ingredients_can_be_switched_off(preset, name, has):
    assert any(has(process) for process in processes(preset, ()))
    assert not any(has(process) for process in processes(preset, (name,)))


@pytest.mark.parametrize("preset", ["paper", "full"])
def test_perturbation_can_be_switched_off(preset):
    """Without it and without outliers, no query is impossible and few are unusual."""
    others = ("contamination", "categorical", "columns", "structural", "flows")

    def unusual(without):
        tables = draw(preset, tables=96, n=256, m=64, without=without)
        low = tables.anchors.amin(1, keepdim=True)
        return (tables.log_density < low).float().mean().item()

    # a query is below all of 256 rows like it with probability 1 / 257
    still = unusual((*others, "perturbation"))
    assert still < 0.007
    assert unusual(others) > 3 * still


@pytest.mark.parametrize("name", [m.name for slot in ingredients().values() for m in slot])
def test_every_ingredient_can_be_switched_off_alone(name):
    draw(without=(name,), tables=8, n=16, m=4)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"no ingredient called 'flow'.*flows"):
        Prior("full", without=("flow",))
    with pytest.raises(ValueError, match="unknown preset 'half'"):
        Prior("half")
    with pytest.raises(ValueError, match="leave at least one"):
        Prior("paper", without=("gaussian", "heavy_tails"))


def test_paper_shares():
    """The published probabilities: half heavy-tailed, flows 20 % and 10 %, categories 30 %."""
    drawn = processes("paper", (), count=700, columns=6)
    heavy = [p for p in drawn if has_heavy_tails(p)]
    light = [p for p in drawn if not has_heavy_tails(p)]
    assert len(heavy) / len(drawn) == pytest.approx(0.5, abs=0.05)
    assert sum(map(has_flow, light)) / len(light) == pytest.approx(0.2, abs=0.05)
    assert sum(map(has_flow, heavy)) / len(heavy) == pytest.approx(0.1, abs=0.04)
    assert sum(map(has_categories, drawn)) / len(drawn) == pytest.approx(0.3, abs=0.05)


def test_a_slice_of_a_draw_mixes_groups(monkeypatch):
    tables = draw(tables=256, n=16, m=8)
    monkeypatch.setattr(Random, "permutations", keep_tables_in_order(Random.permutations))
    ordered = draw(tables=256, n=16, m=8)
    same = (tables.log_density[:16, None] == ordered.log_density).all(-1)
    assert same.any(1).all()
    groups = same.double().argmax(1) // 16
    assert len(groups.unique()) >= 6
