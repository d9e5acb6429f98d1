"""The detector keeps PyOD's contract: what PyOD's own test files ask of every detector."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pyod.models.base import BaseDetector
from pyod.models.lscp import LSCP
from pyod.utils.data import evaluate_print, generate_data
from pyod.utils.utility import score_to_label, standardizer
from scipy.stats import rankdata
from sklearn.base import clone, is_outlier_detector
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import tabiced
from tabiced.pyod import ICED
from tabiced.table import read_table
from tabiced.weights import SHIPPED
from tests_support import random_network

NETWORK = random_network()
X, X_NEW, Y, Y_NEW = generate_data(n_train=200, n_test=100, contamination=0.1, random_state=42)


@pytest.fixture(scope="module")
def detector() -> ICED:
    return ICED(contamination=0.1, weights=NETWORK).fit(X)


# What PyOD asks of every detector


def test_fitted_attributes(detector: ICED):
    assert isinstance(detector, BaseDetector) and is_outlier_detector(detector)
    assert detector.decision_scores_.shape == detector.labels_.shape == (200,)
    assert set(np.unique(detector.labels_)) == {0, 1}
    assert detector.labels_.sum() == 20  # contamination is the share of the table it was fitted to
    assert detector.threshold_ == np.percentile(detector.decision_scores_, 90)
    assert np.isfinite([detector._mu, detector._sigma]).all()


def test_labels_are_scores_above_the_threshold(detector: ICED):
    scores = detector.decision_function(X_NEW)
    assert scores.shape == (100,)
    np.testing.assert_array_equal(detector.predict(X_NEW), scores > detector.threshold_)


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_probabilities_and_confidence(detector: ICED, method: str):
    share, confidence = detector.predict_proba(X_NEW, method=method, return_confidence=True)
    assert share.shape == (100, 2) and confidence.shape == (100,)
    assert ((share >= 0) & (share <= 1)).all() and ((confidence >= 0) & (confidence <= 1)).all()
    np.testing.assert_allclose(share.sum(1), 1)
    order = np.argsort(detector.decision_function(X_NEW))
    assert (np.diff(share[order, 1]) >= 0).all()  # the more unusual, the more probably an outlier


def test_probabilities_refuse_other_methods(detector: ICED):
    with pytest.raises(ValueError, match="not a valid probability conversion method"):
        detector.predict_proba(X_NEW, method="something")


def test_confidence_and_rejection(detector: ICED):
    labels, confidence = detector.predict(X_NEW, return_confidence=True)
    np.testing.assert_array_equal(labels, detector.predict(X_NEW))
    assert ((confidence >= 0) & (confidence <= 1)).all()
    rejected, (rate, bound, cost) = detector.predict_with_rejection(X_NEW, return_stats=True)
    assert set(np.unique(rejected)) <= {-2, 0, 1}
    assert 0 <= rate <= 1 and 0 <= bound <= 1 and cost >= 0


@pytest.mark.parametrize("normalized", [False, True])
def test_ranks_keep_the_order_of_scores(detector: ICED, normalized: bool):
    ranks = detector._predict_rank(X_NEW, normalized=normalized)
    assert ranks.min() >= 0 and ranks.max() <= (1 if normalized else 200)
    order = np.argsort(detector.decision_function(X_NEW))
    assert (np.diff(ranks[order]) >= 0).all()
    full = rankdata(detector._predict_rank(X))
    np.testing.assert_allclose(full, rankdata(detector.decision_scores_), atol=1)


@pytest.mark.filterwarnings("ignore:Function fit_predict:FutureWarning")
def test_fit_predict_returns_the_labels(detector: ICED):
    labels = clone(detector).fit_predict(X)
    np.testing.assert_array_equal(labels, detector.labels_)
    for scoring in ("roc_auc_score", "prc_n_score"):
        assert 0 <= clone(detector).fit_predict_score(X_NEW, Y_NEW, scoring=scoring) <= 1
    with pytest.raises(NotImplementedError):
        clone(detector).fit_predict_score(X_NEW, Y_NEW, scoring="something")


def test_clones_have_the_parameters_and_nothing_else():
    options = {"contamination": 0.2, "n_views": 2, "max_context_rows": 50, "weights": "card.json"}
    copy = clone(ICED(**options).set_params(memory_mb=7))
    assert copy.get_params() == {**ICED().get_params(), **options, "memory_mb": 7}
    assert not hasattr(copy, "model_")
    assert "max_context_rows=50" in repr(copy)
    with pytest.raises(ValueError, match="Invalid parameter"):
        copy.set_params(neighbours=5)


@pytest.mark.parametrize("contamination", [-0.5, 0, 0.51])
def test_contamination_is_a_share(contamination: float):
    with pytest.raises(ValueError, match="contamination must be in"):
        ICED(contamination=contamination)


def test_labels_as_targets_are_ignored_with_a_warning(detector: ICED):
    with pytest.warns(UserWarning, match="y should not be presented"):
        fitted = clone(detector).fit(X, Y)
    np.testing.assert_array_equal(fitted.decision_scores_, detector.decision_scores_)


def test_outliers_are_found_with_the_shipped_weights():
    if not SHIPPED.exists():
        pytest.skip("no weights are shipped yet")
    detector = ICED().fit(X)
    assert roc_auc_score(Y, detector.decision_scores_) > 0.8  # the floor of PyOD's own tests
    assert roc_auc_score(Y_NEW, detector.decision_function(X_NEW)) > 0.8


# What is ours


def test_scores_are_those_of_the_estimator(detector: ICED):
    plain = tabiced.ICED(weights=NETWORK)
    plain.fit_predict(X)
    np.testing.assert_array_equal(detector.decision_scores_, plain.outlier_scores_)
    np.testing.assert_array_equal(detector.decision_function(X_NEW), -plain.score_samples(X_NEW))
    inside = -plain.reference_.whole.energy(plain.plan_.encode(read_table(X)))
    assert np.abs(inside - detector.decision_scores_).max() > 1e-3


def test_parameters_reach_the_estimator():
    shared = set(tabiced.ICED().get_params()) - {"false_alarm_rate"}
    assert set(ICED().get_params()) == shared | {"contamination"}
    assert {name: ICED().get_params()[name] for name in shared} == {
        name: tabiced.ICED().get_params()[name] for name in shared
    }
    fitted = ICED(weights=NETWORK, max_context_rows=50, n_views=2).fit(X)
    assert len(fitted.model_.reference_.matrix) == 50
    assert len(fitted.model_.reference_.reader.views) == 2
    assert fitted.decision_scores_.shape == (200,)


def test_frames_with_categories_and_missing_cells():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "kind": rng.choice(["a", "b", "c"], 60)})
    frame.loc[::7, "x"] = np.nan
    fitted = ICED(weights=NETWORK).fit(frame)
    assert np.isfinite(fitted.decision_scores_).all()
    assert fitted.predict(frame).shape == (60,)
    assert fitted.predict_proba(frame).shape == (60, 2)


def test_unfitted_detectors_say_so():
    with pytest.raises(NotFittedError):
        ICED(weights=NETWORK).decision_function(X)
    with pytest.raises(NotFittedError):
        ICED(weights=NETWORK).predict(X)


def test_pickles_score_the_same(detector: ICED):
    again = pickle.loads(pickle.dumps(detector))
    np.testing.assert_array_equal(again.predict_proba(X_NEW), detector.predict_proba(X_NEW))


def test_pyods_tools_take_the_detector(detector: ICED, capsys: pytest.CaptureFixture[str]):
    scores = detector.decision_function(X_NEW)
    evaluate_print("ICED", Y_NEW, scores)
    assert "ICED ROC" in capsys.readouterr().out
    assert score_to_label(scores, outliers_fraction=0.1).sum() == 10
    _, scaled = standardizer(detector.decision_scores_[:, None], scores[:, None])
    assert np.isfinite(scaled).all()
    members = [ICED(weights=NETWORK, random_state=seed, max_context_rows=60) for seed in (0, 1)]
    ensemble = LSCP(members, local_region_size=30, random_state=0).fit(X)
    assert ensemble.decision_function(X_NEW).shape == (100,)


def test_the_missing_extra_is_named():
    code = (
        "import sys; sys.modules['pyod'] = None\n"
        "try:\n    import tabiced.pyod\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tabiced[pyod]'" in done.stdout
