"""How the command line speaks: shared options, findings in one line each, progress bars, JSON."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

from tabiced._extras import MissingExtraError, extra

with extra("cli"):
    import typer
    from rich.console import Console

console = Console()
errors = Console(stderr=True)

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Table: .csv, .tsv, .parquet, .arrow or .feather.")
]
TablesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLE", help="Table: .csv, .tsv, .parquet, .arrow or .feather; for Ray, several."
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


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Show in one line what is wrong with the user's files or installation, and end with 1."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has seen enough; click then ends without a word
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


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if someone is looking; yield how to say what is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def count_line(found: int, rows: int, level: float) -> str:
    """Tell how many rows have a p-value up to a level, and how many would by chance."""
    expected = level * rows
    by_chance = f"{expected:,.0f}" if expected >= 100 else f"{expected:.3g}"
    return (
        f"{found:,} of {rows:,} rows have p <= {level:g}; "
        f"{by_chance} would if all were like the reference."
    )


def flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested facts one by one, `card.training.seed` style."""
    for name, fact in facts.items():
        if isinstance(fact, list) and any(isinstance(part, dict) for part in fact):
            fact = {str(place): part for place, part in enumerate(fact, 1)}
        if isinstance(fact, dict):
            yield from flat(fact, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", fact


def print_json(value: Any) -> None:
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
