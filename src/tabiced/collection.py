"""Read and write collections of real tables of which it is known what people call anomalies there.

A collection is a file of tables with rules: which column tells normal rows from anomalies, and how.
`pretraining/collect.py` makes one, `tabiced.labelled` draws tasks from it.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tabiced.atomic import whole_file
from tabiced.tails import Tails

KEPT_NORMAL, KEPT_ANOMALIES = 2400, 600  # rows of a task that are read of its table
OUTLYING = 0.55  # AUROC by tails of columns alone that tables should have
HELD_OUT = 5  # one source in so many is kept for measuring

Labelled = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Normal rows and anomalies (rows, columns) by name: `SOURCE-PACKAGE-TABLE#NUMBER`, or less."""


@dataclass(frozen=True)
class Rule:
    """Which rows of a table are normal and which are anomalies, by a column that is taken away.

    Values of normal rows lie in `normal`, its ends included, those of anomalies outside `usual`.
    """

    column: int
    normal: tuple[float, float]
    usual: tuple[float, float]

    def split(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first normal rows and anomalies of a table (n, d) that have no gaps.

        Columns in which these normal rows do not differ are left out.
        """
        label, shown = cells[:, self.column], np.delete(cells, self.column, 1)
        complete = ~np.isnan(shown).any(1)
        low, high = self.normal
        normal = shown[complete & (label >= low) & (label <= high)][:KEPT_NORMAL]
        low, high = self.usual
        anomalies = shown[complete & ((label < low) | (label > high))][:KEPT_ANOMALIES]
        varies = (normal != normal[:1]).any(0)
        return normal[:, varies], anomalies[:, varies]


Ruled = Mapping[str, tuple[np.ndarray, list[Rule]]]
"""Tables (rows, columns) in random order, with the rules of their tasks, by name."""


def write_collection(path: str | os.PathLike[str], tables: Ruled) -> None:
    """Write a collection, atomically; the cells of a column lie together, which packs better."""
    rules = [
        (place, rule.column, *rule.normal, *rule.usual)
        for place, (_, several) in enumerate(tables.values())
        for rule in several
    ]
    content = io.BytesIO()
    np.savez(
        content,
        names=np.array(list(tables)),
        sizes=np.array([cells.shape for cells, _ in tables.values()]),
        rules=np.array(rules, float),
        cells=np.concatenate([cells.astype(np.float32).T.ravel() for cells, _ in tables.values()]),
    )
    with whole_file(Path(path)) as part:
        part.write_bytes(lzma.compress(content.getvalue()))


def read_collection(path: str | os.PathLike[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read what `write_collection` wrote, one entry for each rule."""
    try:
        with lzma.open(path) as file:
            stored = np.load(io.BytesIO(file.read()))
        names, sizes, rules, cells = (stored[k] for k in ("names", "sizes", "rules", "cells"))
    except (lzma.LZMAError, EOFError, KeyError, ValueError) as error:
        raise OSError(
            f"{os.fspath(path)} is no collection of tables, as pretraining/collect.py makes them."
        ) from error
    parts = np.split(cells, np.cumsum(sizes.prod(1))[:-1])
    tables = [part.reshape(d, n).T for part, (n, d) in zip(parts, sizes, strict=True)]
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    count = [0] * len(tables)
    for place, column, *ends in rules.tolist():
        i = int(place)
        rule = Rule(int(column), (ends[0], ends[1]), (ends[2], ends[3]))
        found[f"{names[i]}#{count[i]}"] = rule.split(tables[i])
        count[i] += 1
    return found


def outlyingness(normal: np.ndarray, anomalies: np.ndarray) -> float:
    """Return how often an anomaly lies further out in its columns than a normal row (AUROC).

    Below a half, anomalies lie inside: who learns from such tables to look there, unlearns what
    helps with others.
    """
    half = len(normal) // 2
    tails = Tails(normal[:half].astype(float))
    inner, outer = (
        tails(rows.astype(float), np.zeros(len(rows), bool)) for rows in (normal[half:], anomalies)
    )
    return float(0.5 + 0.5 * np.sign(inner[:, None] - outer).mean())


def is_held_out(name: str) -> bool:
    """Tell whether a table is kept for measuring, with all its tasks.

    Tables of one package are kept together: some are parts of each other.
    """
    package = "-".join(name.split("#")[0].split("-")[:2]).encode()
    return int(hashlib.md5(package, usedforsecurity=False).hexdigest(), 16) % HELD_OUT == 0
