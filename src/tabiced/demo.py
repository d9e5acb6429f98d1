"""Score the bundled table of penguins and show what came out."""

from __future__ import annotations

import time
from pathlib import Path

from tabiced._extras import extra

with extra("cli"):
    from rich.console import Console

PENGUINS = Path(__file__).parent / "data" / "penguins.csv"

NEXT = """\
[bold]Next[/]
  tabiced score YOUR.csv                         rank the rows of your own table
  tabiced score YOUR.csv --report report.html    the same as a page for the browser
  tabiced explain YOUR.csv --row 17              see what makes one row unusual
  tabiced demo --picture energy.png              draw the energy over two columns
  README.md                                      the same in ten lines of Python"""


def show_penguins(console: Console, weights: Path | None = None, count: int = 8) -> None:
    """Judge every penguin by the others and print the most unusual ones."""
    from tabiced.files import TableFile
    from tabiced.ranking import Ranking, show_ranking

    table = TableFile(PENGUINS)
    frame = table.collect()
    missing = sum(frame.null_count().row(0))
    console.print(
        f"[bold]{frame.height} penguins[/], {frame.width} columns of numbers and categories, "
        f"{missing} missing cells. Which birds are unusual?\n"
    )
    start = time.monotonic()
    ranking = Ranking(table, weights=weights)
    rows = ranking.rows(ranking.top(count))
    seconds = time.monotonic() - start
    console.print(show_ranking(rows))
    console.print(
        f"\nNothing was fitted: a pretrained network read the table and judged every bird by "
        f"the others, in {seconds:.0f} s. A p-value is the share of birds at least as unusual.\n"
    )
    console.print(NEXT, highlight=False)


def draw_penguins(path: Path, weights: Path | None = None) -> None:
    """Draw the energy over the length and depth of the bill, given these two columns alone."""
    with extra("plot"):
        import matplotlib.pyplot as plt

    from tabiced.atomic import whole_file
    from tabiced.estimator import ICED
    from tabiced.files import load_table
    from tabiced.plot import energy_landscape

    bills = load_table(PENGUINS).select("bill_length_mm", "bill_depth_mm").drop_nulls()
    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    energy_landscape(ICED(weights=weights).fit(bills), bills, ax=ax)
    ax.set(xlabel="bill length (mm)", ylabel="bill depth (mm)")
    ax.set_title("342 penguins of three species, read without labels", fontsize=10)
    with whole_file(path) as part:
        figure.savefig(part, dpi=130)
    plt.close(figure)
