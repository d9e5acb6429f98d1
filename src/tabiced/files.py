"""Tables on disk: CSV, Parquet and Arrow files, read whole and written all or nothing."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tabiced._extras import extra

with extra("cli"):
    import polars as pl

# How people write "missing" in text files.
MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"]

_read_text = partial(
    pl.read_csv, null_values=MISSING, infer_schema_length=None, try_parse_dates=True
)
_READERS: dict[str, Callable[..., pl.DataFrame]] = {
    ".csv": _read_text,
    ".tsv": partial(_read_text, separator="\t"),
    ".parquet": pl.read_parquet,
    ".arrow": pl.read_ipc,
    ".feather": pl.read_ipc,
}
_WRITERS: dict[str, Callable[..., object]] = {
    ".csv": pl.DataFrame.write_csv,
    ".tsv": partial(pl.DataFrame.write_csv, separator="\t"),
    ".parquet": pl.DataFrame.write_parquet,
    ".arrow": pl.DataFrame.write_ipc,
    ".feather": pl.DataFrame.write_ipc,
}

TABLES = tuple(_READERS)
PICTURES = (".png", ".svg", ".pdf")


class TableFileError(ValueError):
    """A file that cannot be read as a table, or a place that cannot be written to."""


def load_table(path: Path) -> pl.DataFrame:
    """Read a table, its format told by the file's ending.

    Raises `TableFileError` with one line that says what is wrong with the file.
    """
    reader = _READERS[_ending(path, TABLES)]
    if not path.exists():
        raise TableFileError(f"no such file: {path}")
    if not path.is_file():
        raise TableFileError(f"not a file: {path}")
    if path.stat().st_size == 0:
        raise TableFileError(f"{path} is empty")
    try:
        frame = reader(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise TableFileError(f"cannot read {path}: {reason}") from error
    if frame.is_empty():
        raise TableFileError(f"{path} has no rows")
    return frame


def save_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a table, its format told by the file's ending; the file appears whole or not at all."""
    writer = _WRITERS[_ending(path, TABLES)]
    with whole_file(path) as part:
        try:
            writer(frame, part)
        except pl.exceptions.PolarsError as error:
            reason = str(error).strip().partition("\n")[0]
            raise TableFileError(f"cannot write {path}: {reason}") from error


def check_output(path: Path, endings: Collection[str] = TABLES) -> None:
    """Refuse an output path before the work starts rather than after it."""
    _ending(path, endings)
    if path.is_dir():
        raise TableFileError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise TableFileError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise TableFileError(f"cannot write {path}: no permission to write in {path.parent}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it on success and vanishes on failure."""
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        raise TableFileError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _ending(path: Path, endings: Collection[str]) -> str:
    """Return the file's ending in lower case if it is one of those wanted."""
    ending = path.suffix.lower()
    if ending not in endings:
        raise TableFileError(
            f"cannot tell the format of {path}: use a file ending in {', '.join(endings)}"
        )
    return ending
