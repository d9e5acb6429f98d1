"""What each part of the training is worth: networks trained without it, for the same time each.

    python -m tabiced.bench ablation --device cuda --compile --minutes 6
    python -m tabiced.bench ablation --device cuda --variants everything without-flows --keep FOLDER
    python -m tabiced.bench ablation --device cuda --compile --minutes 22 --beside 4 \\
        --variants everything without-categorical without-structural without-repeats

Every variant is trained from scratch by `tabiced.pretrain` and then ranks the queries of the five
density suites of the paper, as the bare network. Weights stay in the folder `--keep`: training that
was interrupted goes on there, and what is trained is not trained again. `--tables 0` trains only.
With `--beside`, several variants are trained at a time and share the device evenly: 22 minutes for
four are 5.5 minutes of the device for each. Together they use it better than one alone, so compare
only what was trained beside others; each takes up to 30 GiB of the device's memory.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tabiced._extras import MissingExtraError
from tabiced.bench import density
from tabiced.bench.foundation import Unavailable, runnable
from tabiced.bench.ours import bare_network
from tabiced.bench.results import Results, Row, describe_machine, number
from tabiced.bench.summary import Means, density_means, label, text_table
from tabiced.weights import read_card, write_atomically

KEY = ("variant", "budget", "suite")
VALUES = (
    *("tables", "check", "pairwise_accuracy", "kendall_tau"),  # means over so many tables
    *("weights", "steps", "trained_tables", "options", "machine"),  # of the training
)
MINUTES = 6.0
Report = Callable[[str], None] | None


@dataclass(frozen=True)
class Variant:
    """One way to train: the options of `tabiced.pretrain` that differ from the defaults."""

    name: str
    title: str
    arguments: tuple[str, ...] = ()
    quoted: str = ""  # the paper's name for it

    @property
    def needs_tabicl(self) -> bool:
        return "tabicl" in self.arguments


def _without(ingredient: str, words: str, quoted: str = "") -> Variant:
    name = f"without-{ingredient.replace('_', '-')}"
    return Variant(name, f"without {words}", ("--without", ingredient), quoted)


BASELINE = "everything"
VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(BASELINE, "everything", quoted="full prior"),
        _without("heavy_tails", "heavy tails", "w/o h-tail"),
        _without("gaussian", "Gaussian mixtures", "w/o Gauss"),
        _without("flows", "flows", "w/o flow"),
        _without("categorical", "categories", "w/o cat"),
        _without("perturbation", "perturbation", "w/o augm"),
        Variant(
            "without-ranking", "without the rank term", ("--loss-without", "ranking"), "w/o rank"
        ),
        Variant(
            "without-regression",
            "without the regression term",
            ("--loss-without", "regression"),
            "w/o MSE",
        ),
        Variant("tabicl-encoder", "TabICL's encoder, from scratch", ("--encoder", "tabicl")),
        _without("contamination", "contamination"),
        _without("structural", "structural tables"),
        _without("repeats", "repeats"),
        Variant("paper-prior", "the paper's prior alone", ("--preset", "paper")),
        Variant("paper-loss", "the paper's loss", ("--loss", "paper")),
        # How far two trainings of the same kind lie apart: smaller differences mean nothing.
        Variant("another-seed", "everything, another seed", ("--seed", "2")),
    )
}
TOY = ("--size", "tiny", "--curriculum", "toy", "--row-budget", "300")
QUICK: dict[str, object] = {
    "variants": (BASELINE, "without-flows", "without-ranking", "tabicl-encoder"),
    "steps": 2,
    "tables": 1,
}


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this benchmark knows to its command."""
    add = parser.add_argument
    names = list(VARIANTS)
    text = f"all, or some of {', '.join(names)}"
    add("--variants", nargs="+", choices=names, default=names, metavar="NAME", help=text)
    add("--minutes", type=float, default=MINUTES, help="training time of each variant")
    add("--tables", type=int, default=density.TABLES, help="of each suite; 0: train only")
    add("--beside", type=int, default=1, help="variants that are trained at a time")
    add("--compile", action="store_true", help="as in pretraining; its time counts")
    add("--keep", type=Path, help="folder of the weights, by default build/ablation")
    parser.set_defaults(steps=0)


