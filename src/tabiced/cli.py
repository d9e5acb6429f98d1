"""The command line. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tabiced
from tabiced._extras import extra
from tabiced.cli_generate import commands as generating
from tabiced.terminal import (
    IgnoreOption,
    TableArgument,
    TablesArgument,
    WeightsOption,
    console,
    count_line,
    errors,
    flat,
    one_line_errors,
    one_line_findings,
    print_json,
    progress,
)

with extra("cli"):
    import typer

if TYPE_CHECKING:
    from tabiced.files import TableFile
    from tabiced.ranking import Ranking

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
prior = typer.Typer(no_args_is_help=True, help="Look at the tables the network is trained on.")
app.add_typer(prior, name="prior")
app.add_typer(generating)  # sample, augment

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        "-r",
        metavar="TABLE",
        help="Judge by these rows instead of by the other rows of TABLE.",
    ),
]
CONTEXT_ROWS = 8000
ContextOption = Annotated[
    int,
    typer.Option(
        min=2, help="Reference rows the network reads, of more a random sample. Fewer are faster."
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Score here, or Parquet files on a Ray cluster (needs tabiced\\[ray])."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: how many workers; by default one per CPU."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Find unusual rows in a table, and the columns that make them unusual.

    A pretrained network reads the table and estimates how dense the data are around each row.
    Nothing is fitted, nothing is downloaded.
    """
    if version:
        typer.echo(f"tabiced {tabiced.__version__}")
        raise typer.Exit


@app.command(
    epilog="Examples:\n\n"
    "  tabiced score patients.csv --ignore patient_id --report patients.html\n\n"
    "  tabiced score today.csv --reference last_year.parquet --out scored.parquet\n\n"
    "  tabiced score patients.csv --json --top 100\n\n"
    "  tabiced score big/*.parquet --engine ray --reference ref.parquet --out folder"
)
@one_line_findings()
def score(
    tables: TablesArgument,
    reference: ReferenceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write TABLE with the columns energy and p_value."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page (.html) to read in a browser: one file, offline."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="How many rows to show; by default 10, in the report 50."),
    ] = None,
    ignore: IgnoreOption = None,
    context_rows: ContextOption = CONTEXT_ROWS,
    weights: WeightsOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the rows of a table, the most unusual first.

    Each row is judged by the others, or by the rows of a reference table. The energy tells how
    typical a row is; the p-value is the share of reference rows at least as unusual.
    Rows are counted from 0. Tables larger than the memory are fine.
    """
    if engine == "ray":
        from tabiced.cli_ray import score_on_ray

        if report is not None or top is not None:
            raise ValueError("--report and --top are not possible with --engine ray")
        return score_on_ray(tables, reference, out, ignore, context_rows, weights, workers, as_json)
    if workers is not None:
        raise ValueError("--workers needs --engine ray")
    if len(tables) > 1:
        raise ValueError(f"{len(tables)} tables given: only --engine ray takes more than one")
    table = tables[0]
    from tabiced.files import PAGES, TableFile, check_output

    if out is not None:
        check_output(out)
    if report is not None:
        check_output(report, PAGES)
    source = TableFile(table)
    if out is not None:
        taken = [name for name in ("energy", "p_value") if name in source.columns]
        if taken:
            raise ValueError(
                f"{table} already has a column {taken[0]!r}: rename it, or leave out --out"
            )
    ranking = _rank(source, reference, ignore, context_rows, weights)
    from tabiced.ranking import show_ranking

    listed = top or 10
    with errors.status("Explaining the most unusual rows ..."):
        rows = ranking.rows(ranking.top(listed if report is None else top or 50))
    if report is not None:
        from tabiced.report import write_report

        write_report(ranking, rows, report)
    if out is not None:
        with errors.status(f"Writing {out} ..."):
            ranking.save(out)
    rows = rows[:listed]
    if as_json:
        print_json(
            {"table": str(table), "rows": source.height, "unusual": [row.facts() for row in rows]}
        )
        return
    console.print(show_ranking(rows))
    for level in (0.01, 0.05):
        found = int((ranking.p_value <= level).sum())
        console.print(count_line(found, source.height, level))
    for path in (report, out):
        if path is not None:
            typer.echo(f"Wrote {path}.")


@app.command(
    epilog="Examples:\n\n"
    "  tabiced explain patients.csv --row 17 --row 42\n\n"
    "  tabiced explain today.csv --reference last_year.parquet --top 3 --json"
)
@one_line_findings()
def explain(
    table: TableArgument,
    row: Annotated[
        list[int] | None,
        typer.Option("--row", min=0, help="Row to explain, counted from 0. Repeatable."),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Without --row: explain so many unusual rows.")
    ] = 3,
    reference: ReferenceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write the surprise of every cell of these rows."
        ),
    ] = None,
    ignore: IgnoreOption = None,
    context_rows: ContextOption = CONTEXT_ROWS,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which columns make a row unusual.

    The surprise of a cell is the energy its row would gain without it; the p-value is the share of
    reference rows with a cell as surprising in that column.
    """
    from tabiced.files import TableFile, check_output, save_table

    if out is not None:
        check_output(out)
    source = TableFile(table)
    beyond = [number for number in row or [] if number >= source.height]
    if beyond:
        raise ValueError(
            f"{table} has no row {beyond[0]}: its {source.height} rows are counted from 0"
        )
    ranking = _rank(source, reference, ignore, context_rows, weights)
    from tabiced.ranking import show_explanation

    with errors.status("Explaining ..."):
        rows = ranking.rows(row or ranking.top(top))
    if out is not None:
        save_table(ranking.surprises(rows), out)
    if as_json:
        print_json(
            {"table": str(table), "rows": source.height, "explained": [r.facts() for r in rows]}
        )
        return
    for described in rows:
        console.print(show_explanation(described))
        for reason in described.sentences():
            console.print(reason, highlight=False, markup=False)
        console.print()
    if out is not None:
        typer.echo(f"Wrote {out}.")


