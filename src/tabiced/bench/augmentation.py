"""Class-conditional augmentation under the paper's protocol: eight tables, ten seeds.

For each table, number of real rows and seed:

1. Drop classes of fewer than 10 rows. Split off min(rows // 2, 500) test rows, stratified; of the
   others, draw `n_real` training rows, stratified. Both with `random_state = seed`.
2. Impute missing cells by the mean and standardise, both fitted on the training rows.
3. Generate 500 rows, in proportion to the classes of the training rows, and add them to these.
4. Fit k nearest neighbours, logistic regression, a random forest and a perceptron of scikit-learn
   with `random_state = seed`; measure balanced accuracy on the test rows.

    python -m tabiced.bench augmentation --data FOLDER --methods ours baselines
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from tabiced.bench.augmentation_methods import BASELINES, UNAVAILABLE, Generator, ours
from tabiced.bench.results import Results, Row, describe_machine, note_machine, number, read_csv
from tabiced.bench.summary import Means, collect, label, text_table
from tabiced.bench.tasks import METHOD_KEY, side_by_side

N_REAL: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("protein", "fourier", "biodeg", "steel"), (20, 50, 100, 200, 500)),
    "stock": (20, 50, 100, 200),
    "energy": (50, 100, 200),
    "collins": (100, 200),
    "texture": (50, 100, 200, 500),
}
SEEDS = tuple(range(10))
QUICK: dict[str, object] = {"seeds": (0,), "datasets": ("stock",), "sizes": (20,)}
LEAST_ROWS, TEST_ROWS, NEW_ROWS = 10, 500, 500
CLASSIFIERS = ("knn", "lr", "mlp", "rf")
KEY = ("dataset", "n_real", "seed", "classifier", *METHOD_KEY)
VALUES = ("balanced_accuracy", "seconds")  # seconds to generate, the same for all classifiers
_PAPER = Path(__file__).parent / "paper" / "augmentation.csv"


@dataclass(frozen=True)
class Split:
    """Training and test rows, standardised by the training rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Setting:
    """One table, number of real rows and seed."""

    dataset: str
    n_real: int
    seed: int
    path: Path


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def settings(
    folder: str | os.PathLike[str],
    seeds: Sequence[int] = SEEDS,
    only: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[Setting]:
    """Return the settings of the tables in a folder of NAME.npz files."""
    absent = [name for name in N_REAL if not (Path(folder) / f"{name}.npz").exists()]
    if absent:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(f'{name}.npz' for name in absent)} (arrays X and y); give "
            "the folder of the augmentation tables with --data"
        )
    return [
        Setting(name, n, seed, Path(folder) / f"{name}.npz")
        for seed in seeds
        for name, real in N_REAL.items()
        for n in real
        if (only is None or name in only) and (sizes is None or n in sizes)
    ]


def load(setting: Setting) -> Split:
    """Read a table and split it (steps 1 and 2)."""
    with np.load(setting.path) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.int64)
    return split(X, y, setting.n_real, setting.seed)


def split(X: np.ndarray, y: np.ndarray, n_real: int, seed: int) -> Split:
    """Return training and test rows (steps 1 and 2)."""
    labels, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, labels[counts >= LEAST_ROWS])
    X, y = X[kept], y[kept]
    test = min(len(X) // 2, TEST_ROWS)
    rest, X_test, y_rest, y_test = train_test_split(
        X, y, test_size=test, stratify=y, random_state=seed
    )
    train, _, y_train, _ = train_test_split(
        rest, y_rest, train_size=n_real, stratify=y_rest, random_state=seed
    )
    imputer = SimpleImputer(keep_empty_features=True).fit(train)
    scaler = StandardScaler().fit(imputer.transform(train))
    scaled = [scaler.transform(imputer.transform(part)) for part in (train, X_test)]
    return Split(scaled[0], y_train, scaled[1], y_test)


def new_counts(y: np.ndarray, total: int = NEW_ROWS) -> dict[int, int]:
    """Share out the new rows in proportion to the classes; remainders go to the largest ones."""
    labels, counts = np.unique(y, return_counts=True)
    exact = total * counts / counts.sum()
    whole = np.floor(exact).astype(int)
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: total - whole.sum()]] += 1
    return dict(zip(labels.tolist(), whole.tolist(), strict=True))


def classifier(name: str, seed: int) -> object:
    """Return a classifier with scikit-learn's defaults, given more steps where it needs them."""
    if name == "knn":
        return KNeighborsClassifier()
    if name == "lr":
        return LogisticRegression(max_iter=2000, random_state=seed)
    if name == "rf":
        return RandomForestClassifier(random_state=seed)
    return MLPClassifier(max_iter=1000, random_state=seed)


