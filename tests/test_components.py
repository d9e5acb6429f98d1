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


PARTS = [(0.25, np.array([1.0, -3.0, 0.0])), (0.75, np.array([-1.0, 2.0, 0.0]))]


def test_a_blend_lies_between_the_mean_and_the_least():
    mean, least = np.array([-0.5, 0.75, 0.0]), np.array([-1.0, -3.0, 0.0])
    np.testing.assert_allclose(Scoring().blend(PARTS), mean)
    np.testing.assert_allclose(Scoring(sharpness=1e-6).blend(PARTS), mean, atol=1e-5)
    np.testing.assert_allclose(Scoring(sharpness=1e3).blend(PARTS), least, atol=2e-3)
    some = Scoring(sharpness=0.5).blend(PARTS)
    assert (some[:2] < mean[:2]).all() and (some[:2] > least[:2]).all() and some[2] == 0
    slow = [
        -2 * np.log(0.25 * np.exp(-a / 2) + 0.75 * np.exp(-b / 2)) for a, b in ((1, -1), (-3, 2))
    ]
    np.testing.assert_allclose(some[:2], slow)


def test_a_part_without_a_share_does_not_matter_however_low_it_is():
    low = (0.0, np.full(3, -1e6))
    expected = Scoring(sharpness=0.5).blend(PARTS)
    np.testing.assert_array_equal(Scoring(sharpness=0.5).blend([low, *PARTS]), expected)


@pytest.mark.parametrize("wrong", [{"tails": 0.6, "pairs": 0.5}, {"shallow": 1.1}, {"pairs": -0.1}])
def test_impossible_shares_are_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Scoring(**wrong)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_another_share_of_tails_leaves_the_others_in_proportion(share: float):
    given = Scoring(shallow=0.5, tails=0.2, components=0.1, pairs=0.3)
    other = given.with_tails(share)
    assert other.tails == share and other.shallow == 0.5
    network = 1 - other.tails - other.components - other.pairs
    np.testing.assert_allclose(
        [network, other.components, other.pairs], np.array([0.4, 0.1, 0.3]) * (1 - share) / 0.8
    )
    assert Scoring(tails=1.0).with_tails(0.3).pairs == 0
