"""Score tables of any size on a Ray cluster.

    from tabiced.ray import score_dataset, score_parquet

    score_parquet(["big"], reference, "scored")  # Parquet files to a folder of Parquet files
    score_dataset(ray.data.read_parquet("big"), reference)  # a Ray dataset to another

The reference is read and calibrated once, by the caller. Workers take it from Ray's object store
when they start, read the context once and keep it; nothing of the model travels with the rows. A
worker that dies is started again, and what it was working on is scored again.

Needs `pip install 'tabiced[ray]'`.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from tabiced._extras import extra
from tabiced.atomic import whole_file
from tabiced.calibration import p_values
from tabiced.contexts import network_on, tile_rows
from tabiced.estimator import ICED
from tabiced.parquet_parts import Part, check_folder, cut, find_files, read_footers, read_part
from tabiced.reference import Reference

with extra("ray"):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
    import ray.data

ADDED = ("energy", "p_value")
LEVELS = (0.01, 0.05)  # p-values counted in the summary
BATCH_ROWS = 8192  # of a dataset, scored in one task: what is done again when a worker dies
TASKS_PER_WORKER = 8  # so that no worker waits long for the last one
PART_ROWS, MOST_PART = 2048, 65_536  # an output file has a multiple of these, up to those

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass
class Summary:
    """What `score_parquet` wrote: rows, files, and how many rows have a p-value so small."""

    rows: int = 0
    files: int = 0
    unusual: dict[float, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))


def score_dataset(
    dataset: ray.data.Dataset | Paths,
    reference: Any,
    *,
    ignore: Collection[str] = (),
    concurrency: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float = 0,
) -> ray.data.Dataset:
    """Return the dataset with the columns `energy` and `p_value` added; lazy, as datasets are.

    All columns stay, so a key column tells which row is which. The order of the rows is Ray's to
    choose; `score_parquet` keeps it.

    Parameters
    ----------
    dataset : ray.data.Dataset, or path(s) of Parquet files
        Rows to score, with the columns of the reference.
    reference : table or fitted ICED
        A table is fitted with the default parameters; for others pass a fitted estimator.
    ignore : names of columns, default=()
        Kept in the output, not judged.
    concurrency : int, optional
        Number of workers. By default as many as the cluster has room for, with one CPU left to
        the tasks that read the dataset: they would wait forever if workers held them all.
    cpus_per_worker, gpus_per_worker : int, float
        What a worker reserves: its number of threads, and whether it computes on a GPU.
    """
    _check_counts(concurrency, cpus_per_worker, gpus_per_worker)
    model = _fitted(reference, ignore)
    connect()
    if not isinstance(dataset, ray.data.Dataset):
        dataset = ray.data.read_parquet([str(path) for path in find_files(_listed(dataset))])
    _refuse_taken(dataset.columns() or [], "the dataset")
    workers = concurrency or _room(cpus_per_worker, gpus_per_worker, spare=1)
    # Ray's blocks are sized in bytes, but a row costs milliseconds: deal the work out by rows.
    return dataset.repartition(target_num_rows_per_block=BATCH_ROWS).map_batches(
        Scorer,
        fn_constructor_args=(_ship(model), tuple(ignore), cpus_per_worker, gpus_per_worker > 0),
        batch_format="pyarrow",
        batch_size=BATCH_ROWS,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=cpus_per_worker,
        num_gpus=gpus_per_worker,
    )


def score_parquet(
    paths: Paths,
    reference: Any,
    out: str | os.PathLike[str],
    *,
    ignore: Collection[str] = (),
    concurrency: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float = 0,
    part_rows: int | None = None,
    report: Callable[[int, int], object] = lambda done, rows: None,
) -> Summary:
    """Write the rows of Parquet files, with `energy` and `p_value`, to a folder of such files.

    Rows keep their order: the files as given (a folder's by name), and those of the output by
    name. The folder appears when all is written, or not at all. All workers must see the paths.

    `part_rows` sets the rows of an output file, by default some thousands; `report` is called with
    the rows done and the rows in all. Other parameters as for `score_dataset`, except that workers
    may have all CPUs: they read and write for themselves.
    """
    _check_counts(concurrency, cpus_per_worker, gpus_per_worker)
    target = check_folder(out)
    files, schema = read_footers(find_files(_listed(paths)))
    _refuse_taken(schema.names, str(next(iter(files))))
    model = _fitted(reference, ignore)
    first = next(path for path, count in files.items() if count)
    row = read_part(Part(0, str(first), 0, 1))
    model.score_samples(_judged(row, ignore))  # refuses other columns before Ray starts
    with _whole_folder(target) as folder, _connected():
        workers, rows = concurrency or _room(cpus_per_worker, gpus_per_worker), sum(files.values())
        even = -(-rows // (TASKS_PER_WORKER * workers * PART_ROWS)) * PART_ROWS
        parts = cut(files, part_rows or min(even, MOST_PART))
        workers = min(workers, len(parts))
        answers = ray.data.from_items(
            [asdict(part) for part in parts], override_num_blocks=len(parts)
        ).map_batches(
            PartScorer,
            fn_constructor_args=(_ship(model), tuple(ignore), cpus_per_worker, gpus_per_worker > 0),
            fn_constructor_kwargs={"folder": str(folder)},
            batch_format="pyarrow",
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=cpus_per_worker,
            num_gpus=gpus_per_worker,
        )
        return _gather(answers, rows, report)


class Scorer:
    """One worker: a model that is read once, and scores batch after batch."""

    def __init__(
        self, shipped: Any, ignore: Collection[str], threads: int, gpu: bool, folder: str = ""
    ):
        """Take the model from the object store and read its context."""
        torch.set_num_threads(threads)
        pa.set_cpu_count(threads)
        self.model, network, judged = ray.get(shipped)
        self.ignore, self.folder = ignore, Path(folder)
        reference = self.model.reference_
        if reference is not None:
            reference.reader.weights = network
            # Ray shows a worker no other GPU than its own.
            _move(self.model, reference, "cuda:0" if gpu else "cpu")
            reference.judged = judged
            reference.read()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Add the columns to some rows."""
        if batch.num_rows == 0:  # empty files and filters leave such blocks
            added = (np.empty(0), np.empty(0))
        else:
            energy = self.model.score_samples(_judged(batch, self.ignore))
            added = energy, p_values(energy, self.model._calibration())
        for name, values in zip(ADDED, added, strict=True):
            batch = batch.append_column(name, pa.array(values, pa.float64()))
        return batch


class PartScorer(Scorer):
    """A worker that also reads and writes: only the addresses of rows travel."""

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Score one part and write it to the file of its number; say how it went.

        Findings about the table are returned, not raised: Ray would wrap an error in its own.
        """
        part = Part(**batch.to_pylist()[0])
        answer: dict[str, Any] = {"rows": 0, "counts": [0] * len(LEVELS), "kind": "", "error": ""}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                scored = super().__call__(read_part(part))
                with whole_file(self.folder / f"part-{part.number:07}.parquet") as path:
                    pq.write_table(scored, path)
                p = scored["p_value"].to_numpy()
                answer |= {"rows": len(p), "counts": [int((p <= a).sum()) for a in LEVELS]}
            except (ValueError, TypeError, OSError) as error:
                answer |= {"kind": type(error).__name__, "error": f"{_where(part)}{error}"}
        notes = [str(note.message) for note in caught if note.category is UserWarning]
        answer["notes"] = [f"{_where(part)}{note}" for note in dict.fromkeys(notes)]
        types = {"notes": pa.list_(pa.string()), "counts": pa.list_(pa.int64())}
        types |= {"rows": pa.int64(), "kind": pa.string(), "error": pa.string()}
        return pa.Table.from_pylist([answer], schema=pa.schema(types))


def connect() -> bool:
    """Make sure that Ray runs; return whether this connected to a cluster or started one.

    A cluster that is initialised is taken as it is. Else Ray looks for a running one (its address
    may be in RAY_ADDRESS) and starts one on this machine if there is none, without its dashboard
    and without the statistics that Ray would send home.
    """
    if ray.is_initialized():
        return False
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's core warns on stderr that workers could not be started again if their arguments were
    # lost. They are not: the dataset holds them.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    with _silent_core():
        ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return True


@contextmanager
def _silent_core() -> Iterator[None]:
    """Close stderr to code that is not Python's: Ray's core tells there which log level it has."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _connected() -> Iterator[None]:
    mine = connect()
    try:
        yield
    finally:
        if mine:
            ray.shutdown()


def _fitted(reference: Any, ignore: Collection[str]) -> ICED:
    if isinstance(reference, ICED):
        check_is_fitted(reference)
        return reference
    if ignore and hasattr(reference, "columns"):
        import narwhals as nw

        reference = nw.from_native(reference).drop(list(ignore), strict=False).to_native()
    return ICED().fit(reference)


def _ship(model: ICED) -> ray.ObjectRef:
    """Put into the object store the model and what its pickle leaves out: network, calibration.

    So workers need no file of weights, and do not calibrate again.
    """
    model._calibration()
    judged = None if model.reference_ is None else model.reference_.judged
    return ray.put((model, network_on(model.weights, "cpu"), judged))


def _move(model: ICED, reference: Reference, device: str) -> None:
    """Let a model that was fitted on one device compute on another."""
    reader = reference.reader
    if reader.device == device:
        return
    model.device_ = reader.device = device
    widest = max(len(view.columns) for view in reader.views)
    rows, config = len(reference.matrix), reader.network.config
    reader.tile = tile_rows(config, device, rows, widest, reader.memory)


def _gather(answers: ray.data.Dataset, rows: int, report: Callable[[int, int], object]) -> Summary:
    """Collect the workers' answers as they come; raise what they found wrong."""
    answers.context.enable_progress_bars = False
    answers.context.print_on_execution_start = False
    summary = Summary()
    kinds = {kind.__name__: kind for kind in (TypeError, OSError)}
    try:
        for answer in answers.iter_rows():
            for note in answer["notes"]:
                warnings.warn(note, UserWarning, stacklevel=3)
            if answer["error"]:
                raise kinds.get(answer["kind"], ValueError)(answer["error"])
            summary.rows += answer["rows"]
            summary.files += 1
            for level, count in zip(LEVELS, answer["counts"], strict=True):
                summary.unusual[level] += count
            report(summary.rows, rows)
    except ray.exceptions.RayError as error:
        raise OSError(f"Ray failed: {str(error).strip().splitlines()[-1]}") from error
    if summary.rows != rows:
        raise OSError(f"Ray lost rows: {summary.rows} of {rows} were scored")
    return summary


@contextmanager
def _whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that becomes it on success, else vanishes."""
    folder = target.with_name(f".{target.name}.{os.getpid()}")
    folder.mkdir()
    try:
        yield folder
        for rest in folder.glob(".*"):  # half a file of a worker that died
            rest.unlink()
        os.rename(folder, target)  # an empty folder may be there
    finally:
        for _ in range(100):  # after an error, workers may be writing for another moment
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)


def _where(part: Part) -> str:
    return f"{part.path}, counting from row {part.start}: "


def _judged(table: pa.Table, ignore: Collection[str]) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name in ignore])


def _listed(paths: Paths) -> Sequence[str | os.PathLike[str]]:
    return [paths] if isinstance(paths, str | os.PathLike) else paths


def _room(cpus: int, gpus: float, spare: int = 0) -> int:
    """Return for how many workers the cluster has room, at least one."""
    found = ray.cluster_resources()
    room = (found.get("CPU", 1) - spare) / cpus
    return max(1, int(min(room, found.get("GPU", 0) / gpus) if gpus else room))


def _refuse_taken(columns: Collection[str], owner: str) -> None:
    for name in ADDED:
        if name in columns:
            raise ValueError(f"{owner} already has a column {name!r}: rename it")


def _check_counts(concurrency: int | None, cpus: int, gpus: float) -> None:
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, got {concurrency}.")
    if cpus < 1 or gpus < 0:
        raise ValueError("a worker needs at least one CPU, and no negative number of GPUs.")
