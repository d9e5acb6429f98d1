"""Run benchmarks from the command line.

    python -m tabiced.bench macrodata --pack macrodata_dev.npz --device cuda --options n_views=4
    python -m tabiced.bench adbench --data FOLDER --methods ours KNN ECOD
    python -m tabiced.bench density --methods ours KDE GMM-BIC kNN
    python -m tabiced.bench ablation --device cuda --compile
    python -m tabiced.bench page

Methods: `ours` is the estimator `ICED` with its defaults (or `--options`), `network` the bare
network in one pass, which is what to watch while training; `baselines` stands for all the others
that need no weights, `foundation` for TabICL, TabPFN and TabEBM, which run where their weights are
in their package's cache or in the folder that TABICED_TABICL_WEIGHTS or TABICED_TABPFN_WEIGHTS
names. `--quick` is a run of less than two minutes, stored apart in build/quick/.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tabiced._extras import MissingExtraError
from tabiced.bench import (
    ablation,
    adbench,
    augmentation,
    calibration,
    density,
    foundation,
    macrodata,
    ours,
    parts,
    speed,
    summary,
)
from tabiced.bench.download import QUICK as QUICK_FILES
from tabiced.bench.download import SOURCE, UNKNOWN, DownloadError, checksums, download
from tabiced.bench.methods import Method, pick
from tabiced.bench.results import Results, describe_machine, note_machine
from tabiced.bench.tasks import Task, detect, read_pack, side_by_side

RESULTS, QUICK_RESULTS = Path("benchmarks/results"), Path("build/quick")
COMMANDS = {
    "download": "fetch the ADBench tables",
    "macrodata": "anomaly detection on a pack of real tables",
    "parts": "what each part of a score is worth on such a pack",
    "calibration": "false alarms on such a pack, against the rate that was asked for",
    "adbench": "ADBench, both settings, the paper's protocol",
    "pack": "put the ADBench tasks of some seeds into one file",
    "density": "tables with known log-density",
    "augmentation": "class-conditional augmentation, the paper's protocol",
    "speed": "time to fit a context and score queries, over rows and columns",
    "ablation": "retrain with parts left out, score on the density tables",
    "page": "write docs/benchmarks.md from the stored results",
    "card": "write the stored results of the shipped weights into their card",
}
QUICK: dict[str, dict[str, object]] = {  # what --quick asks for instead
    "download": {"names": QUICK_FILES},
    "macrodata": {"limit": 4},
    "parts": {"limit": 4},
    "calibration": {"limit": 4},
    "adbench": {"seeds": (0,), "smallest": 2},
    "pack": {"seeds": (0,), "smallest": 2},
    "density": {"tables": 1},
    "augmentation": augmentation.QUICK,
    "ablation": ablation.QUICK,
    "speed": {"rows": (250,), "columns": (5, 20), "repeats": 1},
}


class NothingToRun(Exception):
    """No method is left that can run here; the reasons have been printed."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(arguments)
    if getattr(options, "quick", False):
        vars(options).update(QUICK[options.command])
    if "out" in options and options.out is None:
        options.out = (QUICK_RESULTS if options.quick else RESULTS) / f"{options.command}.csv"
    try:
        options.run(options)
    except (MissingExtraError, FileNotFoundError, DownloadError) as error:
        sys.exit(f"error: {error}")
    except NothingToRun:
        pass


