"""Tables on disk: CSV, Parquet and Arrow files, read in batches and written all or nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from tabiced._extras import extra
from tabiced.atomic import whole_file
from tabiced.text_files import TEXT_FILES, RaggedFileError, ragged_line, read_text, scan_text

with extra("cli"):
    import polars as pl

BATCH_ROWS = 8192


_SCANNERS: dict[str, Callable[[Path], pl.LazyFrame]] = {
    ".csv": scan_text,
    ".tsv": scan_text,
    ".parquet": partial(pl.scan_parquet, glob=False),
    ".arrow": partial(pl.scan_ipc, glob=False),
    ".feather": partial(pl.scan_ipc, glob=False),
}
_WRITERS: dict[str, Callable[..., object]] = {
    ".csv": pl.LazyFrame.sink_csv,
    ".tsv": partial(pl.LazyFrame.sink_csv, separator="\t"),
    ".parquet": pl.LazyFrame.sink_parquet,
    ".arrow": pl.LazyFrame.sink_ipc,
    ".feather": pl.LazyFrame.sink_ipc,
}

TABLES = tuple(_SCANNERS)
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")


class TableFileError(ValueError):
    """A file that cannot be read as a table, or a place that cannot be written to."""


class TableFile:
    """A table in a file, of which only a part is in memory at any time."""

    def __init__(self, path: Path):
        """Look at a file, its format told by its ending.

        Raises `TableFileError` with one line that says what is wrong with the file.
        """
        scan = _SCANNERS[_ending(path, TABLES)]
        if not path.exists():
            raise TableFileError(f"no such file: {path}")
        if not path.is_file():
            raise TableFileError(f"not a file: {path}")
        if path.stat().st_size == 0:
            raise TableFileError(f"{path} is empty")
        self.path = path
        with self._reading():
            self.lazy = scan(path)
            self.schema = self.lazy.collect_schema()
        self.columns = self.schema.names()
        if self.height == 0:
            raise TableFileError(f"{path} has no rows")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except RaggedFileError as error:
            raise TableFileError(f"cannot read {self.path}: {error}") from error
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            reason = ragged_line(self.path) or _reason(error)
            raise TableFileError(f"cannot read {self.path}: {reason}") from error

    @cached_property
    def height(self) -> int:
        with self._reading():
            return int(self.lazy.select(pl.len()).collect(engine="streaming").item())

    def collect(self) -> pl.DataFrame:
        """Return the whole table."""
        with self._reading():
            return self.lazy.collect()

    def batches(self, size: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, at most `size` at a time."""
        with self._reading():
            if self.path.suffix.lower() in TEXT_FILES:
                for piece in read_text(self.path, self.schema):
                    yield from piece.iter_slices(size)
            else:
                yield from self.lazy.collect_batches(chunk_size=size, maintain_order=True)

    def sample(self, most: int) -> pl.DataFrame:
        """Return all rows, or `most` of them chosen at random; the same ones every time."""
        if self.height <= most:
            return self.collect()
        chosen = np.random.default_rng(0).choice(self.height, most, replace=False)
        return self.rows(np.sort(chosen))

    def rows(self, numbers: Sequence[int] | np.ndarray) -> pl.DataFrame:
        """Return some rows by number, in the order of the numbers."""
        wanted, place = np.unique(np.asarray(numbers, dtype=np.int64), return_inverse=True)
        parts, start = [], 0
        for batch in self.batches():
            low, high = np.searchsorted(wanted, [start, start + batch.height])
            if low < high:
                parts.append(_compact(batch[wanted[low:high] - start]))
            start += batch.height
        return pl.concat(parts)[place]

    def save_with(self, added: pl.DataFrame, path: Path) -> None:
        """Write the table with columns added to a file."""
        _save(pl.concat([self.lazy, added.lazy()], how="horizontal"), path)


def load_table(path: Path) -> pl.DataFrame:
    """Read a whole table."""
    return TableFile(path).collect()


def save_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a table, its format told by the file's ending; the file appears whole or not at all."""
    _save(frame.lazy(), path)


def _save(lazy: pl.LazyFrame, path: Path) -> None:
    writer = _WRITERS[_ending(path, TABLES)]
    with whole_file(path) as part:
        try:
            writer(lazy, part)
        except pl.exceptions.PolarsError as error:
            raise TableFileError(f"cannot write {path}: {_reason(error)}") from error


def check_output(path: Path, endings: Collection[str] = TABLES) -> None:
    """Refuse an output path before the work starts rather than after it."""
    _ending(path, endings)
    if path.is_dir():
        raise TableFileError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise TableFileError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise TableFileError(f"cannot write {path}: no permission to write in {path.parent}")


def _reason(error: BaseException) -> str:
    reason = str(error).strip().partition("\n")[0]
    if "invalid utf-8" in reason:
        return (
            "its text is not UTF-8. Save it as UTF-8, for example by "
            "`iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`"
        )
    return reason or type(error).__name__


def _compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy a few rows: text cells would otherwise keep alive all that they were taken from."""
    buffer = frame.write_ipc(None, compat_level=pl.CompatLevel.oldest())
    return pl.read_ipc(io.BytesIO(buffer.getvalue())).cast(frame.schema)


def _ending(path: Path, endings: Collection[str]) -> str:
    """Return the file's ending in lower case if it is one of those wanted."""
    ending = path.suffix.lower()
    if ending not in endings:
        raise TableFileError(
            f"cannot tell the format of {path}: use a file ending in {', '.join(endings)}"
        )
    return ending