def budget(options: argparse.Namespace) -> str:
    """Return how long each variant has the device, as results and folders are called."""
    if options.steps:
        return f"{options.steps}-steps"
    if options.beside > 1:
        return f"{options.minutes / options.beside:g}-minutes-shared"
    return f"{options.minutes:g}-minutes"


def told(name: str) -> str:
    """Return a budget in words, such as "6 minutes" or "5.5 minutes of a shared device"."""
    number, unit, *shared = name.split("-")
    return f"{number} {unit}" + (" of a shared device" if shared else "")


def said(options: argparse.Namespace) -> str:
    """Return the words of the command line that tell how the variants were trained."""
    if options.steps:
        return "--quick"
    words = f"--minutes {options.minutes:g} --device {options.device}"
    words += " --compile" * options.compile
    if options.beside > 1:  # which variants shared the device is part of it
        words += f" --beside {options.beside} --variants {' '.join(options.variants)}"
    return words


def checked(variant: Variant) -> Variant:
    """Return the variant, or raise `Unavailable` where it cannot be trained here."""
    if variant.needs_tabicl:
        try:
            importlib.import_module("tabiced.tabicl_encoder")
        except MissingExtraError as error:
            package = (error.name or "tabicl").partition(".")[0]
            raise Unavailable(f"package not installed ({package})") from error
        except ImportError as error:
            raise Unavailable(f"package cannot be imported ({error})") from error
    return variant


def pretraining(variant: Variant, options: argparse.Namespace, folder: Path) -> list[str]:
    """Return the command that trains a variant."""
    length = ["--minutes", f"{options.minutes:g}"]
    if options.steps:
        length = ["--steps", str(options.steps), *TOY]
    command = [sys.executable, "-m", "tabiced.pretrain", "--run", str(folder), *variant.arguments]
    command += [*length, "--evaluation-tables", "0", "--device", options.device]
    return command + ["--compile"] * options.compile


def train(
    variant: Variant, options: argparse.Namespace, folder: Path, report: Report
) -> dict[str, object] | None:
    """Train a variant unless that is done; return what is known of the training, None if it failed.

    Each has a process of its own with empty caches: none may profit from what another compiled.
    """
    end = folder / "trained.json"
    if end.exists():
        return json.loads(end.read_text())
    if report:
        report(f"{variant.name}: training for {told(budget(options))}, see {folder / 'log.csv'}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        caches = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        status = subprocess.run(
            pretraining(variant, options, folder),
            env={**os.environ, **caches},
            stdout=None if report and options.beside == 1 else subprocess.DEVNULL,
        ).returncode
    if status:
        print(f"{variant.name}: training ended with status {status}", file=sys.stderr, flush=True)
        return None
    card = read_card(folder / "network.json")
    facts = {
        "steps": card["step"],
        "trained_tables": card["tables"],
        "options": said(options),
        "machine": describe_machine(options.device),
    }
    write_atomically(end, json.dumps(facts, indent=1).encode() + b"\n")
    # Weights are all that scoring needs; a checkpoint has eight times their size.
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    return facts


def score(folder: Path, options: argparse.Namespace) -> tuple[str, dict[str, dict[str, float]]]:
    """Return the weights' identity and, for each suite, the means over its tables.

    Single tables are stored beside the weights, so that an interrupted scoring goes on.
    """
    method = bare_network(None, folder / "network.json", options.device)
    store, tables = density.open_results(folder / "density.csv"), range(options.tables)
    density.discard_stale(store, density.PAPER_SUITES, tables)
    density.estimate(density.PAPER_SUITES, [method], store, tables, options.force)
    rows = [row for row in store.rows() if int(row["table"]) in tables]
    values = ("check", "pairwise_accuracy", "kendall_tau")
    means = {value: density_means(rows, value)[label(method.key)] for value in values}
    return method.weights, {
        suite: {value: means[value][suite] for value in values} for suite in density.PAPER_SUITES
    }


def keys(variant: Variant, options: argparse.Namespace) -> list[dict[str, str]]:
    """Return the keys of a variant's rows, one for each suite."""
    named = {"variant": variant.name, "budget": budget(options)}
    return [{**named, "suite": suite} for suite in density.PAPER_SUITES]