def at_least(least: int) -> Callable[[str], int]:
    """Return a type of argument: whole numbers from `least` on."""

    def whole_number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return whole_number


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tabiced.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(required=True, metavar="BENCHMARK", dest="command")
    command = {name: subparsers.add_parser(name, help=text) for name, text in COMMANDS.items()}
    for name in QUICK:
        command[name].add_argument("--quick", action="store_true", help="a small part only")

    command["download"].add_argument("--to", required=True, help="folder for the tables")
    command["download"].add_argument("--source", default=SOURCE, help="address of other copies")
    command["download"].set_defaults(run=run_download, names=None)

    for name, run in (
        ("macrodata", run_macrodata),
        ("parts", run_parts),
        ("calibration", run_calibration),
    ):
        command[name].add_argument("--pack", required=True, help="npz file with the tables")
        command[name].add_argument("--limit", type=int, help="so many tables, at equal steps")
        command[name].set_defaults(run=run)
    _add_weights(command["parts"])
    _add_weights(command["calibration"])
    known = calibration.METHODS
    command["calibration"].add_argument("--methods", nargs="+", choices=known, default=known)

    command["adbench"].add_argument("--pack", help="npz file of the command pack, not --data")
    command["adbench"].add_argument("--settings", nargs="+", default=adbench.SETTINGS)
    command["adbench"].set_defaults(run=run_adbench)

    command["pack"].add_argument("--out", required=True)
    command["pack"].set_defaults(run=run_pack)

    command["density"].add_argument("--suites", nargs="+", default=list(density.SUITES))
    command["density"].add_argument("--tables", type=int, default=density.TABLES)
    command["density"].set_defaults(run=run_density)

    augmentation.add_arguments(command["augmentation"])
    command["augmentation"].set_defaults(run=lambda o: augmentation.run(o, reporter(o.quiet)))

    command["speed"].add_argument("--rows", type=at_least(2), nargs="+", default=speed.ROWS)
    command["speed"].add_argument("--columns", type=at_least(1), nargs="+", default=speed.COLUMNS)
    command["speed"].add_argument("--repeats", type=at_least(1), default=speed.REPEATS)
    command["speed"].set_defaults(run=run_speed)

    ablation.add_arguments(command["ablation"])
    command["ablation"].set_defaults(run=lambda o: ablation.run(o, reporter(o.quiet)))

    command["page"].add_argument("--results", type=Path, default=RESULTS)
    command["page"].add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    command["page"].set_defaults(run=run_page)

    command["card"].add_argument("--results", type=Path, default=RESULTS)
    command["card"].set_defaults(run=run_card)

    for name in ("adbench", "pack"):
        _add_tasks(command[name])
    for name in ("macrodata", "adbench", "density", "augmentation", "speed"):
        _add_methods(command[name])
    on_packs = ("macrodata", "parts", "calibration")
    for name in (*on_packs, "adbench", "density", "augmentation", "speed", "ablation"):
        _add_run(command[name])
    for name in (*on_packs, "adbench", "density", "augmentation"):
        command[name].add_argument("--jobs", type=int, default=1, help="processes, on a CPU")
    return parser


def _add_methods(command: argparse.ArgumentParser) -> None:
    command.add_argument("--methods", nargs="+", default=["ours"])
    command.add_argument("--options", nargs="+", default=[], metavar="NAME=VALUE")
    _add_weights(command)


def _add_weights(command: argparse.ArgumentParser) -> None:
    command.add_argument("--weights", help="JSON card of other weights than the shipped ones")


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", default="cpu")
    command.add_argument("--out", type=Path, help=f"CSV file, by default in {RESULTS}")
    command.add_argument("--force", action="store_true", help="measure again what is stored")
    command.add_argument("--quiet", action="store_true", help="print the means only")


