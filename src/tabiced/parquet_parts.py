"""Cut Parquet files into parts of some rows that workers can read without each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tabiced._extras import extra

with extra("ray"):
    import pyarrow as pa
    import pyarrow.parquet as pq

READ_ROWS = 8192


@dataclass(frozen=True)
class Part:
    """Some consecutive rows of a file; parts are numbered in the order of all rows."""

    number: int
    path: str
    start: int
    rows: int


def find_files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return Parquet files in the order given; a folder stands for its files by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.glob("*.parquet"))
            if not inside:
                raise ValueError(f"{path} has no file that ends in .parquet")
            found += inside
        elif not path.exists():
            raise ValueError(f"no such file: {path}")
        elif path.suffix.lower() != ".parquet":
            raise ValueError(f"{path} is no Parquet file: only these are read by Ray's workers")
        else:
            found.append(path)
    if not found:
        raise ValueError("no Parquet file to score")
    return [path.resolve() for path in found]  # workers may have another working directory


def read_footers(files: Sequence[Path]) -> tuple[dict[Path, int], pa.Schema]:
    """Return the rows of each file and the schema, which all files must share."""
    rows: dict[Path, int] = {}
    first: pa.Schema | None = None
    for path in files:
        with _reading(path):
            footer = pq.read_metadata(path)
            schema = footer.schema.to_arrow_schema().remove_metadata()
        if first is not None and not schema.equals(first):
            mine, others = set(schema), set(first)
            name = sorted(column.name for column in mine ^ others or mine)[0]
            raise ValueError(
                f"{path} has other columns than {files[0]}, or other types; the first is {name!r}"
            )
        first = first or schema
        rows[path] = footer.num_rows
    if not any(rows.values()):
        raise ValueError(f"{files[0]} has no rows" if len(files) == 1 else "the files have no rows")
    return rows, first


def cut(rows: dict[Path, int], size: int) -> list[Part]:
    """Cut files of so many rows into parts of `size` rows, or fewer at the end of a file.

    >>> [(part.start, part.rows) for part in cut({Path("a"): 5, Path("b"): 2}, 3)]
    [(0, 3), (3, 2), (0, 2)]
    """
    places = [(path, start) for path, count in rows.items() for start in range(0, count, size)]
    return [
        Part(number, str(path), start, min(size, rows[path] - start))
        for number, (path, start) in enumerate(places)
    ]


def read_part(part: Part) -> pa.Table:
    """Read the rows of a part; of the file, only the row groups that hold some are read."""
    with _reading(part.path), pq.ParquetFile(part.path) as file:
        groups: list[int] = []
        first = before = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if before + count > part.start and before < part.start + part.rows:
                first = first if groups else before
                groups.append(group)
            before += count
        skip, left, batches = part.start - first, part.rows, []
        # Batch by batch: a row group may be far larger than the part.
        for batch in file.iter_batches(READ_ROWS, row_groups=groups, use_threads=False):
            taken = batch.slice(skip, left)
            skip -= min(skip, batch.num_rows)
            left -= taken.num_rows
            batches.append(taken)
            if left == 0:
                break
        return pa.Table.from_batches(batches, schema=file.schema_arrow)


def check_folder(out: str | os.PathLike[str]) -> Path:
    """Refuse an output folder before the work starts rather than after it."""
    target = Path(out).absolute()
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"cannot write {out}: the folder exists and is not empty")
    if target.exists() and not target.is_dir():
        raise ValueError(f"cannot write {out}: it is a file, and a folder is needed")
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {out}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"cannot write {out}: no permission to write in {target.parent}")
    return target


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"cannot read {path}: {reason}") from error
