"""Repeated rows: how often they occur, and what that does to the density."""

import math

import pytest
import torch
from scipy import stats

from prior_checks import Forced, one_thread, process_with, randomness  # noqa: F401
from tabiced.prior import rows as rows_module
from tabiced.prior.encoding import Shown
from tabiced.prior.plan import draw_process
from tabiced.prior.repeats import REGION, Repeated, RepeatedRows
from tabiced.prior.rows import ANCHORS, draw_rows
from tabiced.prior.scene import Scene


def scene_with_repeats(seed, rows=3000, columns=4):
    random = randomness(seed)
    process = draw_process(Forced("full", "dependent_categories"), random, 3, columns)
    context, queries = process.sample(random, rows, rows)
    scene = Scene(process, context, queries, clean=context)
    RepeatedRows.happen(random, scene)
    return scene


@pytest.mark.parametrize("seed", range(4))
def test_rows_repeat_as_often_as_their_shares_say(seed):
    scene = scene_with_repeats(seed)
    for rows in (scene.context, scene.queries):
        for table in range(3):
            shown, distinct = rows[table], scene.repeated.rows[table].unique(dim=0)
            own = (scene.repeated.rows[table][:, None] == distinct).all(-1).double()  # (K, U)
            share = scene.repeated.shares[table] @ own
            found = (shown[:, None] == distinct).all(-1).sum(0).double()  # (U,)
            expected = torch.cat((share, 1 - share.sum()[None])) * len(shown)
            counts = torch.cat((found, len(shown) - found.sum()[None]))
            common = expected >= 5
            pooled = [
                torch.cat((c[common], c[~common].sum()[None])).numpy() for c in (counts, expected)
            ]
            if pooled[1][-1] < 1e-9:
                pooled = [values[:-1] for values in pooled]
            assert stats.chisquare(*pooled).pvalue > 1e-4


def test_the_factor_is_that_of_the_formula():
    rows = torch.randn(2, 5, 3, dtype=torch.float64).float().double()
    again = rows[:, [0, 1, 1]]  # the second occurs twice in the set, so its shares add up
    shares = torch.tensor([[0.1, 0.2, 0.05], [0.3, 0.3, 0.3]], dtype=torch.float64)
    spread = torch.tensor([[0.5], [2.0]], dtype=torch.float64)
    found = Repeated(again, shares).log_factor(rows, spread)
    for t in range(2):
        for i, share in enumerate((shares[t, 0], shares[t, 1] + shares[t, 2], 0.0, 0.0, 0.0)):
            factor = 1 - shares[t].sum() + REGION * math.exp(spread[t]) * share
            assert found[t, i].item() == pytest.approx(math.log(factor), abs=1e-12)


class Plain(Shown):
    def __call__(self, rows, missing=None):
        return rows.float()


@pytest.mark.parametrize("others", [(), ("few_digits",), ("clustered_outliers",)])
def test_shown_repeats_are_denser_by_the_factor(monkeypatch, others):
    scenes = []
    monkeypatch.setattr(rows_module, "Shown", Plain)
    monkeypatch.setattr(
        rows_module, "Scene", lambda *a, **k: scenes.append(Scene(*a, **k)) or scenes[-1]
    )
    random = randomness(3)
    process = draw_process(Forced("full"), random, 6, 5)
    drawn = draw_rows(Forced("full", "repeated_rows", *others), random, process, 400, 300)
    repeated, query = scenes[0].repeated, drawn["query"].double()
    clean = process.log_density(query)
    gain = drawn["log_density"].double() - clean
    equal = (query[:, :, None] == repeated.rows.float().double()[:, None]).all(-1)  # (T, m, K)
    assert equal.any(-1).float().mean() > 0.1
    for t in range(6):
        rest = math.log(1 - repeated.shares[t].sum())
        other = gain[t][~equal[t].any(-1) & (clean[t] > -1e6)]
        torch.testing.assert_close(other, torch.full_like(other, rest), atol=2e-3, rtol=1e-5)
        again = gain[t][equal[t].any(-1)]
        assert (again > rest).all()
    assert drawn["anchors"].shape[1] == ANCHORS


def test_more_common_rows_are_denser():
    _, rows = process_with("full", seed=1, tables=2, columns=3, rows=8)
    shares = torch.full((2, 4), 0.05, dtype=torch.float64)
    shares[:, 0] = 0.5
    factor = Repeated(rows[:, :4], shares).log_factor(rows.float().double(), torch.ones(2, 1))
    assert (factor[:, 0] > factor[:, 1]).all() and (factor[:, 3] > factor[:, 4]).all()
    assert (factor[:, 4:] == factor[:, 4:5]).all()
