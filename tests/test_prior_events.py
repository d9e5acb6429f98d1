"""Events change rows; a target stays the clean density at the row as it is shown."""

import pytest
import torch

from prior_checks import Forced, every, one_thread, randomness  # noqa: F401
from tabiced.prior import contamination
from tabiced.prior import rows as rows_module
from tabiced.prior.encoding import Shown
from tabiced.prior.plan import draw_process
from tabiced.prior.rows import ANCHORS, FLOOR, draw_rows

# Class outliers change the process itself, so nothing stays equal to a draw without them.
OUTLIERS = [pair for pair in every("contamination") if pair[1] != "class_outliers"]
EVENTS = [*every("perturbation", "sampling"), *OUTLIERS]
PARTS = ("warps", "realnvp", "dependent_categories", "rounded", "zero_inflated", "irrelevant")


class Plain(Shown):
    """Shows rows as the process has them, so that tests can evaluate what was shown."""

    def __call__(self, rows, missing=None):
        rows = rows if missing is None else rows.masked_fill(missing, torch.nan)
        return rows.float()


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(rows_module, "Shown", Plain)


@pytest.fixture
def in_all_contexts(monkeypatch):
    """Let every contaminated table have outliers in its context, too, all different."""
    monkeypatch.setattr(contamination, "DIRTY", 1.0)
    monkeypatch.setattr(contamination, "AGAIN", 0.0)


def drawn(preset, *events, seed=0, n=300, m=200, columns=8, parts=PARTS):
    """Return the process and its rows with some events; all else is equal for equal seeds."""
    parts = parts if preset == "full" else ()
    random = randomness(seed)
    process = draw_process(Forced(preset, *parts), random, 6, columns)
    return process, draw_rows(Forced(preset, *events), random, process, n, m)


@pytest.mark.parametrize(("preset", "name"), EVENTS)
def test_targets_are_the_clean_density_of_the_shown_rows(plain, preset, name):
    process, clean = drawn(preset)
    _, changed = drawn(preset, name)
    query = changed["query"]
    if name == "few_digits":  # the clean rows themselves are shown with few digits
        expected = process.log_density(changed["context"][:, :ANCHORS].double()).float()
        assert torch.equal(expected, changed["anchors"])
    else:
        assert torch.equal(clean["anchors"], changed["anchors"])
    if name != "missing_cells":
        first = changed["context"][:, :ANCHORS].double()
        expected = process.log_density(first).clamp_min(FLOOR).float()
        assert torch.equal(expected, changed["context_log_density"])
    if name == "missing_cells":  # the target is that of the complete row
        assert query.isnan().any()
        assert torch.equal(clean["log_density"], changed["log_density"])
        assert torch.equal(clean["query"].nan_to_num()[~query.isnan()], query[~query.isnan()])
        return
    expected = process.log_density(query.double()).clamp_min(FLOOR).float()
    assert torch.equal(expected, changed["log_density"])
    same = (query == clean["query"]).all(-1)
    assert torch.equal(changed["log_density"][same], clean["log_density"][same])
    context_changes = name.endswith("_outliers") or name in ("bootstrap", "few_digits")
    assert torch.equal(changed["context"], clean["context"]) != context_changes
    assert bool(same.all()) == (name == "bootstrap")


@pytest.mark.parametrize(("preset", "name"), OUTLIERS)
def test_contamination_replaces_a_part_of_the_rows(plain, in_all_contexts, preset, name):
    _, clean = drawn(preset, n=2000)
    _, changed = drawn(preset, name, n=2000)
    for field, most in (("context", 0.20), ("query", 0.40)):
        share = (clean[field] != changed[field]).any(-1).float().mean(1)
        assert share.max() < most + 0.06
        assert share.max() > 0.02


def test_some_contexts_are_clean_while_their_queries_are_not(plain):
    clean_contexts, tables = 0, 0
    for seed in range(10):
        _, clean = drawn("full", seed=seed)
        _, changed = drawn("full", "scattered_outliers", seed=seed)
        outliers = [(clean[f] != changed[f]).any(-1).sum(1) for f in ("context", "query")]
        with_outliers = outliers[1] > 10
        clean_contexts += int((outliers[0][with_outliers] == 0).sum())
        tables += int(with_outliers.sum())
    assert 0.2 < clean_contexts / tables < 0.5  # 0.35 expected


def test_outliers_of_some_tables_repeat(plain, monkeypatch):
    monkeypatch.setattr(contamination, "AGAIN", 1.0)
    _, clean = drawn("full", m=2000)
    _, changed = drawn("full", "scattered_outliers", m=2000)
    pairs = zip(clean["query"], changed["query"], strict=True)
    outliers = [after[(before != after).any(-1)] for before, after in pairs]
    assert sum(len(o) > 150 for o in outliers) >= 3
    assert all(len(o.unique(dim=0)) <= 100 for o in outliers)


def test_outliers_are_less_likely_than_rows(plain, in_all_contexts):
    """Outlier processes must produce rows a clean density mostly calls unusual."""
    for _, name in OUTLIERS:
        # Shuffling changes little where columns hardly depend on each other; here they do.
        parts = ("low_rank",) if name == "shuffled_outliers" else PARTS
        lower = []
        for seed in range(6):
            _, clean = drawn("full", seed=seed, m=1000, parts=parts)
            _, changed = drawn("full", name, seed=seed, m=1000, parts=parts)
            outlier = (changed["query"] != clean["query"]).any(-1)
            for found, usual, here in zip(
                changed["log_density"], clean["log_density"], outlier, strict=True
            ):
                lower.append(bool(found[here].median() < usual.quantile(0.25)))
        assert sum(lower) >= 0.9 * len(lower), name


