"""The estimator as a PyOD detector: 1 = outlier, higher score = more unusual.

    from tabiced.pyod import ICED

    detector = ICED(contamination=0.05).fit(X)
    detector.labels_, detector.decision_scores_  # the rows of X, each judged by the others
    detector.predict(X_new), detector.predict_proba(X_new)

Needs `pip install 'tabiced[pyod]'`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tabiced import estimator
from tabiced._extras import extra

with extra("pyod"):
    from pyod.models.base import BaseDetector

if TYPE_CHECKING:
    from tabiced.model import Network


class ICED(BaseDetector):
    """Score rows of a table by how unusual they are among the rows it was fitted to.

    `tabiced.ICED` in PyOD's terms. Outliers have high scores and label 1, and `contamination` sets
    the threshold: the share of the rows of `fit` that are labelled 1. The estimator's own
    `predict` needs no such guess; use it where PyOD's interface is not needed.

    Parameters
    ----------
    contamination : float in (0, 0.5] or a PyThresh object, default=0.1
        Share of outliers in the table passed to `fit`.
    max_context_rows, n_views, tail_weight, device, memory_mb, random_state, weights, verbose
        As for `tabiced.ICED`.

    Attributes
    ----------
    decision_scores_ : array of shape (n_samples,)
        Minus the energy of each row of `fit`, judged as if neither it nor an exact copy of it were
        in the context.
    threshold_, labels_ : float, array of shape (n_samples,)
        The score above which a row is an outlier, and which rows of `fit` are.
    model_ : tabiced.ICED
        The fitted estimator.
    """

    def __init__(
        self,
        contamination: Any = 0.1,
        *,
        max_context_rows: int = 8000,
        n_views: int = 1,
        tail_weight: float | None = None,
        device: str = "auto",
        memory_mb: int = 1024,
        random_state: int | np.random.RandomState | None = 0,
        weights: Network | str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ):
        super().__init__(contamination=contamination)
        self.max_context_rows = max_context_rows
        self.n_views = n_views
        self.tail_weight = tail_weight
        self.device = device
        self.memory_mb = memory_mb
        self.random_state = random_state
        self.weights = weights
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = estimator.ICED().__sklearn_tags__().input_tags
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the table X (at least two rows) and judge each of its rows by the others."""
        self._set_n_classes(y)
        options = self.get_params(deep=False)
        del options["contamination"]
        self.model_ = estimator.ICED(**options)
        self.model_.fit_predict(X)
        self.decision_scores_ = self.model_.outlier_scores_
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return minus the energy of each row: higher = more unusual."""
        check_is_fitted(self, "model_")
        return -self.model_.score_samples(X)
