"""The commands that make new rows: `tabiced sample` and `tabiced augment`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tabiced._extras import extra
from tabiced.terminal import IgnoreOption, TableArgument, WeightsOption, one_line_findings

with extra("cli"):
    import typer

if TYPE_CHECKING:
    import polars as pl

commands = typer.Typer()

OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="Table to write; its ending says how.")
]
StepsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Steps of each chain. More: nearer to the estimated density."),
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="The same seed draws the same rows again.")
]


@commands.command(
    epilog="Examples:\n\n"
    "  tabiced sample patients.csv --rows 500 --ignore patient_id --out new.csv\n\n"
    "  tabiced sample patients.parquet --rows 100 --seed 1 --out new.parquet"
)
@one_line_findings()
def sample(
    table: TableArgument,
    out: OutOption,
    rows: Annotated[int, typer.Option(min=1, help="How many rows to draw.")] = 100,
    ignore: IgnoreOption = None,
    steps: StepsOption = None,
    seed: SeedOption = None,
    weights: WeightsOption = None,
) -> None:
    """Draw new rows like those of a table.

    Chains start at the table's rows and move by Metropolis' rule through the estimated density.
    Whole numbers stay whole, levels are those of the table. What is printed at the end tells
    whether the new rows are close to copies.
    """
    from tabiced.files import check_output, save_table

    check_output(out)
    frame = _read(table, ignore)
    from tabiced.estimator import ICED
    from tabiced.generate import Metropolis, sample_rows

    model = ICED(weights=weights, verbose=sys.stderr.isatty()).fit(frame)
    sampler = Metropolis() if steps is None else Metropolis(steps=steps)
    new, diagnostics = sample_rows(model, rows, like=frame, sampler=sampler, random_state=seed)
    save_table(new, out)
    if diagnostics is not None:
        typer.echo(str(diagnostics))
    typer.echo(f"Wrote {out}: {rows} new rows.")


@commands.command(
    epilog="Examples:\n\n"
    "  tabiced augment patients.csv --label outcome --out balanced.csv\n\n"
    "  tabiced augment patients.csv --label outcome --per-class 200 --new-only --out new.csv"
)
@one_line_findings()
def augment(
    table: TableArgument,
    label: Annotated[
        str, typer.Option("--label", "-l", metavar="COLUMN", help="Column that holds the classes.")
    ],
    out: OutOption,
    per_class: Annotated[
        int | None,
        typer.Option(min=1, help="New rows for each class. Without: raise all to the largest."),
    ] = None,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Write the new rows without those of TABLE.")
    ] = False,
    ignore: IgnoreOption = None,
    steps: StepsOption = None,
    seed: SeedOption = None,
    weights: WeightsOption = None,
) -> None:
    """Add new rows to the classes of a table, each drawn from its class's own density.

    Classes of fewer than ten rows are too small for that: their new rows are their own ones with
    noise.
    """

    from tabiced.files import check_output, save_table

    check_output(out)
    frame = _read(table, ignore)
    if label not in frame.columns:
        raise ValueError(f"{table} has no column {label!r}: {', '.join(frame.columns)}")
    if frame.width < 2:
        raise ValueError(f"{table} has no column beside {label!r}")
    from tabiced.generate import ICEDAugmenter, Metropolis
    from tabiced.generate.augment import rows_to_add
    from tabiced.generate.tables import as_labels, stack

    augmenter = ICEDAugmenter(
        sampler=None if steps is None else Metropolis(steps=steps),
        weights=weights,
        random_state=seed,
        verbose=sys.stderr.isatty(),
    )
    features, classes = frame.drop(label), frame[label]
    augmenter.fit(features, classes)
    counts = rows_to_add("auto", as_labels(classes, frame.height))
    made, labels = augmenter.sample(counts if per_class is None else per_class)
    new = made.with_columns(labels.alias(label)).select(frame.columns)
    save_table(new if new_only else stack(frame, new), out)
    for name in sorted(set(labels.to_list()), key=str):
        way = "drawn" if name in augmenter.models_ else "its own rows with noise"
        typer.echo(f"{label} = {name}: {labels.to_list().count(name)} new rows, {way}")
    typer.echo(f"Wrote {out}: {new.height if new_only else frame.height + new.height} rows.")


def _read(table: Path, ignore: list[str] | None) -> pl.DataFrame:
    """Return the table without the columns to be ignored."""
    from tabiced.files import load_table

    frame = load_table(table)
    unknown = [name for name in ignore or [] if name not in frame.columns]
    if unknown:
        raise ValueError(f"{table} has no column {unknown[0]!r}: {', '.join(frame.columns)}")
    return frame.drop(ignore or [])