def test_class_outliers_come_from_a_component_that_the_density_lacks(plain, in_all_contexts):
    lower, below = [], []
    for seed in range(8):
        process, drawn_rows = drawn("full", "class_outliers", seed=seed, n=600)
        context, query = drawn_rows["context"].double(), drawn_rows["query"].double()
        for field, rows in (("context_log_density", context[:, :ANCHORS]), ("log_density", query)):
            expected = process.log_density(rows).clamp_min(FLOOR).float()
            assert torch.equal(drawn_rows[field], expected)
        hidden = process.source.hidden
        if hidden is None:  # a single component: outliers are those of another process
            assert process.source.components == 1
            continue
        log_weights = process.source.log_weights
        torch.testing.assert_close(log_weights.exp().sum(-1), torch.ones(6, dtype=torch.float64))
        assert (log_weights.gather(1, hidden) == -torch.inf).all()
        assert (process.source.draw_components(randomness(seed), 500) != hidden).all()
        outliers = process.sample_hidden(randomness(seed), 200)
        typical = drawn_rows["anchors"].median(1).values
        lower.append(process.log_density(outliers).median(1).values < typical)
        least = drawn_rows["anchors"].amin(1, keepdim=True)
        below.append((drawn_rows["context_log_density"] < least).any(1))
    # Components may overlap, so this holds for most tables, not for all.
    assert len(lower) >= 4 and torch.cat(lower).float().mean() > 0.75
    assert torch.cat(below).float().mean() > 0.6


def test_bootstrap_repeats_rows_of_the_clean_context(plain):
    _, clean = drawn("full")
    _, changed = drawn("full", "bootstrap")
    assert torch.equal(clean["log_density"], changed["log_density"])
    for before, after in zip(clean["context"], changed["context"], strict=True):
        originals = {tuple(row) for row in before.tolist()}
        shown = [tuple(row) for row in after.tolist()]
        assert set(shown) <= originals
        assert len(set(shown)) < 0.75 * len(shown)


def test_copies_have_the_density_of_the_row_they_copy(plain):
    _, changed = drawn("full", "copies", n=ANCHORS)
    match = (changed["query"].unsqueeze(2) == changed["context"].unsqueeze(1)).all(-1)
    copied = match.any(-1)
    share = copied.float().mean(1)
    assert 0.02 < share.max() < 0.4
    anchor = changed["anchors"].gather(1, match.double().argmax(-1))
    assert torch.equal(changed["log_density"][copied], anchor[copied])


def test_few_digits_tie_values_and_hardly_move_the_density(plain):
    """Rounding stays inside supports, and is as coarse as the density allows."""
    for seed in range(4):
        process, clean = drawn("full", seed=seed)
        _, changed = drawn("full", "few_digits", seed=seed)
        moved = (clean["anchors"] - changed["anchors"]).abs()
        assert moved.quantile(0.85) < 0.6
        assert (changed["anchors"] > -5000).all()
        measured = torch.tensor(process.measured)
        before, after = (
            torch.tensor([len(column.unique()) for table in x for column in table.T])
            for x in (clean["context"][..., measured], changed["context"][..., measured])
        )
        assert (before > 290).all()
        assert (after < 250).float().mean() > 0.2
        assert torch.equal(clean["context"][..., ~measured], changed["context"][..., ~measured])


def test_missing_cells_leave_every_row_one_cell(plain):
    _, changed = drawn("full", "missing_cells")
    for field in ("context", "query"):
        hidden = changed[field].isnan()
        assert hidden.any()
        assert not hidden.all(-1).any()


def test_one_hot_blocks_go_missing_as_a_whole():
    random = randomness(4)
    process = draw_process(Forced("paper", "independent_categories"), random, 4, 12)
    shown = Shown(random, 4, process.encodings)
    rows, _ = process.sample(random, 50, 2)
    hidden = torch.zeros(rows.shape, dtype=torch.bool)
    hidden[:, ::2, -1] = True  # the last categorical column
    table = shown(rows, hidden)
    width = process.encodings[-1].levels
    assert (table.isnan().sum(-1)[:, ::2] == width).all()
    assert not table[:, 1::2].isnan().any()


def test_shown_columns_decode_to_the_rows():
    """One-hot blocks are contiguous, add to one, and codes are a renumbering of the levels."""
    seen = set()
    for seed in range(12):
        random = randomness(seed)
        process = draw_process(Forced("full", "dependent_categories"), random, 5, 10)
        shown = Shown(random, 5, process.encodings)
        rows, _ = process.sample(random, 200, 2)
        table = shown(rows)
        assert table.shape == (5, 200, 10)
        for t in range(5):
            position = 0
            while position < 10:
                column = int(shown.source[shown.order[t, position]])
                encoding = process.encodings[column]
                block = table[t, :, position : position + encoding.width]
                assert shown.categorical[t, position] == (encoding.levels > 0)
                value = rows[t, :, column]
                if encoding.one_hot:
                    assert torch.equal(block.argmax(-1).double(), value)
                    assert torch.equal(block.sum(-1), torch.ones(200))
                elif encoding.levels:
                    pairs = {(int(a), int(b)) for a, b in zip(value, block[:, 0], strict=True)}
                    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
                    assert {b for _, b in pairs} <= set(range(encoding.levels + 1))
                else:
                    assert torch.equal(block[:, 0], value.float())
                seen.add((encoding.one_hot, encoding.levels > 0))
                position += encoding.width
    assert seen == {(True, True), (False, True), (False, False)}
