"""The page's section on augmentation."""

from tabiced.bench import prose
from tabiced.bench.augmentation import CLASSIFIERS, N_REAL, NEW_ROWS, means, places, quoted, shared
from tabiced.bench.markdown import cells, italic, markdown, two
from tabiced.bench.results import Row
from tabiced.bench.summary import Means

BASELINE, PAPERS_BASELINE = "baseline", "Baseline, paper"
COLUMNS = ["all", "gain", *CLASSIFIERS, *N_REAL]
AGREES = 0.5  # points between our baseline and the paper's where the tables are taken for the same


def augmentation_section(rows: list[Row], ours: str) -> str:
    """Return the section, or nothing where ours was not measured."""
    measured, theirs, common = _tables(rows, ours)
    if not measured:
        return ""
    text = prose.AUGMENTATION.format(
        new=NEW_ROWS,
        settings=len({(row["dataset"], row["n_real"]) for row in common}),
        seeds=len({row["seed"] for row in common}),
    )
    parts = [text.strip(), _table(measured, theirs, COLUMNS)]
    base, papers_base = measured[BASELINE], theirs[PAPERS_BASELINE]
    same = [n for n in N_REAL if n in base and abs(base[n] - papers_base[n]) <= AGREES]
    other = [n for n in N_REAL if n in base and n not in same]
    if same and other:
        agreeing = _tables([row for row in rows if row["dataset"] in same], ours)
        told = prose.AUGMENTATION_SAME.format(points=AGREES, other=", ".join(other))
        parts += [told.strip(), _table(*agreeing[:2], ["all", "gain"])]
    partly = [name for name in places(rows) if name not in measured]
    if partly:
        parts += [prose.AUGMENTATION_PARTLY.strip(), _partly(rows, partly, ours)]
    return "\n\n".join(parts)


def augmentation_bars(
    rows: list[Row], ours: str
) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return the gains over the baseline that were measured, and those of the paper."""
    measured, theirs, _ = _tables(rows, ours)
    if not measured:
        return None
    return (
        {name: parts["gain"] for name, parts in measured.items() if name != BASELINE},
        {name: parts["gain"] for name, parts in theirs.items() if name != PAPERS_BASELINE},
    )


def _tables(rows: list[Row], ours: str) -> tuple[Means, Means, list[Row]]:
    """Return means of the methods measured wherever ours was, the paper's there, and the rows."""
    where = places(rows)
    if ours not in where or BASELINE not in where:
        return {}, {}, []
    complete = [name for name, mine in where.items() if mine >= where[ours]]
    common = shared(rows, complete)
    settings = {(row["dataset"], row["n_real"]) for row in common}
    theirs = [row for row in quoted() if (row["dataset"], row["n_real"]) in settings]
    return (
        _with_gain(means(common), BASELINE),
        _with_gain(means(theirs), PAPERS_BASELINE),
        common,
    )


def _table(measured: Means, theirs: Means, columns: list[str]) -> str:
    """Return a table of what was measured, and below it what the paper has."""
    lines = [[name, *cells(parts, columns, two)] for name, parts in _best_first(measured)]
    lines += [
        [italic(name), *map(italic, cells(parts, columns, two))]
        for name, parts in _best_first(theirs)
    ]
    return markdown(["", *columns], lines)


def _with_gain(table: Means, base: str) -> Means:
    if base not in table:
        return {}
    return {n: {**parts, "gain": parts["all"] - table[base]["all"]} for n, parts in table.items()}


def _best_first(table: Means) -> list[tuple[str, dict[str, float]]]:
    return sorted(table.items(), key=lambda item: -item[1]["all"])


def _partly(rows: list[Row], names: list[str], ours: str) -> str:
    lines = []
    for name in names:
        common = shared(rows, [name, BASELINE, ours])
        if common:
            table = means(common)
            count = len({(row["dataset"], row["n_real"], row["seed"]) for row in common})
            lines.append(
                [name, str(count), *(two(table[n]["all"]) for n in (name, BASELINE, ours))]
            )
    return markdown(["", "settings and seeds", "accuracy", BASELINE, ours], lines)
