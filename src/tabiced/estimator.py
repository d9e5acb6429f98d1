"""The estimator: scikit-learn's contract around a network that reads a table instead of fitting."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tabiced.calibration import p_values, threshold
from tabiced.columns import learn_plan
from tabiced.contexts import Reader, make_views, network_on, tile_rows
from tabiced.model import Network
from tabiced.reference import Reference
from tabiced.rows import order_columns, order_rows
from tabiced.saving import load_estimator, save_estimator
from tabiced.table import Table, read_table, template_of
from tabiced.threads import warn_of_idle_threads

CHUNK_CELLS = 2**23  # cells of the matrix held at once while queries stream


class ICED(OutlierMixin, BaseEstimator):
    """Score rows of a table by how typical they are of a reference table.

    `fit` reads the reference rows as context of a pretrained network; nothing is trained. Tables
    may be numpy arrays or pandas, polars or pyarrow tables with numbers, booleans, text,
    categories, datetimes and missing values.

    `log_density` is the network's estimate of log p(x). `score_samples`, the energy by which rows
    are ranked and called unusual, is that estimate on a scale of its own, mixed with simpler ones
    that carry over well from table to table and with how far out the cells of a row lie.

    A row is always judged by a context it is not part of: a reference row that is scored again is
    left out first, so `fit(X).predict(X)` does not flatter the rows of X. Where X repeats its rows,
    having been there before does count for them; `fit_predict` searches X for its own outliers.

    Parameters
    ----------
    false_alarm_rate : float, default=0.05
        Share of rows like the reference that `predict` may call outliers.
    max_context_rows : int, default=8000
        Reference rows the network reads; of more, a random sample. Log-densities and samples are by
        5,000 of them at most.
    n_views : int, default=1
        Energies are averaged over this many ways of telling the columns apart.
    tail_weight : float or None, default=None
        Share of an energy, from 0 to 1, that is how far out its row's cells lie in their columns;
        None: the share that goes with the weights. Some of it helps to find anomalies, which lie
        more often at the ends of columns than in gaps. `log_density` and `sample` have none of it.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where to compute; "auto" takes a GPU if there is one.
    memory_mb : int, default=1024
        Budget for contexts kept between calls and for the rows scored at once. Contexts beyond it
        are read again whenever they are needed; 0 keeps none.
    random_state : int, RandomState or None, default=0
        Seed of the row sample, the folds and the views.
    weights : None, path or Network, default=None
        The shipped weights, the JSON card of others, or a network.
    verbose : bool, default=False
        Show progress while scoring.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : int, array of str
        Columns of the reference table; the names only if it had some.
    offset_ : float
        `decision_function(X) = score_samples(X) - offset_`.
    outlier_scores_ : array of shape (n_samples,)
        After `fit_predict`: minus the energy of each row, judged as if it were not in the context.
    plan_ : Plan
        How each column enters the network.
    device_ : str
        Where it computes.
    template_ : table without rows, or None
        What `sample` makes its rows look like; None after `load` and for lists of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tabiced import ICED
    >>> table = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = ICED().fit(table)
    >>> model.predict([[0.0, 0.0, 0.0], [9.0, 9.0, -9.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.05,
        max_context_rows: int = 8000,
        n_views: int = 1,
        tail_weight: float | None = None,
        device: str = "auto",
        memory_mb: int = 1024,
        random_state: int | np.random.RandomState | None = 0,
        weights: Network | str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ):
        self.false_alarm_rate = false_alarm_rate
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
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        # Text is welcome, but scikit-learn takes `string` to mean that any object is.
        tags.input_tags.string = False
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the reference table X (at least two rows); y is ignored."""
        self._check_parameters()
        if hasattr(self, "outlier_scores_"):
            del self.outlier_scores_
        self.device_ = self._choose_device()
        if self.device_ == "cpu":
            warn_of_idle_threads()
        table = read_table(X, min_rows=2)
        self._remember_columns(table)
        has_kind = table.frame is not None or isinstance(X, np.ndarray)
        self.template_ = template_of(X) if has_kind else None
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        if table.rows > self.max_context_rows:
            table = table.take(order_rows(table.floats(), seed)[: self.max_context_rows])
        self.plan_ = learn_plan(table)
        self.reference_ = None
        if self.plan_.width:
            matrix = self.plan_.encode(table)
            matrix = matrix[order_rows(list(matrix.T), seed)]
            reader = self._reader(matrix, seed)
            scoring = reader.network.scoring
            if self.tail_weight is not None:
                scoring = scoring.with_tails(self.tail_weight)
            self.reference_ = Reference(matrix, reader, scoring)
            self.reference_.read()
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit to X and return +1 for typical and -1 for unusual rows of X itself.

        Each row is judged as if neither it nor an exact copy of it were in the context.
        """
        energy = self.fit(X)._score(X, own=True)
        self.outlier_scores_ = -energy
        return _labels(energy - threshold(self._calibration(own=True), self.false_alarm_rate))

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the energy of each row: how typical it is of the reference, higher = more.

        -1 and +1 are about the 10th and 90th percentile of rows like the reference.
        """
        return self._score(X, own=False)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return `score_samples(X) - offset_`: negative for rows that `predict` calls outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return +1 for rows like the reference and -1 for unusual ones.

        Of new rows from the source of the reference, about `false_alarm_rate` get -1.
        """
        return _labels(self.decision_function(X))

    def p_values(self, X: Any) -> np.ndarray:
        """Return for each row the share of reference rows that are at least as unusual.

        Conformal: for new rows from the source of the reference, P(p <= a) is at most about a.
        """
        return p_values(self.score_samples(X), self._calibration())

    def log_density(self, X: Any) -> np.ndarray:
        """Return the estimated log p(x) in nats, per unit of the numeric columns (times: seconds).

        Text, booleans and other two-valued columns count as probability mass.
        """
        check_is_fitted(self)
        reference = self.reference_
        if reference is None:
            raise ValueError(
                "log_density needs a column that varies: all columns of the reference are constant."
            )
        limit = reference.reader.network.config.max_columns
        if self.plan_.width > limit:
            raise ValueError(
                f"log_density takes at most {limit} columns after encoding, and this table has "
                f"{self.plan_.width}: energies of more are averages over parts of the columns. Use "
                "score_samples, or fewer columns."
            )
        return self._stream(read_table(X), reference.log_density) - self.plan_.log_volume

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `log_density(X)`; y is ignored."""
        return float(self.log_density(X).mean())

    def explain(self, X: Any, *, pairs: bool = False) -> Any:
        """Return how much each cell makes its row unusual, as a table of the kind of X.

            energy(row with the cell missing) - energy(row)

        Positive: without the cell the row would look more typical. Ignored columns are 0. With
        `pairs`, one column for each two columns tells how far their cells contradict each other.
        """
        from tabiced.explanation import explain_rows

        return explain_rows(self, X, pairs=pairs)

    def explain_p_values(self, X: Any) -> Any:
        """Return for each cell the share of reference rows as surprising there, like X."""
        from tabiced.explanation import explain_p_values

        return explain_p_values(self, X)

    def explain_in_words(self, X: Any, *, most: int = 3) -> list[list[str]]:
        """Return for each row up to `most` sentences, the most surprising cell first.

        A row without a surprising cell has none: it is usual, or unusual as a whole.
        """
        from tabiced.explanation import explain_in_words

        return explain_in_words(self, X, most=most)

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> Any:
        """Return new rows like the reference, as a table of its kind.

        `tabiced.generate.sample_rows` does the same with more choices, and tells how the chains
        went.
        """
        from tabiced.generate import sample_rows

        check_is_fitted(self)
        return sample_rows(self, n_samples, like=self.template_, random_state=random_state)[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file: safetensors, no pickle, without the weights."""
        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that `save` has written; it scores exactly as before."""
        return load_estimator(cls, path)

    @property
    def offset_(self) -> float:
        """Return the energy that `false_alarm_rate` of rows like the reference stay below."""
        check_is_fitted(self)
        return threshold(self._calibration(), self.false_alarm_rate)

    @property
    def cache_nbytes_(self) -> int:
        """Return the size of the contexts kept in memory."""
        check_is_fitted(self)
        return 0 if self.reference_ is None else self.reference_.reader.used

    def _reader(self, matrix: np.ndarray, seed: int) -> Reader:
        plan, memory = self.plan_, int(self.memory_mb * 2**20)
        config = network_on(self.weights, self.device_).config
        generator = np.random.default_rng(seed)
        blocks = list(filter(len, plan.blocks))
        if plan.width > config.max_columns:  # not all are shown together
            place = np.argsort(order_columns(matrix))
            blocks.sort(key=lambda block: place[block].min())
        views = make_views(blocks, config.max_columns, self.n_views, generator)
        widest = max(len(view.columns) for view in views)
        tile = tile_rows(config, self.device_, len(matrix), widest, memory)
        return Reader(self.weights, self.device_, views, plan.counted, tile, memory)

    def _score(self, X: Any, *, own: bool) -> np.ndarray:
        """Return the energies of rows; `own` if they are those of the reference table."""
        check_is_fitted(self)
        reference = self.reference_

        def judge(part: Table) -> np.ndarray:
            if reference is None:
                return np.zeros(part.rows)
            return reference.score(self.plan_.encode(part), self.plan_.strange(part), own)

        return self._stream_tables(read_table(X), judge)

    def _calibration(self, *, own: bool = False) -> np.ndarray:
        return np.zeros(1) if self.reference_ is None else self.reference_.calibration(own)

    def _stream(self, table: Table, judge: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Encode and judge the rows of a table chunk by chunk."""
        return self._stream_tables(table, lambda part: judge(self.plan_.encode(part)))

    def _stream_tables(self, table: Table, judge: Callable[[Table], np.ndarray]) -> np.ndarray:
        """Judge the rows of a table, its columns in the reference's order, chunk by chunk."""
        if hasattr(self, "feature_names_in_") and table.names is None and table.frame is None:
            warnings.warn(
                f"X does not have valid feature names, but {type(self).__name__} was fitted with "
                "feature names; columns are taken by position.",
                UserWarning,
                stacklevel=4,
            )
        table = self.plan_.align(table, type(self).__name__)
        step = max(1, CHUNK_CELLS // max(1, self.plan_.width))
        parts = []
        for start in range(0, table.rows, step):
            end = min(start + step, table.rows)
            if self.reference_ is not None:
                reader = self.reference_.reader
                reader.verbose, reader.label = self.verbose, f"rows to {end:,} of {table.rows:,}"
            parts.append(judge(table.take(slice(start, end))))
        return np.concatenate(parts)

    def _remember_columns(self, table: Table) -> None:
        self.n_features_in_ = len(table.columns)
        given = [] if table.frame is None else table.frame.columns
        if given and all(isinstance(name, str) for name in given):
            self.feature_names_in_ = np.array(given, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _choose_device(self) -> str:
        """Return the device to use; never another than the one asked for."""
        wanted = self.device
        if wanted == "auto":
            wanted = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(wanted)
        except (RuntimeError, TypeError):
            device = None
        if device is not None and device.type == "mps":
            raise ValueError(
                "device='mps' cannot be used: the statistics of the context need double precision, "
                "which Apple's GPUs do not have. Use 'cpu'."
            )
        if device is None or device.type not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}.")
        if device.type == "cpu":
            return "cpu"
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"device={self.device!r} is not available here; use 'auto' or 'cpu'.")
        return f"cuda:{device.index or 0}"

    def _check_parameters(self) -> None:
        if not 0 < self.false_alarm_rate < 1:
            raise ValueError(
                f"false_alarm_rate must lie between 0 and 1, got {self.false_alarm_rate}."
            )
        if self.tail_weight is not None and not 0 <= self.tail_weight <= 1:
            raise ValueError(f"tail_weight must lie between 0 and 1, got {self.tail_weight}.")
        for name, least in (("max_context_rows", 2), ("n_views", 1), ("memory_mb", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}.")


def _labels(decision: np.ndarray) -> np.ndarray:
    return np.where(decision >= 0, 1, -1)
