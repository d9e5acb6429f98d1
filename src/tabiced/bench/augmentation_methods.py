"""Generators of labelled rows: ours, and those the paper compares with.

Copies and jitter know nothing but the rows themselves; an augmenter is worth what it adds to them.
TVAE, CTGAN and ARF learn rows and labels together and are asked until each class has its share.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from tabiced._extras import extra

Counts = dict[int, int]
Generate = Callable[[np.ndarray, np.ndarray, Counts, int], tuple[np.ndarray, np.ndarray]]
"""(X, y, how many rows of each class, seed) -> new rows and labels"""

JITTER = 0.14  # standard deviation of the noise on standardised columns
FLOW_STEPS = 500  # at most, of the spline flow
ROUNDS = 20  # requests to a generator that chooses the classes itself
UNAVAILABLE = {
    "TabDDPM": "its package, synthcity, does not install: its sktime 0.9 no longer builds",
    "TabEBM": "the TabPFN weights it needs are not available",
}


@dataclass(frozen=True)
class Generator:
    """A way to make new labelled rows; `options` and `weights` tell apart results of ours."""

    name: str
    generate: Generate
    options: str = ""
    weights: str = ""

    @property
    def key(self) -> dict[str, str]:
        return {"method": self.name, "options": self.options, "weights": self.weights}


def ours(
    options: Mapping[str, Any] | None = None,
    weights: Path | str | None = None,
    device: str = "cpu",
) -> Generator:
    """Measure `ICEDAugmenter(**options)`; `steps` among the options sets those of its chains."""
    from tabiced.bench.ours import version

    given = dict(options or {})

    def generate(
        X: np.ndarray, y: np.ndarray, counts: Counts, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from tabiced.generate import ICEDAugmenter, Metropolis

        chosen = {name: value for name, value in given.items() if name != "steps"}
        sampler = Metropolis(steps=given["steps"]) if "steps" in given else None
        augmenter = ICEDAugmenter(
            sampler=sampler, weights=weights, device=device, random_state=seed, **chosen
        )
        return augmenter.fit(X, y).sample(counts)

    said = " ".join(f"{name}={value}" for name, value in sorted(given.items()))
    return Generator("ours", generate, said, version(weights, scoring=False))


def nothing(
    X: np.ndarray, y: np.ndarray, counts: Counts, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add no row."""
    return X[:0], y[:0]


