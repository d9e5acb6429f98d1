"""ADBench under the paper's protocol: 47 tables, a clean and a contaminated context, seeds 0 to 4.

For each table and seed, all drawn in this order from `RandomState(seed)`:

1. Size: below 1,000 rows, draw 1,000 with replacement; above 10,000, draw 10,000 without.
2. Split. `anomaly`: a stratified 70/30 split, the context keeps its anomalies. `ood`: the context
   is int(0.7 n) permuted normal rows (int(0.6 n) where the normals do not suffice), the query is
   the other normal rows and every anomaly.
3. Scale each column to [0, 1] over the context; the query is not clipped.

Drawing small tables up puts copies of query rows into the context, which rewards memory. The
protocol `no-resample` leaves them as they are; it has tasks for these tables only, since the others
are the same under both.

    python -m tabiced.bench adbench --data FOLDER --methods ours KNN ECOD
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from tabiced.bench import classical
from tabiced.bench.methods import Method
from tabiced.bench.neural import neural
from tabiced.bench.outlier import DETECTORS, detector
from tabiced.bench.results import Results
from tabiced.bench.tasks import DETECTION_VALUES, METHOD_KEY, Data, Task, read_pack

SETTINGS = ("ood", "anomaly")
PROTOCOLS = ("paper", "no-resample")
SEEDS = (0, 1, 2, 3, 4)
LEAST_ROWS, MOST_ROWS = 1_000, 10_000
CLEAN_SHARES = (0.7, 0.6)
KEY = ("protocol", "setting", "idx", "dataset", "seed", *METHOD_KEY)

BASELINES: dict[str, Method] = {
    method.name: method
    for method in (
        *(Method(name, detector(name)) for name in DETECTORS),
        Method("GMM", classical.gmm(10)),
        Method("KDE", classical.kde),
        Method("MAF", neural("MAF")),
        Method("NVP", neural("RealNVP")),
        Method("VAE", neural("VAE")),
    )
}


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, DETECTION_VALUES)


def split(
    anomalous: np.ndarray, seed: int, setting: str, protocol: str = "paper"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers of the context and of the query (steps 1 and 2)."""
    if setting not in SETTINGS or protocol not in PROTOCOLS:
        raise ValueError(f"setting is one of {SETTINGS}, protocol one of {PROTOCOLS}")
    draw = np.random.RandomState(seed)
    rows = np.arange(len(anomalous))
    if len(rows) < LEAST_ROWS and protocol == "paper":
        rows = draw.choice(len(rows), LEAST_ROWS, replace=True)
    elif len(rows) > MOST_ROWS:
        rows = draw.choice(len(rows), MOST_ROWS, replace=False)
    if setting == "anomaly":
        context, query = train_test_split(
            rows, test_size=0.3, stratify=anomalous[rows], random_state=draw
        )
        return context, query
    normal, odd = rows[anomalous[rows] == 0], rows[anomalous[rows] == 1]
    normal = normal[draw.permutation(len(normal))]
    for share in CLEAN_SHARES:
        if int(share * len(rows)) < len(normal):
            n = int(share * len(rows))
            return normal[:n], np.concatenate([normal[n:], odd])
    raise ValueError(f"{len(normal)} normal rows of {len(rows)} are too few for a clean context")


def scaled(X: np.ndarray, y: np.ndarray, context: np.ndarray, query: np.ndarray) -> Data:
    """Return the rows of a task, scaled by the context (step 3)."""
    scaler = MinMaxScaler().fit(X[context])
    return Data(scaler.transform(X[context]), scaler.transform(X[query]), y[query])


def find_tables(folder: str | os.PathLike[str]) -> dict[int, Path]:
    """Return {index: file} for the files of a folder that are named like 14_glass.npz."""
    files = [p for p in Path(folder).glob("*_*.npz") if p.name.split("_", 1)[0].isdigit()]
    if not files:
        raise FileNotFoundError(
            f"no ADBench tables (1_ALOI.npz ... 47_yeast.npz) in {folder}; give the folder with "
            "--data or in the variable TABICED_DATA"
        )
    return dict(sorted((int(p.name.split("_", 1)[0]), p) for p in files))


def smallest_tables(place: str | os.PathLike[str], count: int) -> list[int]:
    """Return the indices of the smallest tables of a folder or pack, stand-ins left out."""
    if Path(place).is_dir():
        files = find_tables(place).items()
        sizes = {idx: path.stat().st_size for idx, path in files if not is_stand_in(path)}
    else:
        arrays = read_pack(place).items()
        sizes = {int(key.split("_", 1)[0]): a.size for key, a in arrays if key.endswith("/X")}
    return sorted(sizes, key=lambda idx: sizes[idx])[:count]