def is_stored(variant: Variant, options: argparse.Namespace, results: Results) -> bool:
    rows = [results.get(key) for key in keys(variant, options)]
    return all(row is not None and int(row["tables"]) == options.tables for row in rows)


def discard_stale(results: Results, tables: int) -> int:
    """Drop the means over tables that the prior no longer draws as it did; return how many."""
    if not tables or not results.rows():
        return 0
    current = {
        suite: np.mean(
            [
                density.mean_log_density(density.draw(density.SUITES[suite], i))
                for i in range(tables)
            ]
        )
        for suite in density.PAPER_SUITES
    }

    def is_stale(row: Row) -> bool:
        same = np.isclose(number(row["check"]), current[row["suite"]], rtol=1e-3)
        return int(row["tables"]) == tables and not bool(same)

    return results.discard(is_stale)


def measure(
    variant: Variant,
    folder: Path,
    facts: dict[str, object],
    options: argparse.Namespace,
    results: Results,
    report: Report,
) -> bool:
    """Score a trained variant and store the means; tell whether that worked."""
    try:
        weights, means = score(folder, options)
    except RuntimeError as error:  # such as too little memory: the others shall be measured
        print(f"{variant.name}: scoring failed: {error}", file=sys.stderr, flush=True)
        return False
    for key in keys(variant, options):
        count = {"tables": options.tables, "weights": weights}
        results.add({**key, **count, **means[key["suite"]], **facts})
    if report:
        each = " ".join(f"{s} {parts['pairwise_accuracy']:.4f}" for s, parts in means.items())
        report(f"{variant.name}: {facts['steps']} steps, {each}")
    return True


def run(options: argparse.Namespace, report: Report) -> None:
    """Train and score what the command line asks for and print the means."""
    keep = options.keep or Path("build/quick/ablation" if options.quick else "build/ablation")
    results = open_results(options.out)
    stale = discard_stale(results, options.tables)
    if stale:
        print(f"dropped {stale} results: the prior draws other tables now", file=sys.stderr)
    chosen = [VARIANTS[name] for name in options.variants]
    todo = [v for v in chosen if options.force or not is_stored(v, options, results)]
    todo = runnable({v.name: partial(checked, v) for v in todo}, "ablation", options.out.parent)
    if options.beside < 1 or len(todo) % options.beside:
        raise SystemExit(
            f"{len(todo)} variants cannot be trained {options.beside} at a time with even shares: "
            "choose other --variants or another number for --beside"
        )
    failed = []
    for start in range(0, len(todo), options.beside):
        together = todo[start : start + options.beside]
        folders = [keep / budget(options) / variant.name for variant in together]
        with ThreadPoolExecutor(options.beside) as threads:
            trained = threads.map(lambda v, f: train(v, options, f, report), together, folders)
        for variant, folder, facts in zip(together, folders, trained, strict=True):
            if facts is None or (
                options.tables and not measure(variant, folder, facts, options, results, report)
            ):
                failed.append(variant.name)
    if results.rows():
        results.sort()
    if options.tables:
        print("\n".join(lines(results.rows(), budget(options))), flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; run again to go on with these")


def variant_means(rows: Iterable[Row], value: str) -> Means:
    """Return {variant: {suite: mean}} in the order of `VARIANTS`."""
    means: Means = {}
    for row in rows:
        means.setdefault(row["variant"], {})[row["suite"]] = number(row[value])
    return {name: means[name] for name in VARIANTS if name in means}


def lines(rows: Sequence[Row], trained: str) -> list[str]:
    """Return the stored means of variants that were trained so long, as text."""
    here = [row for row in rows if row["budget"] == trained]
    text: list[str] = []
    if not here:
        return text
    for value, title in (
        ("pairwise_accuracy", "pairwise accuracy"),
        ("kendall_tau", "Kendall's tau-b"),
    ):
        means = variant_means(here, value)
        table = text_table(means, list(means), list(density.PAPER_SUITES), "{:.4f}")
        text += [f"{title}, trained for {told(trained)}", *table]
    return text
