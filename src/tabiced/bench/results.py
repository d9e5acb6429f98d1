"""Store results as CSV files to which interrupted runs return."""

import copy
import csv
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tabiced.atomic import whole_file

Row = dict[str, str]


class Results:
    """A benchmark's rows in a CSV file: `key` columns say what was measured, the others how well.

    A row is on disk as soon as `add` returns. A row with the key of an earlier one replaces it.
    Processes that work side by side write to parts, files of their own, which `absorb` takes in.
    """

    def __init__(self, path: str | os.PathLike[str], key: Sequence[str], values: Sequence[str]):
        self.path, self.key, self.fields = Path(path), tuple(key), (*key, *values)
        self._elsewhere: dict[tuple[str, ...], Row] = {}  # known rows that another file has
        self._rows = self._read(self.path)

    def _read(self, path: Path) -> dict[tuple[str, ...], Row]:
        rows = {}
        for row in read_csv(path) if path.exists() else []:
            if tuple(row) != self.fields:
                raise ValueError(
                    f"{path} has the columns {', '.join(row)}; expected "
                    f"{', '.join(self.fields)}. Choose another --out file."
                )
            rows[self._identity(row)] = row
        return rows

    def part(self, number: int) -> Self:
        """Return results that know the rows of these, but write new ones to a file of their own."""
        part = copy.copy(self)
        # Not among its own: those it writes out would replace what other parts measure anew.
        part._rows, part._elsewhere = {}, dict(self._rows)
        part.path = self.path.with_suffix(f".part{number}.csv")
        return part

    def absorb(self) -> None:
        """Take in and remove all parts, those of an interrupted run as well."""
        parts = sorted(self.path.parent.glob(f"{self.path.stem}.part*.csv"))
        for path in parts:
            self._rows |= self._read(path)
        if parts:
            self._rewrite()
        for path in parts:
            path.unlink()

    def _identity(self, row: Mapping[str, object]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.key)

    def __contains__(self, key: Mapping[str, object]) -> bool:
        return self.get(key) is not None

    def get(self, key: Mapping[str, object]) -> Row | None:
        identity = self._identity(key)
        return self._rows.get(identity) or self._elsewhere.get(identity)

    def rows(self) -> list[Row]:
        return list((self._elsewhere | self._rows).values())

    def add(self, row: Mapping[str, object]) -> None:
        """Write the row; numbers are stored with seven digits."""
        text = {name: _text(row[name]) for name in self.fields}
        replaces = self._identity(text) in self._rows
        self._rows[self._identity(text)] = text
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if replaces:
            self._rewrite()
            return
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.fields, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(text)

    def discard(self, unwanted: Callable[[Row], bool]) -> int:
        """Remove rows from the file; return how many."""
        kept = {key: row for key, row in self._rows.items() if not unwanted(row)}
        gone = len(self._rows) - len(kept)
        if gone:
            self._rows = kept
            self._write()
        return gone

    def sort(self) -> None:
        """Put the file into a fixed order, so that reruns give small differences."""
        self._rewrite()
        order = sorted(self._rows, key=lambda identity: [*map(_natural, identity)])
        self._rows = {identity: self._rows[identity] for identity in order}
        self._write()

    def _rewrite(self) -> None:
        self._rows = self._read(self.path) | self._rows  # another run may have added rows meanwhile
        self._write()

    def _write(self) -> None:
        draft = self.path.with_suffix(".tmp")
        with draft.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows.values())
        draft.replace(self.path)


def _natural(text: str) -> tuple[float, str]:
    return (float(text), "") if text.isdigit() else (float("inf"), text)


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    return str(value)


def number(text: str) -> float:
    """Read a stored number; an empty cell (the method failed) is NaN."""
    return float(text) if text else float("nan")


def read_csv(path: str | os.PathLike[str]) -> list[Row]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def describe_machine(device: str = "cpu") -> str:
    """Say in one line what kind of machine a result came from, without naming it."""
    import torch

    parts = [f"{os.cpu_count()} {platform.machine()} cores", platform.system()]
    if device.startswith("cuda") and torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name(device))
    parts += [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    return ", ".join(parts)


def note_machine(path: str | os.PathLike[str], labels: Iterable[str], machine: str) -> None:
    """Remember beside a results file on which machine each method was last run."""
    side = Path(path).with_suffix(".machines.json")
    known = json.loads(side.read_text()) if side.exists() else {}
    known.update({label: machine for label in labels})
    side.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def write_section(page: Path, text: str, mark: str = "measured") -> None:
    """Put text between `<!-- mark -->` and the next `<!-- end -->` of a Markdown page."""
    section = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    told, count = section.subn(lambda m: f"{m[1]}\n{text}\n{m[2]}", page.read_text())
    if count != 1:
        raise ValueError(f"{page} needs one section between <!-- {mark} --> and <!-- end -->.")
    with whole_file(page) as part:
        part.write_text(told)