def _add_tasks(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", default=os.environ.get("TABICED_DATA"), help="folder of tables")
    command.add_argument("--seeds", type=int, nargs="+", default=adbench.SEEDS)
    command.add_argument("--tables", type=int, nargs="+", help="indices of the tables, e.g. 14 45")
    command.add_argument("--no-resample", action="store_true", help="leave small tables small")
    command.set_defaults(smallest=None)


def choose(options: argparse.Namespace, baselines: dict[str, Method]) -> list[Method]:
    """Return the methods named on the command line; weights are read only if one needs them."""
    chosen: list[Method] = []
    for name in options.methods:
        if name == "ours":
            given = ours.parse_options(options.options)
            scoring = options.command != "density"
            chosen.append(ours.estimator(given, options.weights, options.device, scoring))
        elif name == "network":
            chosen.append(ours.bare_network(None, options.weights, options.device))
        elif name == "baselines":
            chosen += baselines.values()
        elif name == "foundation" or name in foundation.NAMES:
            names = foundation.NAMES if name == "foundation" else [name]
            folder = options.out.parent
            chosen += foundation.choose(names, options.device, options.command, folder)
        else:
            chosen += pick([name], baselines)
    if not chosen:
        raise NothingToRun
    return chosen


def run_download(options: argparse.Namespace) -> None:
    fetched = download(options.to, options.source, options.names, lambda line: print(line))
    wanted = options.names or checksums()
    print(f"{len(wanted)} tables in {options.to}, {fetched} of them fetched now, all verified")
    if not options.names:
        print(f"not fetched, their checksums are not known: {', '.join(UNKNOWN)}")


def finish(
    options: argparse.Namespace, methods: list[Method], results: Results, lines: list[str]
) -> None:
    """Sort the file, note the machine and print the means."""
    results.sort()
    stored = {summary.label(row) for row in results.rows()}
    for method in methods:
        label = summary.label(method.key)
        if label in stored:  # what failed everywhere ran on no machine
            note_machine(options.out, [label], describe_machine(method.device(options.device)))
    print("\n".join(lines))


def reporter(quiet: bool) -> Callable[[str], None] | None:
    start = time.perf_counter()

    def report(line: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {line}", file=sys.stderr, flush=True)

    return None if quiet else report


def run_detection(
    options: argparse.Namespace, tasks: list[Task], methods: list[Method], results: Results
) -> None:
    report = reporter(options.quiet)

    def work(i: int, part: Results) -> None:
        detect(tasks[i :: options.jobs], methods, part, options.force, report)

    side_by_side(options.jobs, results, work)


def run_macrodata(options: argparse.Namespace) -> None:
    methods, results = choose(options, macrodata.BASELINES), macrodata.open_results(options.out)
    tasks = macrodata.tasks(read_pack(options.pack), options.limit)
    run_detection(options, tasks, methods, results)
    finish(options, methods, results, summary.macrodata_lines(results.rows(), tasks, methods))


def run_parts(options: argparse.Namespace) -> None:
    results = parts.open_results(options.out)
    weights = _measure_pack(options, results, parts.measure, ["ours"])
    print("\n".join(summary.parts_lines(results.rows(), weights)))


def run_calibration(options: argparse.Namespace) -> None:
    results = calibration.open_results(options.out)
    _measure_pack(options, results, calibration.measure, options.methods)
    print("\n".join(summary.calibration_lines(results.rows())))


def _measure_pack(
    options: argparse.Namespace,
    results: Results,
    measure: Callable[..., None],
    methods: Sequence[str],
) -> str:
    """Measure methods on the tables of a pack; return the identity of the weights."""
    report, weights = reporter(options.quiet), ours.version(options.weights)
    tasks = macrodata.tasks(read_pack(options.pack), options.limit)

    def work(i: int, part: Results) -> None:
        measure(tasks[i :: options.jobs], part, options, weights, report)

    side_by_side(options.jobs, results, work)
    results.sort()
    labels = [f"ours {weights}" if name == "ours" else name for name in methods]
    note_machine(options.out, labels, describe_machine(options.device))
    return weights


def run_adbench(options: argparse.Namespace) -> None:
    methods, results = choose(options, adbench.BASELINES), adbench.open_results(options.out)
    if options.pack:
        tables = _tables(options, options.pack)
        tasks = adbench.pack_tasks(options.pack, options.seeds, options.settings, tables)
    else:
        folder, protocol = _folder(options), _protocol(options)
        tables = _tables(options, folder)
        tasks = adbench.folder_tasks(folder, options.seeds, options.settings, protocol, tables)
    run_detection(options, list(tasks), methods, results)
    finish(options, methods, results, summary.adbench_lines(results.rows(), methods))


def run_pack(options: argparse.Namespace) -> None:
    folder = _folder(options)
    tables = _tables(options, folder)
    adbench.write_pack(folder, options.out, options.seeds, _protocol(options), tables)


def _folder(options: argparse.Namespace) -> str:
    if not options.data:
        raise SystemExit("give the folder of the ADBench tables with --data or TABICED_DATA")
    return options.data


def _tables(options: argparse.Namespace, place: str) -> list[int] | None:
    if options.smallest is None:
        return options.tables
    return adbench.smallest_tables(place, options.smallest)


def _protocol(options: argparse.Namespace) -> str:
    return "no-resample" if options.no_resample else "paper"


def run_density(options: argparse.Namespace) -> None:
    methods, results = choose(options, density.BASELINES), density.open_results(options.out)
    report = reporter(options.quiet)
    stale = density.discard_stale(results, options.suites, range(options.tables))
    if stale:
        print(f"dropped {stale} results: the prior draws other tables now", file=sys.stderr)

    def work(i: int, part: Results) -> None:
        tables = range(i, options.tables, options.jobs)
        density.estimate(options.suites, methods, part, tables, options.force, report)

    side_by_side(options.jobs, results, work)
    finish(options, methods, results, summary.density_lines(results.rows(), methods))


def run_speed(options: argparse.Namespace) -> None:
    methods, results = choose(options, density.BASELINES), speed.open_results(options.out)
    grid = [(rows, columns) for rows in options.rows for columns in options.columns]
    speed.measure(grid, methods, results, options.repeats, options.force, reporter(options.quiet))
    finish(options, methods, results, summary.speed_lines(results.rows()))


def run_page(options: argparse.Namespace) -> None:
    from tabiced.bench.page import write_page

    write_page(options.results, options.out)


def run_card(options: argparse.Namespace) -> None:
    from tabiced.bench.card import write_card

    write_card(options.results)
