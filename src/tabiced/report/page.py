"""Render the report. Every name and cell of the user's table goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

import tabiced
from tabiced.atomic import whole_file
from tabiced.explanation import UNUSUAL, show_cell
from tabiced.ranking import Ranking, Unusual
from tabiced.report.summary import ColumnSummary, summarise

ASSETS = Path(__file__).parent
LEVELS = (0.05, 0.01)
BARS = 48
WIDTH, HEIGHT = 720, 200  # of the picture, in its own units


def write_report(ranking: Ranking, rows: Sequence[Unusual], path: Path) -> None:
    """Write the report on a ranking and its most unusual rows to one file."""
    text = render_report(ranking, rows)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def render_report(ranking: Ranking, rows: Sequence[Unusual]) -> str:
    """Return the report as HTML that needs no other file."""
    table = ranking.table
    title = f"Unusual rows of {table.path.name}"
    style, script = ((ASSETS / name).read_text() for name in ("report.css", "report.js"))
    columns = summarise(table, ranking.model.plan_)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Nothing may be loaded or sent, whatever a cell contains.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">",
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        *_tiles(ranking, columns),
        "<h2>Scores</h2>",
        _histogram(ranking),
        "<p>Energy: an estimate of how dense the data are around a row, up to a constant; higher "
        "is more typical. Bars left of a line belong to rows with a p-value up to the number at "
        "the line.</p>",
        f"<h2>The {len(rows)} most unusual rows</h2>",
        *_ranked(rows),
        "<h2>Columns</h2>",
        *_columns(columns, table.height),
        "<footer><p>Every row is judged by reference rows that it is not part of. The p-value is "
        "the share of reference rows at least as unusual: of many rows, some are unusual by "
        "chance. A cell is named if its p-value, given the rest of the row, is at most "
        f"{UNUSUAL:g}. Unusual is not wrong. Rows are counted from 0.</p>"
        f"<p>tabiced {tabiced.__version__}</p></footer>",
        f"</main><script>{script}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _tiles(ranking: Ranking, columns: Sequence[ColumnSummary]) -> Iterator[str]:
    height = ranking.table.height
    cells = height * len(columns)
    missing = sum(column.missing for column in columns) / max(1, cells)
    facts = [(f"{height:,}", "rows"), (f"{len(columns)}", "columns")]
    facts.append((f"{missing:.1%}", "of the cells missing"))
    for level in LEVELS:
        found = int((ranking.p_value <= level).sum())
        expected = f"{level * height:.3g} expected by chance"
        facts.append((f"{found:,}", f"rows with p ≤ {level:g} ({expected})"))
    yield '<ul class="tiles">'
    yield from (f"<li><b>{number}</b> {what}</li>" for number, what in facts)
    yield "</ul>"


def _histogram(ranking: Ranking) -> str:
    """Draw the distribution of energies as inline SVG."""
    energy = ranking.energy
    # A few rows far out would press all others into one bar.
    low, high = np.quantile(energy, [0.001, 1.0])
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    counts, edges = np.histogram(energy.clip(low, high), BARS, (low, high))
    cut = ranking.threshold(LEVELS[0])
    base, top = HEIGHT - 24, 22
    step = WIDTH / BARS

    def across(value: float) -> float:
        return float((value - low) / (high - low) * WIDTH)

    shapes = []
    for i, count in enumerate(counts):
        tall = (base - top) * count / counts.max()
        kind = "unusual" if edges[i + 1] <= cut else "usual"
        shapes.append(
            f'<rect class="{kind}" x="{i * step + 0.5:.2f}" y="{base - tall:.2f}" '
            f'width="{step - 1:.2f}" height="{tall:.2f}"><title>{count} rows with an energy from '
            f"{edges[i]:.2f} to {edges[i + 1]:.2f}</title></rect>"
        )
    for level in LEVELS:
        x = across(ranking.threshold(level))
        if 0 <= x <= WIDTH:
            shapes.append(f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top - 6}" y2="{base}"/>')
            shapes.append(f'<text x="{x:.2f}" y="{top - 10}" text-anchor="middle">{level:g}</text>')
    shapes += [
        f'<text x="2" y="{HEIGHT - 8}">{"≤ " if energy.min() < low else ""}{low:.2f}</text>',
        f'<text x="{WIDTH - 2}" y="{HEIGHT - 8}" text-anchor="end">{high:.2f}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">energy</text>',
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Distribution of the energies">{"".join(shapes)}</svg>'
    )


def _ranked(rows: Sequence[Unusual]) -> Iterator[str]:
    yield (
        '<p class="tools"><input id="search" type="search" placeholder="Search rows, columns, '
        'values" aria-label="Search"> <span id="shown" role="status"></span></p>'
    )
    yield '<table id="ranked"><thead><tr>'
    heads = (("rank", 1), ("row", 1), ("p-value", 1), ("energy", 1), ("why", 0), ("cells", 0))
    for name, numeric in heads:
        kind = ' class="number"' if numeric else ""
        yield f'<th{kind} scope="col"><button type="button">{name}</button></th>'
    yield "</tr></thead><tbody>"
    for rank, row in enumerate(rows, start=1):
        reasons = row.sentences()
        why = "".join(f"<li>{_sentence(reason)}</li>" for reason in reasons)
        why = f"<ul>{why}</ul>" if reasons else "no single column"
        strongest = max(row.surprise.values(), default=0.0)
        yield (
            f'<tr><td class="number" data-name="rank">{rank}</td>'
            f'<td class="number" data-name="row">{row.row}</td>'
            f'<td class="number" data-name="p-value">{row.p_value:.3g}</td>'
            f'<td class="number" data-name="energy">{row.energy:.2f}</td>'
            f'<td data-name="why" data-sort="{strongest:.6g}">{why}</td>'
            f'<td data-name="cells">{_cells(row)}</td></tr>'
        )
    yield "</tbody></table>"


def _sentence(text: str) -> str:
    """Escape a sentence; the name between the first and the last backtick before = is code."""
    name, separator, rest = text.partition("` = ")
    if not separator:
        return escape(text)
    return f"<code>{escape(name.removeprefix('`'))}</code> = {escape(rest)}"


def _cells(row: Unusual) -> str:
    longest = max((abs(s) for s in row.surprise.values()), default=0.0) or 1.0
    lines = []
    for name, surprise in row.surprise.items():
        share = 100 * max(surprise, 0.0) / longest
        kind = ' class="guilty"' if row.cell_p_values[name] <= UNUSUAL else ""
        lines.append(
            f"<tr{kind}><th scope=row>{escape(name)}</th>"
            f"<td>{escape(show_cell(row.cells[name]))}</td>"
            f'<td class="number">{surprise:+.2f}</td>'
            f'<td><i style="width:{share:.0f}%"></i></td></tr>'
        )
    others = [name for name in row.cells if name not in row.surprise]
    lines += [
        f"<tr><th scope=row>{escape(name)}</th><td>{escape(show_cell(row.cells[name]))}</td>"
        "<td></td><td></td></tr>"
        for name in others
    ]
    return (
        f"<details><summary>all {len(row.cells)}</summary><table>{''.join(lines)}</table></details>"
    )


def _columns(columns: Sequence[ColumnSummary], height: int) -> Iterator[str]:
    yield '<table class="columns"><thead><tr>'
    for name in ("column", "holds", "judged as", "missing", "different", "values"):
        kind = ' class="number"' if name in ("missing", "different") else ""
        yield f'<th{kind} scope="col">{name}</th>'
    yield "</tr></thead><tbody>"
    for column in columns:
        missing = f"{column.missing} ({column.missing / height:.1%})" if column.missing else "0"
        yield (
            f'<tr><td data-name="column"><code>{escape(column.name)}</code></td>'
            f'<td data-name="holds">{column.kind}</td>'
            f'<td data-name="judged as">{escape(column.role)}</td>'
            f'<td data-name="missing" class="number">{missing}</td>'
            f'<td data-name="different" class="number">{column.distinct}</td>'
            f'<td data-name="values">{escape(column.span)}</td></tr>'
        )
    yield "</tbody></table>"
