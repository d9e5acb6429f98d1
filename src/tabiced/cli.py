"""The command line. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import tabiced
from tabiced._extras import MissingExtraError, extra

with extra("cli"):
    import typer
    from rich.console import Console

if TYPE_CHECKING:
    import polars as pl

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

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

console = Console()
errors = Console(stderr=True)

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Table: .csv, .tsv, .parquet, .arrow or .feather.")
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        "-r",
        metavar="TABLE",
        help="Judge by these rows instead of by the other rows of TABLE.",
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="COLUMN", help="Leave a column out, e.g. an identifier. Repeatable."
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights", metavar="CARD", help="JSON card of other weights than the shipped ones."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Show in one line what is wrong with the user's files or installation, and end with 1."""
    try:
        yield
    except (MissingExtraError, OSError) as error:
        _fail(error)
    except typer.Exit:
        raise
    except RuntimeError as error:
        from tabiced.weights import WeightsError  # torch is loaded by whoever could raise it

        if not isinstance(error, WeightsError):
            raise
        _fail(error)


@contextmanager
def one_line_findings() -> Iterator[None]:
    """Show in one line each what the library finds wrong or remarkable in the user's tables."""
    problem: Exception | None = None
    with one_line_errors(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, TypeError) as error:
            problem = error
    for note in dict.fromkeys(_one_line(w.message) for w in caught if w.category is UserWarning):
        typer.echo(f"note: {note}", err=True)
    if problem is not None:
        _fail(problem)


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"error: {_one_line(error)}", err=True)
    raise typer.Exit(1) from error


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


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
    "  tabiced score patients.csv --ignore patient_id\n\n"
    "  tabiced score today.csv --reference last_year.parquet --out scored.parquet\n\n"
    "  tabiced score patients.csv --json --top 100"
)
@one_line_findings()
def score(
    table: TableArgument,
    reference: ReferenceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write TABLE with the columns energy and p_value."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 10,
    ignore: IgnoreOption = None,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the rows of a table, the most unusual first.

    Each row is judged by the others, or by the rows of a reference table. The energy is an
    unnormalised log-density; the p-value is the share of reference rows at least as unusual.
    Rows are counted from 0.
    """
    from tabiced.files import check_output, save_table

    if out is not None:
        check_output(out)
    frame, ranking = _rank(table, reference, ignore, weights)
    from tabiced.ranking import show_ranking

    if out is not None:
        taken = [name for name in ("energy", "p_value") if name in frame.columns]
        if taken:
            raise ValueError(
                f"{table} already has a column {taken[0]!r}: rename it, or leave out --out"
            )
    with errors.status("Explaining the most unusual rows ..."):
        rows = ranking.rows(ranking.top(top))
    if out is not None:
        save_table(ranking.with_scores(frame), out)
    if as_json:
        _print_json(
            {"table": str(table), "rows": frame.height, "unusual": [asdict(row) for row in rows]}
        )
        return
    console.print(show_ranking(rows))
    for level in (0.01, 0.05):
        found = int((ranking.p_value <= level).sum())
        expected = level * frame.height
        console.print(
            f"{found} of {frame.height} rows have p <= {level:g}; "
            f"{expected:.3g} would if all were like the reference."
        )
    if out is not None:
        typer.echo(f"Wrote {out}.")


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
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which columns make a row unusual.

    The surprise of a cell is the energy the row would gain if the cell were unknown: positive
    where the cell makes the row unusual.
    """
    from tabiced.files import check_output, save_table

    if out is not None:
        check_output(out)
    frame, ranking = _rank(table, reference, ignore, weights)
    from tabiced.ranking import show_explanation

    beyond = [number for number in row or [] if number >= frame.height]
    if beyond:
        raise ValueError(
            f"{table} has no row {beyond[0]}: its {frame.height} rows are counted from 0"
        )
    with errors.status("Explaining ..."):
        rows = ranking.rows(row or ranking.top(top))
    if out is not None:
        save_table(ranking.surprises(rows), out)
    if as_json:
        _print_json(
            {"table": str(table), "rows": frame.height, "explained": [asdict(r) for r in rows]}
        )
        return
    for described in rows:
        console.print(show_explanation(described))
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
        _print_json(facts)
        return
    for name, fact in _flat(facts):
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
    from tabiced.files import PICTURES, check_output, whole_file

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
    table: Path, reference: Path | None, ignore: list[str] | None, weights: Path | None
) -> tuple[pl.DataFrame, Ranking]:
    """Return the whole table, and the ranking of its rows by the columns that are not ignored."""
    from tabiced.files import load_table

    frame = load_table(table)
    known = None if reference is None else load_table(reference)
    ignored = set(ignore or [])
    columns = set(frame.columns) if known is None else {*frame.columns, *known.columns}
    if ignored - columns:
        name = sorted(ignored - columns)[0]
        raise ValueError(
            f"--ignore {name}: no such column; the columns are {', '.join(frame.columns)}"
        )
    if not set(frame.columns) - ignored:
        raise ValueError("--ignore leaves no column to judge the rows by")
    if known is not None:
        known = known.drop(ignored, strict=False)
    with errors.status(f"Scoring {frame.height} rows ..."):
        from tabiced.ranking import Ranking

        return frame, Ranking(frame.drop(ignored, strict=False), known, weights)


def _flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested facts one by one, `card.training.seed` style."""
    for name, fact in facts.items():
        if isinstance(fact, dict):
            yield from _flat(fact, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", fact


def _print_json(value: Any) -> None:
    typer.echo(
        json.dumps(_strict(value), indent=2, default=str, allow_nan=False, ensure_ascii=False)
    )


def _strict(value: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinities become null."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
