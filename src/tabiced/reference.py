"""Judge rows by reference rows, always by a context that the judged row is not part of.

Rows that equal no reference row are scored against all of the reference. A row that does equal one
is scored against a context from which that row was left out, together with the rest of its fold. So
reference rows and new rows get comparable scores, no row vouches for itself, and the scores of the
reference rows calibrate p-values.

Of a row that the reference has several times one leaves, and the others vouch for it: where rows
come again by themselves, that is frequency. Where a table was drawn up, its rows drawn with
replacement, each row judges once, and copies of a row leave with it. So they do where the rows of a
measured table are searched for outliers. That a row has been there before is told apart from this,
by a number that is added to its score. Log-densities count all rows.

A score, how typical a row is, has the parts that `Scoring` says; that of the network is by its
`scorer`, where it has one. Log-densities are the network's own energies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from tabiced.components import Components
from tabiced.contexts import Reader, Reading
from tabiced.distances import Distances
from tabiced.model import JUDGEMENTS
from tabiced.pairs import Pairs
from tabiced.rows import Copies, hash_rows, is_drawn_up, is_measured
from tabiced.scoring import Scoring
from tabiced.tails import Tails

SMALL = 200  # distinct rows up to which there are FOLDS_SMALL folds
FOLDS_SMALL, FOLDS = 10, 5
DENSE_ROWS = 5000  # that log-densities are by: the most that the network has learned them from
ENERGY, BRANCH = map(JUDGEMENTS.index, ("energy", "branch"))
HIDDEN_CELLS = 2**22  # cells of rows with hidden blocks held at once


class Judges:
    """Rows that judge others, and what parts of scores make of them, once it is needed."""

    def __init__(self, rows: np.ndarray, reader: Reader):
        self.rows, self.reader = rows, reader

    def read(self, scoring: Scoring) -> None:
        """Make what scores need."""
        needed = {"tails": scoring.tails, "component_tails": scoring.components}
        needed |= {"pairs": scoring.pairs, "distances": scoring.distances}
        for name, share in needed.items():
            if share:
                getattr(self, name)

    @cached_property
    def tails(self) -> Tails:
        return Tails(self.rows)

    @cached_property
    def component_tails(self) -> tuple[Components, Tails]:
        components = Components(self.rows)
        return components, Tails(components(self.rows))

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.rows, self.reader)

    @cached_property
    def distances(self) -> Distances:
        return Distances(self.rows, self.reader.device)


class Reference:
    """Encoded reference rows, split into folds, and the judgement of any row by them."""

    def __init__(self, matrix: np.ndarray, reader: Reader, scoring: Scoring | None = None):
        """Take reference rows (n, width) of which at least two differ, ordered by `order_rows`.

        That order is random and knows nothing of the user's, so folds are its sections.
        """
        self.matrix = matrix
        keys = hash_rows(list(self.matrix.T))
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        distinct = len(first)
        self.first = np.sort(first)
        self.group = np.argsort(np.argsort(first))[group]
        folds = min(distinct, FOLDS_SMALL if distinct <= SMALL else FOLDS)
        self.fold = np.arange(distinct) * folds // distinct  # of each distinct row
        self.is_measured = is_measured(self.matrix[self.first])
        self.reader, self.scoring = reader, scoring or Scoring()
        self._forget()

    def _forget(self) -> None:
        self.whole = Reading(self.reader, self.matrix[:DENSE_ROWS])
        self.readings: dict[tuple[int, bool, bool], Reading] = {}
        self.known_judges: dict[bool, Judges] = {}
        self.copies = Copies(self.matrix[self.first])
        self.count = np.bincount(self.group)  # of each distinct row
        self.is_drawn_up = is_drawn_up(self.count)
        self.judged: dict[tuple[bool, bool], np.ndarray] = {}  # what `_judge` knows already
        self.usual_surprise: np.ndarray | None = None  # of reference cells, for explanations

    def __getstate__(self) -> dict[str, Any]:
        kept = ("matrix", "first", "group", "fold", "is_measured", "reader", "scoring")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def without(self, fold: int, own: bool = False, dense: bool = False) -> Reading:
        """Return the context that lacks the rows of a fold; fold -1 lacks none.

        `own` rows of the reference are searched for outliers. `dense`: it is for log-densities, and
        the network sees all of it, up to `DENSE_ROWS`.
        """
        hides = self.hides_copies(own) and not dense
        dense = dense or (self._scores_densely and not hides)
        if fold < 0 and dense:
            return self.whole
        place = fold, hides, dense
        if place not in self.readings:
            first = self.first[self.group] == np.arange(len(self.group))
            stays = self.fold[self.group] != fold
            stays = stays & first if hides else stays | ~first  # of equal rows one leaves
            shown = None if dense else self.scoring.rows or None
            rows = self.matrix[stays][: DENSE_ROWS if dense else None]
            self.readings[place] = Reading(self.reader, rows, shown, not dense)
        return self.readings[place]

    @property
    def _scores_densely(self) -> bool:
        """Tell whether the network reads for scores just as for log-densities."""
        sees_all = not 0 < self.scoring.rows < len(self.matrix)
        few = len(self.matrix) <= DENSE_ROWS
        return few and sees_all and self.reader.scoring_network is self.reader.network

    def hides_copies(self, own: bool) -> bool:
        """Tell whether rows are judged by each distinct row once."""
        repeated = len(self.first) < len(self.group)
        return repeated and (self.is_drawn_up or (own and self.is_measured))

    def judges(self, own: bool = False) -> Judges:
        """Return the rows that judge others: all, or each distinct one once."""
        hides = self.hides_copies(own)
        if hides not in self.known_judges:
            rows = self.matrix[self.first] if hides else self.matrix
            self.known_judges[hides] = Judges(rows, self.reader)
        return self.known_judges[hides]

    def calibration(self, own: bool = False) -> np.ndarray:
        """Return the scores (n,) of the reference rows, each judged from outside."""
        judgements, distinct = self._judge(self.fold, own), np.arange(len(self.first))
        score = self._mixed(judgements, self.matrix[self.first], distinct, own)
        return (score + self._gain_by_copies(self.count - 1, own))[self.group]

    def _mixed(
        self,
        judgements: np.ndarray,
        rows: np.ndarray,
        match: np.ndarray,
        own: bool,
        strange: np.ndarray | float = 0.0,
    ) -> np.ndarray:
        """Turn judgements of rows, located at `match`, into scores, but for what copies add."""
        return self.scoring.blend(self._parts(judgements, rows, match, own, strange))

    def _parts(
        self,
        judgements: np.ndarray,
        rows: np.ndarray,
        match: np.ndarray,
        own: bool,
        strange: np.ndarray | float,
    ) -> dict[str, np.ndarray]:
        """Return the parts of scores, those that count, by the names of `Scoring.shares`."""
        known, judges = match >= 0, self.judges(own)

        def components() -> np.ndarray:
            rotate, tails = judges.component_tails
            return tails(rotate(rows), known)

        place = match if self.hides_copies(own) else self.first[match]
        place = np.where(known, place, -1)  # among the judges

        ways: dict[str, Callable[[], np.ndarray]] = {
            "network": lambda: judgements[:, ENERGY],
            "branch": lambda: judgements[:, BRANCH],
            "tails": lambda: judges.tails(rows, known, strange),
            "components": components,
            "pairs": lambda: judges.pairs(rows, place),
            "distances": lambda: judges.distances(rows, place),
        }
        return {name: ways[name]() for name, share in self.scoring.shares.items() if share > 0}

    def _gain_by_copies(self, copies: np.ndarray, own: bool) -> np.ndarray:
        """Return what scores gain (m,) where the reference has so many copies of a row.

        Nothing where these must not vouch for rows of the reference, its `own`.
        """
        if not self.scoring.repeats or (own and self.hides_copies(own)):
            return np.zeros(len(copies))
        return self.scoring.repeats * self.familiarity * (copies > 0)

    def read(self) -> None:
        """Prepare all that judges new rows now, not at the first query."""
        self.without(-1).read()
        self.judges().read(self.scoring)

    @cached_property
    def familiarity(self) -> float:
        """Return minus the log of how likely the next row is one that the reference lacks.

        By Good and Turing's rule, the share of rows that occur once. Where most rows repeat others,
        one that repeats none is unusual.
        """
        return -math.log(((self.count == 1).sum() + 1) / (len(self.group) + 1))

    def _judge(self, folds: np.ndarray, own: bool, dense: bool = False) -> np.ndarray:
        """Return judgements of the distinct rows, known at least for those of some folds."""
        hides = self.hides_copies(own) and not dense
        unknown = np.full((len(self.first), len(JUDGEMENTS)), np.nan)
        judged = self.judged.setdefault((hides, dense or self._scores_densely), unknown)
        for fold in np.unique(folds):
            members = np.flatnonzero(self.fold == fold)
            if np.isnan(judged[members]).any():
                rows = self.matrix[self.first[members]]
                judged[members] = self.without(int(fold), own, dense).judge(rows, together=True)
        return judged

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row the distinct reference row it equals and its fold, -1 for none."""
        match = self.copies(rows)
        return match, np.where(match < 0, -1, self.fold[match])

    def score(
        self, rows: np.ndarray, strange: np.ndarray | float = 0.0, own: bool = False
    ) -> np.ndarray:
        """Return how typical encoded rows (m, width) are.

        Each has `strange` (m,) cells in columns that are constant in the reference. `own`: the rows
        are the reference's, and no row is a copy of itself.
        """
        parts, gain = self.parts(rows, strange, own)
        return self.scoring.blend(parts) + gain

    def parts(
        self, rows: np.ndarray, strange: np.ndarray | float = 0.0, own: bool = False
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return what `score` puts together: the parts, and what is added for copies."""
        match, folds = (np.where(strange, -1, found) for found in self.locate(rows))
        parts = self._parts(self._judgements(rows, match, folds, own), rows, match, own, strange)
        copies = np.where(match >= 0, self.count[match] - own, 0)
        return parts, self._gain_by_copies(copies, own)

    def _judgements(
        self,
        rows: np.ndarray,
        match: np.ndarray,
        folds: np.ndarray,
        own: bool = False,
        dense: bool = False,
    ) -> np.ndarray:
        """Return the judgements (m, len(JUDGEMENTS)) of rows that were located."""
        known = match >= 0
        out = np.empty((len(rows), len(JUDGEMENTS)))
        out[known] = self._judge(folds[known], own, dense)[match[known]]
        out[~known] = self.without(-1, own, dense).judge(rows[~known])
        return out

    def log_density(self, rows: np.ndarray) -> np.ndarray:
        """Return log-densities (m,) in the matrix's units: energies -1, +1 are the percentiles.

        log p = low + (energy + 1) / 2 * (high - low)
        """
        match, folds = self.locate(rows)
        energy = self._judgements(rows, match, folds, dense=True)[:, ENERGY]
        out = np.empty(len(rows))
        for fold in np.unique(folds):
            low, high = self.without(int(fold), dense=True).percentiles()
            mine = folds == fold
            out[mine] = low + (energy[mine] + 1) / 2 * (high - low)
        return out

    def explain(
        self,
        rows: np.ndarray,
        blocks: list[np.ndarray],
        own: bool = False,
        strange: np.ndarray | None = None,
        hides: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return, per row and block of columns, what the score gains by not knowing the block.

        Each row has `strange` (m,) cells in columns that are constant in the reference and so not
        in `rows`; a block `hides` (m, blocks) of these.
        """
        strange = np.zeros(len(rows)) if strange is None else strange
        hides = np.zeros((len(rows), len(blocks))) if hides is None else hides
        out = np.zeros((len(rows), len(blocks)))
        match, folds = (np.where(strange, -1, found) for found in self.locate(rows))
        known = self._judgements(rows, match, folds, own)
        score = self._mixed(known, rows, match, own, strange)
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
                same = np.tile(match[mine], len(part))
                left = (strange[mine] - hides[np.ix_(mine, part)].T).ravel()
                judgements = self.without(int(fold), own).judge(shown)
                gained = self._mixed(judgements, shown, same, own, left)
                out[np.ix_(mine, part)] = gained.reshape(len(part), -1).T - score[mine, None]
        for j in set(range(len(blocks))) - set(told):  # the network does not see these columns
            if hides[:, j].any():
                out[:, j] = self._mixed(known, rows, match, own, strange - hides[:, j]) - score
        return out