def by_class(draw: Callable[[np.ndarray, int, np.random.Generator], np.ndarray]) -> Generate:
    """Make a generator of a function (rows of a class, how many, generator) -> new rows."""

    def generate(
        X: np.ndarray, y: np.ndarray, counts: Counts, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(seed)
        parts = [draw(X[y == label], count, generator) for label, count in counts.items()]
        return np.concatenate(parts), np.repeat(list(counts), list(counts.values()))

    return generate


def copies(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw rows with replacement."""
    return rows[generator.integers(len(rows), size=count)]


def jitter(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw rows with replacement and add a little noise."""
    drawn = copies(rows, count, generator)
    return drawn + JITTER * generator.standard_normal(drawn.shape)


def smote(X: np.ndarray, y: np.ndarray, counts: Counts, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate between neighbours (imbalanced-learn), class by class; one row is copied.

    A class with fewer than six rows has fewer than SMOTE's five neighbours; it takes all it has.
    """
    with extra("bench"):
        from imblearn.over_sampling import SMOTE

    parts = []
    for label, count in counts.items():
        size = int((y == label).sum())
        if size < 2:
            parts.append(np.repeat(X[y == label], count, 0))
            continue
        sampler = SMOTE(
            sampling_strategy={label: size + count},
            k_neighbors=min(5, size - 1),
            random_state=seed,
        )
        parts.append(sampler.fit_resample(X, y)[0][len(X) :])
    return np.concatenate(parts), np.repeat(list(counts), list(counts.values()))


def _named(X: np.ndarray, y: np.ndarray) -> Any:
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["y"] = [f"class {label}" for label in y]
    return frame


def _fill(
    counts: Counts, draw: Callable[[int], Any], columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ask for frames until each class has its share; classes that never come stay short."""
    rows: dict[int, list[np.ndarray]] = {label: [np.empty((0, columns))] for label in counts}
    wanted = sum(counts.values())
    for _ in range(ROUNDS):
        frame = draw(wanted)
        X, names = frame.drop(columns="y").to_numpy(float), frame["y"].astype(str).to_numpy()
        for label in counts:
            rows[label].append(X[names == f"class {label}"])
        if all(sum(map(len, rows[label])) >= count for label, count in counts.items()):
            break
    drawn = {label: np.concatenate(rows[label])[:count] for label, count in counts.items()}
    sizes = [len(part) for part in drawn.values()]
    return np.concatenate(list(drawn.values())), np.repeat(list(counts), sizes)


def ctgan(name: str) -> Generate:
    """Return CTGAN or TVAE of the package ctgan, with its defaults."""

    def generate(
        X: np.ndarray, y: np.ndarray, counts: Counts, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        with extra("bench"):
            import ctgan as package
        frame = _named(X, y)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(package, name)(enable_gpu=False)
            model.set_random_state(seed)
            model.fit(frame, ["y"])
            return _fill(counts, model.sample, X.shape[1])

    return generate


def arf(X: np.ndarray, y: np.ndarray, counts: Counts, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit an adversarial random forest (arfpy) and draw from its leaves."""
    with extra("bench"):
        from arfpy import arf as package
    frame = _named(X, y)
    frame["y"] = frame["y"].astype("category")
    # It takes the columns by place and by name, so these must be the same.
    names, frame.columns = frame.columns, range(frame.shape[1])
    state = np.random.get_state()
    np.random.seed(seed)  # arfpy draws from numpy's global generator
    try:
        # arfpy 0.1.1 calls a function by the name it had before numpy 2.4.
        with mock.patch.object(np, "in1d", np.isin, create=True):
            model = package.arf(x=frame, verbose=False, random_state=seed)
            model.forde()
            return _fill(counts, lambda n: model.forge(n).set_axis(names, axis=1), X.shape[1])
    finally:
        np.random.set_state(state)


def nflow(X: np.ndarray, y: np.ndarray, counts: Counts, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Train a neural spline flow given the class (zuko), stopped by a tenth of the rows."""
    with extra("bench"):
        from zuko.flows import NSF
    labels = list(counts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = torch.as_tensor(X, dtype=torch.float32)
        given = torch.nn.functional.one_hot(
            torch.as_tensor(np.searchsorted(labels, y)), len(labels)
        ).float()
        flow = NSF(X.shape[1], len(labels), transforms=3, hidden_features=(64, 64))
        _train_flow(flow, rows, given)
        with torch.no_grad():
            parts = [
                flow(torch.eye(len(labels))[k]).sample((count,)).double().numpy()
                for k, count in enumerate(counts.values())
            ]
    return np.concatenate(parts), np.repeat(labels, list(counts.values()))


def _train_flow(flow: Any, rows: torch.Tensor, given: torch.Tensor) -> None:
    order = torch.randperm(len(rows))
    held = max(2, len(rows) // 10)
    optimiser = torch.optim.AdamW(flow.parameters(), lr=1e-3, weight_decay=1e-4)
    best, state, since = float("inf"), flow.state_dict(), 0
    for step in range(FLOW_STEPS):
        some = order[held:][torch.randint(len(rows) - held, (min(200, len(rows)),))]
        loss = -flow(given[some]).log_prob(rows[some]).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimiser.step()
        if step % 10:
            continue
        with torch.no_grad():
            loss = float(-flow(given[order[:held]]).log_prob(rows[order[:held]]).mean())
        since += 1
        if loss < best:
            best, since = loss, 0
            state = {name: value.clone() for name, value in flow.state_dict().items()}
        if since >= 10:
            break
    flow.load_state_dict(state)


BASELINES = {
    method.name: method
    for method in (
        Generator("baseline", nothing),
        Generator("copies", by_class(copies)),
        Generator("jitter", by_class(jitter)),
        Generator("SMOTE", smote),
        Generator("TVAE", ctgan("TVAE")),
        Generator("CTGAN", ctgan("CTGAN")),
        Generator("ARF", arf),
        Generator("NFLOW", nflow),
    )
}
