"""Judge rows by reference rows, always by a context that the judged row is not part of.

Rows that equal no reference row are scored against all of the reference. A row that does equal one
is scored against a context from which that row was left out, together with the rest of its fold. So
reference rows and new rows get comparable energies, no row vouches for itself, and the energies of
the reference rows calibrate p-values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tabiced.contexts import Reader, Reading
from tabiced.rows import Copies, hash_rows, is_measured, order_rows
from tabiced.tails import Tails

SMALL = 200  # distinct rows up to which there are FOLDS_SMALL folds
FOLDS_SMALL, FOLDS = 10, 5
HIDDEN_CELLS = 2**22  # cells of rows with hidden blocks held at once


class Reference:
    """Encoded reference rows, split into folds, and the judgement of any row by them."""

    def __init__(self, matrix: np.ndarray, reader: Reader, seed: int, tail_weight: float = 0.0):
        """Take reference rows (n, width) of which at least two differ.

        `tail_weight` is the share of `Tails` in what `energy` returns; the rest is the network's.
        """
        # The user's order of rows is forgotten; the new one is random, so folds are its sections.
        self.matrix = matrix[order_rows(list(matrix.T), seed)]
        keys = hash_rows(list(self.matrix.T))
        _, self.first, self.group = np.unique(keys, return_index=True, return_inverse=True)
        distinct = len(self.first)
        folds = min(distinct, FOLDS_SMALL if distinct <= SMALL else FOLDS)
        place = np.argsort(np.argsort(self.first))
        self.fold = place * folds // distinct  # of each distinct row
        self.is_measured = is_measured(self.matrix[self.first])
        self.reader, self.tail_weight = reader, tail_weight
        self._forget()

    def _forget(self) -> None:
        self.whole = Reading(self.reader, self.matrix)
        self.parts: dict[int, Reading] = {}
        self.copies = Copies(self.matrix[self.first])
        self.tails = Tails(self.matrix) if self.tail_weight else None
        self.judged = np.full(len(self.first), np.nan)  # energies of the distinct rows, as known
        self.usual_surprise: np.ndarray | None = None  # of reference cells, for explanations

    def __getstate__(self) -> dict[str, Any]:
        kept = ("matrix", "first", "group", "fold", "is_measured", "reader", "tail_weight")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def without(self, fold: int) -> Reading:
        """Return the context that lacks the rows of a fold; fold -1 lacks none.

        Exact copies of a measured row are an artefact of how the table was made, so all of them
        leave. In a discrete table copies are what frequency means, so one of them leaves.
        """
        if fold < 0:
            return self.whole
        if fold not in self.parts:
            stays = self.fold[self.group] != fold
            if not self.is_measured:
                stays |= self.first[self.group] != np.arange(len(self.group))
            self.parts[fold] = Reading(self.reader, self.matrix[stays])
        return self.parts[fold]

    def calibration(self) -> np.ndarray:
        """Return the energies (n,) of the reference rows, each judged from outside."""
        self._judge(self.fold)
        return self._mixed(self.judged, self.matrix[self.first], np.array(True))[self.group]

    def _mixed(self, energy: np.ndarray, rows: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Add the tails of rows, of which some are `known` reference rows, to their energies."""
        if self.tails is None:
            return energy
        return (1 - self.tail_weight) * energy + self.tail_weight * self.tails(rows, known)

    def _judge(self, folds: np.ndarray) -> None:
        for fold in np.unique(folds):
            members = np.flatnonzero(self.fold == fold)
            if np.isnan(self.judged[members]).any():
                rows = self.matrix[self.first[members]]
                self.judged[members] = self.without(int(fold)).energy(rows, together=True)

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row the distinct reference row it equals and its fold, -1 for none."""
        match = self.copies(rows)
        return match, np.where(match < 0, -1, self.fold[match])

    def energy(self, rows: np.ndarray) -> np.ndarray:
        """Return the energies (m,) of encoded rows (m, width)."""
        match, folds = self.locate(rows)
        return self._mixed(self._network_energy(rows, match, folds), rows, match >= 0)

    def _network_energy(self, rows: np.ndarray, match: np.ndarray, folds: np.ndarray) -> np.ndarray:
        """Return the network's part of the energies of rows that were located."""
        known = match >= 0
        self._judge(folds[known])
        out = np.empty(len(rows))
        out[known] = self.judged[match[known]]
        out[~known] = self.whole.energy(rows[~known])
        return out

    def log_density(self, rows: np.ndarray) -> np.ndarray:
        """Return log-densities (m,) in the matrix's units: energies -1, +1 are the percentiles.

        log p = low + (energy + 1) / 2 * (high - low)
        """
        match, folds = self.locate(rows)
        energy = self._network_energy(rows, match, folds)
        out = np.empty(len(rows))
        for fold in np.unique(folds):
            low, high = self.without(int(fold)).percentiles()
            mine = folds == fold
            out[mine] = low + (energy[mine] + 1) / 2 * (high - low)
        return out

    def explain(self, rows: np.ndarray, blocks: list[np.ndarray]) -> np.ndarray:
        """Return, per row and block of columns, the energy gained by not knowing the block."""
        out = np.zeros((len(rows), len(blocks)))
        match, folds = self.locate(rows)
        energy = self._mixed(self._network_energy(rows, match, folds), rows, match >= 0)
        told = [j for j, block in enumerate(blocks) if len(block)]
        for fold in np.unique(folds):
            mine = np.flatnonzero(folds == fold)
            step = max(1, HIDDEN_CELLS // rows[mine].size)
            for start in range(0, len(told), step):
                part = np.array(told[start : start + step])
                hidden = np.repeat(rows[mine][None], len(part), 0)  # blocks, rows, width
                for copy, j in zip(hidden, part, strict=True):
                    copy[:, blocks[j]] = np.nan
                shown = hidden.reshape(-1, rows.shape[1])
                known = np.tile(match[mine] >= 0, len(part))
                gained = self._mixed(self.without(int(fold)).energy(shown), shown, known)
                out[np.ix_(mine, part)] = gained.reshape(len(part), -1).T - energy[mine, None]
        return out