def measure(
    chosen: Iterable[Setting],
    methods: Sequence[Generator],
    results: Results,
    force: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Augment with every method, fit the classifiers and store their balanced accuracies."""
    for setting in chosen:
        where = {"dataset": setting.dataset, "n_real": setting.n_real, "seed": setting.seed}
        data = None
        for method in methods:
            keys = [{**where, "classifier": name, **method.key} for name in CLASSIFIERS]
            if not force and all(key in results for key in keys):
                continue
            data = data or load(setting)
            start = time.perf_counter()
            made = _generate(method, data, setting.seed)
            seconds = round(time.perf_counter() - start, 3)
            values = _accuracies(data, made, setting.seed)
            for key, value in zip(keys, values, strict=True):
                results.add({**key, "balanced_accuracy": value, "seconds": seconds})
            if report:
                place = f"{setting.dataset} {setting.n_real} {setting.seed}"
                report(f"{method.name:9s} {place:18s} {np.mean(values):6.2f} {seconds:7.2f} s")


def _generate(method: Generator, data: Split, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return new rows and labels, or None (said on stderr) where the method fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X, y = method.generate(data.X, data.y, new_counts(data.y), seed)
    except (ValueError, RuntimeError, np.linalg.LinAlgError) as error:
        print(f"{method.name} failed: {error}", file=sys.stderr)
        return None
    if not np.isfinite(X).all():
        print(f"{method.name} gave rows that are not finite numbers", file=sys.stderr)
        return None
    return X, y


def _accuracies(data: Split, made: tuple[np.ndarray, np.ndarray] | None, seed: int) -> list[float]:
    """Return the balanced accuracy in percent of each classifier (step 4)."""
    if made is None:
        return [float("nan")] * len(CLASSIFIERS)
    X, y = np.concatenate([data.X, made[0]]), np.concatenate([data.y, made[1]])
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in CLASSIFIERS:
            model = classifier(name, seed).fit(X, y)  # type: ignore[attr-defined]
            values.append(100 * balanced_accuracy_score(data.y_test, model.predict(data.X_test)))
    return values


def quoted() -> list[Row]:
    """Return the paper's values as rows of results; its average over classifiers is left out."""
    rows = [row for row in read_csv(_PAPER) if row["classifier"] in CLASSIFIERS]
    return [
        {**row, "options": "", "weights": "", "method": f"{row['method']}, paper"} for row in rows
    ]


def means(rows: Iterable[Row]) -> Means:
    """Return {label: {"all", each classifier, each table: mean}}, over settings all of them have.

    Seeds are averaged first, so that every setting counts once.
    """
    seeds: dict[tuple[str, str, str, str], list[float]] = {}
    for row in rows:
        place = (label(row), row["dataset"], row["n_real"], row["classifier"])
        seeds.setdefault(place, []).append(number(row["balanced_accuracy"]))
    flat = []
    for (name, dataset, _, kind), values in seeds.items():
        for cell in ("all", kind, dataset):
            flat.append(
                {"method": name, "options": "", "weights": "", "cell": cell}
                | {"value": str(np.mean(values))}
            )
    return collect(flat, "cell", "value")


def shared(rows: Sequence[Row], labels: Sequence[str]) -> list[Row]:
    """Return the rows of these methods in settings and seeds that all of them have."""
    where = places(rows)
    common = set.intersection(*(where.get(name, set()) for name in labels)) if labels else set()
    return [row for row in rows if label(row) in labels and _place(row) in common]


def places(rows: Iterable[Row]) -> dict[str, set[tuple[str, ...]]]:
    """Return the settings, seeds and classifiers that each method was measured with."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for row in rows:
        found.setdefault(label(row), set()).add(_place(row))
    return found


def _place(row: Row) -> tuple[str, ...]:
    return (row["dataset"], row["n_real"], row["seed"], row["classifier"])


def lines(rows: Sequence[Row], labels: Sequence[str]) -> list[str]:
    """Return mean balanced accuracies over the settings that all methods share, as text."""
    known = {label(row) for row in rows}
    ours = shared(rows, [name for name in labels if name in known])
    if not ours:
        return ["no setting has been measured with all of these methods"]
    settings = {(row["dataset"], row["n_real"]) for row in ours}
    paper = [row for row in quoted() if (row["dataset"], row["n_real"]) in settings]
    table = means([*ours, *paper])
    columns = [
        "all",
        *CLASSIFIERS,
        *(name for name in N_REAL if any(s[0] == name for s in settings)),
    ]
    seeds = len({row["seed"] for row in ours})
    head = f"balanced accuracy in percent, {len(settings)} settings, {seeds} seeds in common"
    notes = [f"{name}: {why}" for name, why in UNAVAILABLE.items()]
    return [head, *text_table(table, list(table), columns, "{:.2f}"), *notes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this benchmark knows to its command."""
    parser.add_argument("--data", default=os.environ.get("TABICED_DATA"), help="folder of tables")
    parser.add_argument("--datasets", nargs="+", choices=list(N_REAL), help="only these tables")
    parser.add_argument("--sizes", type=int, nargs="+", help="only these numbers of real rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)


def choose(options: argparse.Namespace) -> list[Generator]:
    """Return the methods named on the command line."""
    from tabiced.bench.ours import parse_options

    chosen = []
    for name in options.methods:
        if name == "ours":
            chosen.append(ours(parse_options(options.options), options.weights, options.device))
        elif name == "baselines":
            chosen += BASELINES.values()
        elif name in BASELINES:
            chosen.append(BASELINES[name])
        elif name in UNAVAILABLE:
            raise SystemExit(f"{name} cannot be run: {UNAVAILABLE[name]}")
        else:
            raise SystemExit(f"unknown method {name}; choose from ours, {', '.join(BASELINES)}")
    return chosen


def run(options: argparse.Namespace, report: Callable[[str], None] | None) -> None:
    """Measure what the command line asks for and print the means."""
    if not options.data:
        raise SystemExit("give the folder of the augmentation tables with --data or TABICED_DATA")
    methods, results = choose(options), open_results(options.out)
    todo = settings(options.data, options.seeds, options.datasets, options.sizes)

    def work(i: int, part: Results) -> None:
        measure(todo[i :: options.jobs], methods, part, options.force, report)

    side_by_side(options.jobs, results, work)
    results.sort()
    labels = [label(method.key) for method in methods]
    note_machine(options.out, labels, describe_machine(options.device))
    print("\n".join(lines(results.rows(), labels)))
