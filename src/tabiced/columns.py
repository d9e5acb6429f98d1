"""Learn from the context how each column enters the network, and encode any table that way.

Numbers and times are centred by the context's median and divided by a robust scale, in float64, so
that float32 keeps the digits that matter; the scales come back as the Jacobian of the log-density.
Text becomes 0/1 columns, unless it spells numbers or dates. Missing cells stay NaN: the network has
a token for them.
"""

from __future__ import annotations

import datetime
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tabiced.table import PLURAL, Column, Kind, Table, level_name, listed, number_of

MAX_LEVELS = 10  # more levels than this share one column, "other"
NEW_LEVELS = 0.05  # share of once-seen levels above which a new level is nothing special
LARGEST = 1e8  # in robust scales; beyond it, values are equally far
CODE = re.compile(r"0\d")  # how codes of digits may begin, but numbers do not
DATE = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")  # how dates begin whose order is not in doubt


@dataclass(frozen=True)
class Ignored:
    """Drop a column that is constant or empty in the context: it carries no information."""

    value: float | str | None  # the constant
    kind: Kind
    width: int = 0

    def encode(self, column: Column) -> np.ndarray:
        return np.empty((len(column.values), 0), np.float32)

    def differs(self, column: Column) -> np.ndarray:
        """Tell which cells hold another value than the constant."""
        if self.value is None or column.kind != self.kind:
            return np.zeros(len(column.values), bool)
        return ~column.missing & ~_equals(column, self.value)


@dataclass(frozen=True)
class Filled:
    """Encode a column that holds one value or nothing: 0 = missing, 1 = that value, 2 = another."""

    value: float | str
    kind: Kind
    width: int = 1
    counted: bool = True

    def encode(self, column: Column) -> np.ndarray:
        code = np.where(_equals(column, self.value), 1.0, 2.0)
        return np.where(column.missing, 0.0, code).astype(np.float32)[:, None]


@dataclass(frozen=True)
class Measured:
    """Centre and scale a column of numbers or times: z = (2^power x - centre) / scale.

    The power brings the context to the order of 1, without rounding: differences of the largest
    doubles overflow, those of the smallest vanish. Two-valued columns, booleans among them, become
    0 and 1 and are counted: they have no Jacobian.

    `spelled`: the context spells them in text, where words count as missing.
    """

    centre: float
    scale: float
    power: int
    kind: Kind
    counted: bool = False
    width: int = 1
    spelled: bool = False

    def encode(self, column: Column) -> np.ndarray:
        values = _spelled(column, self.kind) if column.kind == "text" else column.values
        with np.errstate(over="ignore"):
            z = (np.ldexp(values, self.power) - self.centre) / self.scale
        return np.clip(z, -LARGEST, LARGEST).astype(np.float32)[:, None]

    @property
    def log_scale(self) -> float:
        return math.log(self.scale) - self.power * math.log(2)


@dataclass(frozen=True)
class Levels:
    """Encode categories, the most frequent first.

    Two levels make one column: 0, 1, and 2 for a level the context does not have. More make one
    0/1 column each, the rarer ones of many together; a new level is 0 everywhere, or joins the rare
    ones where levels seen only once are common.
    """

    levels: tuple[str, ...]
    rare: tuple[str, ...] = ()
    new_is_rare: bool = False
    kind: Kind = "text"
    counted: bool = True

    @property
    def width(self) -> int:
        return 1 if self.is_binary else len(self.levels) + bool(self.rare)

    @property
    def is_binary(self) -> bool:
        return len(self.levels) + bool(self.rare) == 2

    def encode(self, column: Column) -> np.ndarray:
        size = len(self.levels)
        place = {level: i for i, level in enumerate(self.levels)} | dict.fromkeys(self.rare, size)
        new = size if self.new_is_rare else size + bool(self.rare)
        table = np.array([place.get(level, new) for level in column.levels] + [-1])
        code = table[column.values]  # missing cells, -1, take the last
        if self.is_binary:
            out = code[:, None].astype(np.float32)
        else:
            out = (code[:, None] == np.arange(self.width)).astype(np.float32)
        out[column.missing] = np.nan
        return out


ColumnPlan = Ignored | Filled | Measured | Levels


