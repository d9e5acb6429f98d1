"""New rows for the classes of a labelled table, by the contract of imbalanced-learn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from tabiced.columns import learn_plan
from tabiced.contexts import progress
from tabiced.estimator import ICED
from tabiced.generate.layout import State, layout_of
from tabiced.generate.rows import build, decode
from tabiced.generate.sample import Sampler, sample_rows
from tabiced.generate.sampler import start_rows
from tabiced.generate.tables import as_labels, labels_like, stack
from tabiced.model import Network
from tabiced.table import read_table, template_of

Strategy = str | float | Mapping[Any, int] | Callable[[np.ndarray], Mapping[Any, int]]


class ICEDAugmenter(BaseEstimator):
    """Add new rows to the classes of a table, drawn from each class's own density.

    Every class is a context of its own: `ICED` reads its rows, and chains that start there draw new
    ones. A class of fewer than `min_rows` rows is too small to be read. Its new rows are its own
    rows with noise in the numbers: Gaussian, with `noise` times the standard deviations and with
    the correlations that rows have inside of classes, over all classes. So a class of two rows, or
    one, gets rows as spread as other classes suggest. If no class has two rows, they are copies.

    Parameters
    ----------
    sampling_strategy : str, float, dict or callable, default="auto"
        As for imbalanced-learn's over-samplers. "auto" and "not majority", "minority", "not
        minority", "all": raise these classes to the size of the largest. A float, for two classes:
        the wanted ratio of the smaller to the larger one. A dict: the wanted size of classes. A
        callable takes y and returns such a dict.
    min_rows : int, default=10
        Rows a class needs to be read by the network.
    noise : float, default=0.4
        Noise for smaller classes, in standard deviations inside of classes.
    sampler : Metropolis, Langevin or None, default=None
        How rows are drawn; None is `Metropolis()`.
    max_context_rows, device, weights
        As for `ICED`.
    random_state : int, RandomState or None, default=None
        Seed of all draws.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    models_ : dict
        The fitted `ICED` of each class that the network reads.
    sampling_strategy_ : dict
        After `fit_resample`: how many rows each class was given.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from tabiced.generate import ICEDAugmenter
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> y = np.repeat(["rare", "usual"], [15, 35])
    >>> X_more, y_more = ICEDAugmenter(random_state=0).fit_resample(X, y)
    >>> X_more.shape, int((y_more == "rare").sum())
    ((70, 3), 35)
    """

    def __init__(
        self,
        *,
        sampling_strategy: Strategy = "auto",
        min_rows: int = 10,
        noise: float = 0.4,
        sampler: Sampler | None = None,
        max_context_rows: int = 8000,
        device: str = "auto",
        weights: Network | str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.sampling_strategy = sampling_strategy
        self.min_rows = min_rows
        self.noise = noise
        self.sampler = sampler
        self.max_context_rows = max_context_rows
        self.device = device
        self.weights = weights
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Read the rows of each class."""
        table = read_table(X)
        labels = as_labels(y, table.rows)
        self._check(labels)
        self.classes_, which = np.unique(labels, return_inverse=True)
        self.n_features_in_ = len(table.columns)
        self.template_, self.labels_like_ = template_of(X), y
        self.plan_ = learn_plan(table)
        self.matrix_, self.which_ = self.plan_.encode(table), which
        self.models_ = {}
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        for k, label in enumerate(self.classes_.tolist()):
            members = np.flatnonzero(which == k)
            if len(members) >= self.min_rows:
                self.models_[label] = ICED(
                    max_context_rows=self.max_context_rows,
                    device=self.device,
                    random_state=seed,
                    weights=self.weights,
                ).fit(stack(X, rows=members))
        return self

    def sample(self, n_per_class: int | Mapping[Any, int]) -> tuple[Any, Any]:
        """Return new rows and their labels, class by class: so many of each, or as a dict says."""
        check_is_fitted(self)
        wanted = self._wanted(n_per_class)
        generator = check_random_state(self.random_state)
        parts = []
        names = [label for label in wanted if wanted[label]]
        shown = progress(range(len(names)), "sampling classes", self.verbose)
        for i in shown:
            seed = generator.randint(2**31 - 1)
            if names[i] in self.models_:
                rows, _ = sample_rows(
                    self.models_[names[i]],
                    wanted[names[i]],
                    like=self.template_,
                    sampler=self.sampler,
                    random_state=seed,
                )
            else:
                rows = self._near_rows(names[i], wanted[names[i]], seed)
            parts.append(rows)
        labels = np.repeat(self.classes_, [wanted[c] for c in self.classes_.tolist()])
        new = stack(*parts) if parts else self.template_
        return new, labels_like(labels, self.labels_like_)

    def fit_resample(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return the table with new rows below its own, and the labels of all."""
        self.fit(X, y)
        self.sampling_strategy_ = rows_to_add(
            self.sampling_strategy, as_labels(y, len(self.which_))
        )
        rows, _ = self.sample(self.sampling_strategy_)
        counts = [self.sampling_strategy_.get(c, 0) for c in self.classes_.tolist()]
        labels = np.concatenate([as_labels(y, len(self.which_)), np.repeat(self.classes_, counts)])
        return stack(X, rows), labels_like(labels, y)

    def _near_rows(self, label: Any, count: int, seed: int) -> Any:
        """Return rows of a small class with noise, shaped as rows are inside of classes."""
        generator = np.random.default_rng(seed)
        layout = layout_of(self.plan_, self.matrix_) if self.plan_.width else None
        rows = np.empty((count, 0), np.float32)
        if layout is not None:
            members = np.flatnonzero(self.which_ == self.classes_.tolist().index(label))
            start = layout.context.take(members[start_rows(len(members), count, generator)])
            root = _root_within(layout.context, self.which_)
            noise = self.noise * generator.standard_normal(start.numbers.shape) @ root.T
            moved = State(start.numbers + noise, start.levels, start.no_number, start.no_level)
            rows = layout.rows_of(moved)
        columns = decode(self.plan_, rows, self.matrix_, generator)
        return build(columns, self.template_, self.plan_)

    def _wanted(self, n_per_class: int | Mapping[Any, int]) -> dict[Any, int]:
        classes = self.classes_.tolist()
        if not isinstance(n_per_class, Mapping):
            n_per_class = dict.fromkeys(classes, n_per_class)
        unknown = [label for label in n_per_class if label not in classes]
        if unknown:
            raise ValueError(f"There is no class {unknown[0]!r}; the classes are {classes}.")
        if any(count < 0 for count in n_per_class.values()):
            raise ValueError(f"n_per_class must not be negative, got {n_per_class}.")
        return {label: int(n_per_class.get(label, 0)) for label in classes}

    def _check(self, labels: np.ndarray) -> None:
        if self.min_rows < 2:
            raise ValueError(f"min_rows must be at least 2, got {self.min_rows}.")
        if self.noise < 0:
            raise ValueError(f"noise must not be negative, got {self.noise}.")
        if type_of_target(labels) not in ("binary", "multiclass"):
            raise ValueError(
                "y must hold the class of each row (text or whole numbers), but it looks "
                f"{type_of_target(labels)}. Turn a measured target into classes first."
            )


def _root_within(context: State, which: np.ndarray) -> np.ndarray:
    """Return a root of the covariance inside of classes (d, d), shrunk to its diagonal.

    Missing numbers count as their class's mean.
    """
    numbers = np.where(context.no_number, np.nan, context.numbers)
    n, d = numbers.shape
    rest, freedom = np.zeros((n, d)), 0
    for k in np.unique(which):
        part = numbers[which == k]
        known = ~np.isnan(part)
        mean = np.where(known, part, 0.0).sum(0) / np.maximum(known.sum(0), 1)
        # Values far out must not decide how wide the noise is.
        rest[which == k] = np.clip(np.where(known, part - mean, 0.0), -5, 5)
        freedom += len(part) - 1
    if freedom == 0:
        return np.zeros((d, d))
    covariance = rest.T @ rest / freedom
    trust = freedom / (freedom + d)
    covariance = trust * covariance + (1 - trust) * np.diag(np.diag(covariance))
    return np.linalg.cholesky(covariance + 1e-10 * np.eye(d))


def rows_to_add(strategy: Strategy, y: np.ndarray) -> dict[Any, int]:
    """Return how many rows each class gets, by imbalanced-learn's rules for over-sampling."""
    labels, counts = np.unique(y, return_counts=True)
    sizes = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    largest, smallest = max(sizes.values()), min(sizes.values())
    if callable(strategy):
        strategy = strategy(y)
    if isinstance(strategy, Mapping):
        return _from_dict(strategy, sizes)
    if isinstance(strategy, str):
        majority = max(sizes, key=lambda label: sizes[label])
        minority = min(sizes, key=lambda label: sizes[label])
        chosen = {
            "auto": [c for c in sizes if c != majority],
            "not majority": [c for c in sizes if c != majority],
            "minority": [minority],
            "not minority": [c for c in sizes if c != minority],
            "all": list(sizes),
        }
        if strategy not in chosen:
            raise ValueError(
                f"sampling_strategy is one of {', '.join(map(repr, chosen))}, a number, a dict or "
                f"a callable; got {strategy!r}."
            )
        return {label: largest - sizes[label] for label in chosen[strategy]}
    if len(sizes) != 2 or not 0 < strategy <= 1:
        raise ValueError(
            "A number as sampling_strategy is the wanted ratio of the smaller to the larger class: "
            f"it lies above 0 and up to 1, and y has two classes; got {strategy} for {len(sizes)} "
            "classes."
        )
    wanted = int(largest * strategy) - smallest
    if wanted < 0:
        raise ValueError(
            f"sampling_strategy={strategy} asks for fewer rows of the smaller class than it has."
        )
    minority = min(sizes, key=lambda label: sizes[label])
    return {minority: wanted}


def _from_dict(wanted: Mapping[Any, int], sizes: dict[Any, int]) -> dict[Any, int]:
    for label, count in wanted.items():
        if label not in sizes:
            raise ValueError(
                f"sampling_strategy names the class {label!r}, which y does not have; its classes "
                f"are {list(sizes)}."
            )
        if count < sizes[label]:
            raise ValueError(
                f"sampling_strategy gives the wanted size of each class, new rows included: class "
                f"{label!r} has {sizes[label]} rows already, more than {count}."
            )
    return {label: count - sizes[label] for label, count in wanted.items()}