@app.command()
@one_line_findings()
def info(weights: WeightsOption = None, as_json: JsonOption = False) -> None:
    """Tell versions, the device and where the weights come from."""
    import platform

    import torch

    from tabiced.weights import SHIPPED, read_card

    facts = {
        "tabiced": tabiced.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "weights": str(weights or SHIPPED),
        "card": read_card(weights),
    }
    if as_json:
        print_json(facts)
        return
    for name, fact in flat(facts):
        typer.echo(f"{name}  {fact}")


@app.command()
@one_line_findings()
def demo(
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the energy over two columns (.png, .svg)."),
    ] = None,
    weights: WeightsOption = None,
) -> None:
    """Score a bundled table of 344 penguins."""
    from tabiced.demo import draw_penguins, show_penguins
    from tabiced.files import PICTURES, check_output

    if picture is not None:
        check_output(picture, PICTURES)
    show_penguins(console, weights)
    if picture is not None:
        with errors.status("Drawing ..."):
            draw_penguins(picture, weights)
        typer.echo(f"\nWrote {picture}.")


@prior.command("show", epilog="Example:\n\n  tabiced prior show --seed 3 --out prior.png")
@one_line_findings()
def prior_show(
    seed: Annotated[int, typer.Option(min=0, help="Which tables to draw.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Picture to write.")
    ] = Path("prior.png"),
) -> None:
    """Draw a gallery of training tables."""
    from tabiced.atomic import whole_file
    from tabiced.files import PICTURES, check_output

    check_output(out, PICTURES)
    from tabiced.prior.gallery import draw_gallery

    with whole_file(out) as part:
        draw_gallery(seed, part)
    typer.echo(f"Wrote {out}.")


@app.command(context_settings=PASS_ON)
@one_line_errors()
def pretrain(context: typer.Context) -> None:
    """Pretrain a network; `tabiced pretrain --help` lists the options."""
    from tabiced.pretrain import main

    main(context.args)


@app.command(context_settings=PASS_ON)
@one_line_errors()
def bench(context: typer.Context) -> None:
    """Measure the network against other methods; `tabiced bench --help` lists the benchmarks."""
    from tabiced.bench.command import main

    main(context.args)


def _rank(
    table: TableFile,
    reference: Path | None,
    ignore: list[str] | None,
    context_rows: int,
    weights: Path | None,
) -> Ranking:
    """Rank the rows of a table by the columns that are not ignored."""
    from tabiced.files import TableFile

    known = None if reference is None else TableFile(reference)
    ignored = set(ignore or [])
    columns = set(table.columns) if known is None else {*table.columns, *known.columns}
    if ignored - columns:
        name = sorted(ignored - columns)[0]
        raise ValueError(
            f"--ignore {name}: no such column; the columns are {', '.join(table.columns)}"
        )
    if not set(table.columns) - ignored:
        raise ValueError("--ignore leaves no column to judge the rows by")
    with progress(f"Scoring {table.height} rows", table.height) as report:
        from tabiced.ranking import Ranking

        return Ranking(
            table,
            known,
            ignore=ignored,
            weights=weights,
            context_rows=context_rows,
            report=report,
        )