@dataclass(frozen=True)
class Plan:
    """How the columns of one table enter the network."""

    columns: tuple[ColumnPlan, ...]
    labels: tuple[str, ...]
    names: tuple[str, ...] | None

    @property
    def width(self) -> int:
        return sum(plan.width for plan in self.columns)

    @property
    def blocks(self) -> list[np.ndarray]:
        """Return, per column of the table, its columns in the matrix."""
        ends = np.cumsum([plan.width for plan in self.columns])
        return [np.arange(e - p.width, e) for e, p in zip(ends, self.columns, strict=True)]

    @property
    def counted(self) -> np.ndarray:
        """Tell, per matrix column, whether its values are counted (mass) or measured (density)."""
        parts = [not isinstance(p, Measured) or p.counted for p in self.columns]
        return np.repeat(parts, [p.width for p in self.columns])

    @property
    def log_volume(self) -> float:
        """Return sum_j log |dx_j / dz_j|: log p(x) = log p(z) - log_volume."""
        measured = (p for p in self.columns if isinstance(p, Measured) and not p.counted)
        return math.fsum(p.log_scale for p in measured)

    def encode(self, table: Table) -> np.ndarray:
        """Return the rows of an aligned table as a float32 matrix (n, width), NaN = missing."""
        pairs = zip(self.columns, table.columns, strict=True)
        return np.concatenate([plan.encode(column) for plan, column in pairs], 1)

    def strange_cells(self, table: Table) -> np.ndarray:
        """Tell which cells (m, d) of an aligned table differ from a constant column."""
        cells = np.zeros((table.rows, len(self.columns)), bool)
        for j, (plan, column) in enumerate(zip(self.columns, table.columns, strict=True)):
            if isinstance(plan, Ignored):
                cells[:, j] = plan.differs(column)
        return cells

    def strange(self, table: Table) -> np.ndarray:
        """Count in each row of an aligned table the cells that differ from a constant column."""
        return self.strange_cells(table).sum(1, dtype=float)

    def align(self, table: Table, owner: str = "the estimator") -> Table:
        """Bring the columns of a table into the order and to the kinds of the context's.

        By name where both have names, else by position.
        """
        found = table.columns
        if self.names is not None and table.names is not None and table.names != self.names:
            place = self._places(table.names, owner)
            found = tuple(found[place[name]] for name in self.names)
        elif len(found) != len(self.columns):
            raise ValueError(
                f"X has {len(found)} features, but {owner} is expecting {len(self.columns)} "
                "features as input."
            )
        columns = tuple(_as_kind(p, c) for p, c in zip(self.columns, found, strict=True))
        return Table(columns, table.rows, self.names)

    def _places(self, names: tuple[str, ...], owner: str) -> dict[str, int]:
        assert self.names is not None
        place = {name: i for i, name in enumerate(names)}
        absent = [name for name in self.names if name not in place]
        surplus = sorted(set(names) - set(self.names))
        if not absent and not surplus:
            return place
        said = [f"missing: {listed(absent)}"] if absent else []
        said += [f"unexpected: {listed(surplus)}"] if surplus else []
        raise ValueError(
            f"The columns differ from those {owner} was fitted to ({'; '.join(said)}). "
            "Pass the same columns; their order does not matter."
        )


def learn_plan(table: Table) -> Plan:
    """Decide for every column of the context how it enters the network."""
    plans = tuple(map(_learn, table.columns))
    _warn_of_words(
        [
            (column, plan.kind)
            for column, plan in zip(table.columns, plans, strict=True)
            if isinstance(plan, Measured) and plan.spelled
        ]
    )
    return Plan(plans, tuple(c.label for c in table.columns), table.names)


def _learn(column: Column) -> ColumnPlan:
    if column.kind != "text":
        return _learn_numbers(column)
    for kind in SPELLED:
        if _spells(column, kind):
            plan = _learn_numbers(Column(column.label, kind, _spelled(column, kind)))
            if isinstance(plan, Measured):
                return replace(plan, spelled=True)
    return _learn_text(column)


def _learn_numbers(column: Column) -> ColumnPlan:
    kind, x = column.kind, np.sort(column.values[~column.missing])
    if len(x) == 0:
        return Ignored(None, kind)
    low, high = float(x[0]), float(x[-1])
    if low == high:
        only = Ignored if len(x) == len(column.values) else Filled
        return only(low, kind)
    power = -math.frexp(max(-low, high))[1]
    x = np.ldexp(x, power)
    if ((x == x[0]) | (x == x[-1])).all():
        return Measured(float(x[0]), float(x[-1] - x[0]), power, kind, counted=True)
    return Measured(float(np.median(x)), robust_scale(x), power, kind)


def robust_scale(x: np.ndarray) -> float:
    """Return the interquartile range of sorted values as a standard deviation; wider where tied."""
    full = float(x[-1] - x[0])
    quarter, inner, outer, rest = np.quantile(x, [0.25, 0.75, 0.02, 0.98])
    for width, normal in ((inner - quarter, 1.349), (rest - outer, 4.107)):
        if width > 1e-6 * full:
            return float(width / normal)
    return full