def read_table(path: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (float64) and labels (1 = anomaly) of an ADBench file."""
    with np.load(path) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.int64).ravel()
    if X.ndim != 2 or len(X) != len(y) or not set(np.unique(y)) <= {0, 1}:
        raise ValueError(f"{path} is not an ADBench table: X (rows, columns) and y in 0, 1")
    return X, y


def is_stand_in(path: Path) -> bool:
    """Tell a table that replaces ADBench's own by another sample (13_fraud.sub14k): in no mean."""
    return "." in path.stem and not path.stem.endswith(("magic.gamma",))


def _chosen(
    folder: str | os.PathLike[str], protocol: str, only: Sequence[int] | None
) -> Iterator[tuple[int, Path]]:
    for idx, path in find_tables(folder).items():
        if is_stand_in(path) or (only is not None and idx not in only):
            continue
        with np.load(path) as file:
            if protocol == "paper" or file["y"].size < LEAST_ROWS:
                yield idx, path


def folder_tasks(
    folder: str | os.PathLike[str],
    seeds: Sequence[int] = SEEDS,
    settings: Sequence[str] = SETTINGS,
    protocol: str = "paper",
    only: Sequence[int] | None = None,
) -> Iterator[Task]:
    """Yield the tasks of the tables in a folder."""
    for idx, path in _chosen(folder, protocol, only):
        name = path.stem.split("_", 1)[1]
        table_of = lru_cache(maxsize=1)(read_table)
        for setting in settings:
            for seed in seeds:
                load = partial(_load, table_of, path, seed, setting, protocol)
                yield Task(_key(protocol, setting, idx, name, seed), load)


def _load(
    table_of: Callable[[Path], tuple[np.ndarray, np.ndarray]],
    path: Path,
    seed: int,
    setting: str,
    protocol: str,
) -> Data:
    X, y = table_of(path)
    return scaled(X, y, *split(y, seed, setting, protocol))


def _key(protocol: str, setting: str, idx: int, name: str, seed: int) -> dict[str, object]:
    values = (protocol, setting, idx, name, seed)
    return dict(zip(("protocol", "setting", "idx", "dataset", "seed"), values, strict=True))


def write_pack(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    seeds: Sequence[int] = SEEDS,
    protocol: str = "paper",
    only: Sequence[int] | None = None,
) -> None:
    """Write the tasks of these seeds into one npz file that holds no row they do not use.

    Keys: `TABLE/X`, `TABLE/y`, and row numbers `TABLE/SEED/SETTING/context` and `.../query`.
    """
    arrays: dict[str, np.ndarray] = {"protocol": np.array(protocol)}
    for _, file in _chosen(folder, protocol, only):
        X, y = read_table(file)
        parts: dict[str, np.ndarray] = {}
        for seed in seeds:
            for setting in SETTINGS:
                context, query = split(y, seed, setting, protocol)
                parts[f"{seed}/{setting}/context"] = context
                parts[f"{seed}/{setting}/query"] = query
        used = np.unique(np.concatenate(list(parts.values())))
        arrays[f"{file.stem}/X"], arrays[f"{file.stem}/y"] = _smallest(X[used]), y[used]
        for name, rows in parts.items():
            numbers = np.searchsorted(used, rows).astype(np.min_scalar_type(len(used)))
            arrays[f"{file.stem}/{name}"] = numbers
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _smallest(X: np.ndarray) -> np.ndarray:
    """Return the values in the smallest type that holds them exactly."""
    for dtype in (np.uint8, np.int16, np.int32, np.float32):
        with np.errstate(invalid="ignore", over="ignore"):
            smaller = X.astype(dtype)
        if (smaller == X).all():
            return smaller
    return X


def pack_tasks(
    path: str | os.PathLike[str],
    seeds: Sequence[int] = SEEDS,
    settings: Sequence[str] = SETTINGS,
    only: Sequence[int] | None = None,
) -> Iterator[Task]:
    """Yield the tasks of a pack written by `write_pack`."""
    pack = read_pack(path)
    names = [key.split("/") for key in pack if key.endswith("/context")]
    protocol = str(pack["protocol"]) if "protocol" in pack else "paper"

    @lru_cache(maxsize=1)  # the tasks of a table follow one another
    def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
        return pack[f"{name}/X"].astype(np.float64), pack[f"{name}/y"].astype(np.int64)

    def load(table: str, seed: str, setting: str) -> Data:
        start = f"{table}/{seed}/{setting}"
        return scaled(*table_of(table), pack[f"{start}/context"], pack[f"{start}/query"])

    for table, seed, setting, _ in names:
        idx, name = table.split("_", 1)
        if (only is None or int(idx) in only) and int(seed) in seeds and setting in settings:
            key = _key(protocol, setting, int(idx), name, int(seed))
            yield Task(key, partial(load, table, seed, setting))
