"""Principal components of reference rows, and how parts of a score are blended."""

import numpy as np
import pytest

from tabiced.components import BEND, Components
from tabiced.scoring import Scoring


def correlated(rows: int, seed: int = 0) -> np.ndarray:
    g = np.random.default_rng(seed)
    X = g.normal(size=(rows, 3)) @ np.array([[1, 0.9, 0], [0, 0.1, 0], [0, 0, 5]]) + [0, 7, -300]
    return np.c_[X, X[:, 0] - 2 * X[:, 1]]  # the last column follows from others


def test_coordinates_are_uncorrelated_and_have_the_variances_of_an_svd():
    X = correlated(400)
    found = Components(X)(X).astype(float)
    z = np.arcsinh((X - X.mean(0)) / X.std(0) / BEND) * BEND
    singular = np.linalg.svd(z - z.mean(0), compute_uv=False)
    expected = np.sort(singular[singular > 1e-4 * singular[0]] ** 2 / 400)
    covariance = np.cov(found, rowvar=False, ddof=0)
    np.testing.assert_allclose(np.diag(covariance), expected, rtol=1e-4)
    np.testing.assert_allclose(covariance - np.diag(np.diag(covariance)), 0, atol=1e-4)


def test_a_row_that_breaks_a_correlation_is_far_out_in_a_component():
    X = correlated(400)[:, :3]
    row = np.array([[1.5, 7 - 1.35, -300]])
    assert (np.abs(row - X.mean(0)) < 3 * X.std(0)).all()
    components = Components(X)
    known, there = components(X), components(row)
    assert (np.abs(there - known.mean(0)) > 6 * known.std(0)).any()


def test_missing_constant_and_single_columns_are_finite():
    X = correlated(50)
    X[::4, 1], X[:, 2] = np.nan, 3.0
    for rows in (X, X[:2], X[:, :1], X[:, 2:3], np.full((5, 2), np.nan)):
        assert np.isfinite(Components(rows)(rows)).all()
    components = Components(X)
    mean = np.where(np.isnan(X[:1]), np.nanmean(X, 0), X[:1])
    np.testing.assert_allclose(components(X[:1]), components(mean), atol=1e-5)


PARTS = {"network": np.array([1.0, -3.0, 0.0]), "tails": np.array([-1.0, 2.0, 0.0])}


def blended(sharpness: float) -> np.ndarray:
    return Scoring(tails=0.75, sharpness=sharpness).blend(PARTS)


def test_a_blend_lies_between_the_mean_and_the_least():
    mean, least = np.array([-0.5, 0.75, 0.0]), np.array([-1.0, -3.0, 0.0])
    np.testing.assert_allclose(blended(0), mean)
    np.testing.assert_allclose(blended(1e-6), mean, atol=1e-5)
    np.testing.assert_allclose(blended(1e3), least, atol=2e-3)
    some = blended(0.5)
    assert (some[:2] < mean[:2]).all() and (some[:2] > least[:2]).all() and some[2] == 0
    slow = [
        -2 * np.log(0.25 * np.exp(-a / 2) + 0.75 * np.exp(-b / 2)) for a, b in ((1, -1), (-3, 2))
    ]
    np.testing.assert_allclose(some[:2], slow)


def test_a_part_without_a_share_does_not_matter_however_low_it_is():
    low = {"pairs": np.full(3, -1e6), "branch": np.full(3, -1e6)}
    found = Scoring(tails=0.75, sharpness=0.5).blend(low | PARTS)
    np.testing.assert_array_equal(found, blended(0.5))
    none = Scoring(tails=0.5, components=0.2, pairs=0.3, sharpness=1)  # 1, but for rounding
    parts = {name: np.zeros(3) for name in none.shares} | {"network": np.full(3, -1e6)}
    np.testing.assert_array_equal(none.blend(parts), np.zeros(3))


@pytest.mark.parametrize("wrong", [{"tails": 0.6, "pairs": 0.5}, {"shallow": 1.1}, {"pairs": -0.1}])
def test_impossible_shares_are_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Scoring(**wrong)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_another_share_of_tails_leaves_the_others_in_proportion(share: float):
    given = Scoring(shallow=0.5, tails=0.2, components=0.1, pairs=0.3, distances=0.2)
    other = given.with_tails(share)
    assert other.tails == pytest.approx(share) and other.shallow == 0.5
    parts = {"network": 0.1, "branch": 0.1, "components": 0.1, "pairs": 0.3, "distances": 0.2}
    for name, part in parts.items():
        assert other.shares[name] == pytest.approx(part * (1 - share) / 0.8)
    assert Scoring(tails=1.0).with_tails(0.3).shares["network"] == pytest.approx(0.7)


def test_shares_of_parts_can_be_told_and_set():
    shares = {"tails": 0.2, "components": 0.1, "pairs": 0.2, "distances": 0.1}
    given = Scoring(shallow=0.25, **shares, sharpness=2, rows=7)
    told = {"network": 0.3, "branch": 0.1, **shares}
    assert given.shares == pytest.approx(told)
    assert given.with_shares(told).to_dict() == pytest.approx(given.to_dict())
    without = {name: share for name, share in told.items() if name != "branch"}
    other = given.with_shares(without)
    assert other.shares == pytest.approx({k: v / 0.9 for k, v in without.items()} | {"branch": 0})
    assert given.with_shares({"pairs": 5}).shares["pairs"] == 1