def _learn_text(column: Column) -> ColumnPlan:
    present = column.values[~column.missing]
    tally = np.bincount(present, minlength=len(column.levels))
    counts = {level: int(c) for level, c in zip(column.levels, tally, strict=True) if c}
    if not counts:
        return Ignored(None, "text")
    if len(counts) == 1:
        only = Ignored if len(present) == len(column.values) else Filled
        return only(next(iter(counts)), "text")
    # Ties are broken by name: the plan must not depend on the order of the rows.
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    if len(ordered) > 2 and counts[ordered[0]] == 1:
        return Ignored(None, "text")  # identifiers
    if len(ordered) <= MAX_LEVELS:
        return Levels(tuple(ordered))
    kept = [level for level in ordered[: MAX_LEVELS - 1] if counts[level] > 1]
    once = sum(count for count in counts.values() if count == 1)
    new_is_rare = once > NEW_LEVELS * len(present)
    return Levels(tuple(kept), tuple(ordered[len(kept) :]), new_is_rare)


def _spells(column: Column, kind: Kind) -> bool:
    """Tell whether most cells of a text column are numbers, or times.

    Few different ones are taken for levels, and so are codes: digits that begin with 0.
    """
    if column.declared:
        return False
    present = column.values[~column.missing]
    different = [column.levels[code] for code in np.unique(present)]
    if len(different) <= MAX_LEVELS:
        return False
    if kind == "number" and any(CODE.match(level) for level in different):
        return False
    return bool((~np.isnan(_spelled(column, kind))).sum() > len(present) / 2)


def _spelled(column: Column, kind: Kind) -> np.ndarray:
    """Return the numbers or times that the cells of a text column spell, NaN for words."""
    values = np.array([SPELLED[kind](level) for level in column.levels] + [math.nan])
    return values[column.values]  # missing cells, -1, take the last


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _time(text: str) -> float:
    if not DATE.match(text.strip()):
        return math.nan
    try:
        return number_of(datetime.datetime.fromisoformat(text.strip()))
    except ValueError:
        return math.nan


SPELLED: dict[Kind, Callable[[str], float]] = {"number": _number, "time": _time}


def _is_word(column: Column, kind: Kind) -> np.ndarray:
    """Tell which cells of a text column are there and spell no number, or no time."""
    return np.isnan(_spelled(column, kind)) & ~column.missing


def _warn_of_words(spelled: list[tuple[Column, Kind]], most: int = 3) -> None:
    """Warn once of all words in columns that spell numbers or times."""
    said = []
    for column, kind in spelled:
        words = Counter(column.levels[code] for code in column.values[_is_word(column, kind)])
        if words:
            common = min(words, key=lambda word: (-words[word], word))
            said.append(f"{column.label} ({words.total()}, such as {common!r})")
    if said:
        rest = f" and {len(said) - most} more" if len(said) > most else ""
        warnings.warn(
            "Text is read as numbers or dates where most cells of its column are, and words count "
            f"as missing: {', '.join(said[:most])}{rest}. Where the numbers are labels, "
            "convert the column to a categorical type.",
            UserWarning,
            stacklevel=2,
        )


def _equals(column: Column, value: float | str) -> np.ndarray:
    if column.kind != "text":
        return column.values == value
    codes = [i for i, level in enumerate(column.levels) if level == value]
    return np.isin(column.values, codes)


def _as_kind(plan: ColumnPlan, column: Column) -> Column:
    """Return the column as the kind it had in the context, or say that it is another."""
    if isinstance(plan, Ignored):
        _warn_of_others(plan, column)
        return column
    if column.kind == plan.kind:
        return column
    if column.missing.all():
        if plan.kind == "text":
            return Column(column.label, "text", np.full(len(column.values), -1), ())
        return Column(column.label, plan.kind, np.full(len(column.values), np.nan))
    if plan.kind == "text" and column.kind == "number":
        numbers, codes = np.unique(column.values, return_inverse=True)
        codes = np.where(column.missing, -1, codes)
        return Column(column.label, "text", codes, tuple(level_name(v) for v in numbers))
    row = int(np.flatnonzero(~column.missing)[0])
    if isinstance(plan, Measured) and column.kind == "text":
        if plan.spelled or not (words := _is_word(column, plan.kind)).any():
            return column
        row = int(np.flatnonzero(words)[0])
    raise ValueError(
        f"{column.label} holds {PLURAL[plan.kind]} in the reference table, but "
        f"{PLURAL[column.kind]} here (row {row}: {column.show(row)}). Convert it to that type."
    )


def _warn_of_others(plan: Ignored, column: Column) -> None:
    """Warn of values that an ignored column never had: users may expect them to count."""
    other = plan.differs(column)
    if other.any():
        row = int(np.flatnonzero(other)[0])
        warnings.warn(
            f"{column.label} is always {plan.value!r} in the reference table, so the network does "
            f"not see it, but {int(other.sum())} row(s) differ; the first is row {row}: "
            f"{column.show(row)}.",
            UserWarning,
            stacklevel=2,
        )
