"""Tell in the card of the shipped weights what they score, from the stored results."""

import json
from pathlib import Path

import numpy as np

from tabiced.bench.density import PAPER_SUITES, SUITES
from tabiced.bench.ours import version
from tabiced.bench.results import read_csv
from tabiced.bench.summary import adbench_tables, density_means, macrodata_means, margins
from tabiced.weights import SHIPPED, read_card, write_atomically

Scores = dict[str, dict[str, float]]


def scores(results: Path) -> Scores:
    """Return the means of `ICED()` with the shipped weights, benchmark by benchmark."""
    ours, network = f"ours {version()}", f"ours {version(scoring=False)}"
    rows = {
        name: read_csv(path) if (path := results / f"{name}.csv").exists() else []
        for name in ("density", "adbench", "macrodata")
    }
    found: Scores = {}
    accuracy = density_means(rows["density"])
    if network in accuracy:
        found["density, pairwise accuracy"] = {
            suite: accuracy[network][suite] for suite in PAPER_SUITES if suite in accuracy[network]
        }
        found["density, margin over the better of GMM-BIC and kNN"] = margins(accuracy, network)
        errors = density_means(rows["density"], "mean_error")[network]
        found["log_density, mean error in nats"] = {
            name: errors[name] for name, suite in SUITES.items() if suite.in_nats and name in errors
        }
    for protocol, title in (("paper", "ADBench"), ("no-resample", "ADBench, not resampled")):
        for setting in ("ood", "anomaly"):
            tables = adbench_tables(rows["adbench"], protocol, setting).get(ours)
            if tables:
                found.setdefault(title, {})[setting] = float(np.mean(list(tables.values())))
    pack = macrodata_means(rows["macrodata"]).get(ours, {})
    if pack:
        found["macrOData pack"] = {s: pack[f"all/{s}"] for s in ("clean", "contaminated")}
    return {name: {k: round(v, 4) for k, v in parts.items()} for name, parts in found.items()}


def write_card(results: Path, card: Path = SHIPPED) -> None:
    """Write the card anew, with the scores; the weights stay as they are."""
    facts = {**read_card(card), "scores": scores(results)}
    facts["sha256"] = facts.pop("sha256")  # last, as in every card
    write_atomically(card, json.dumps(facts, indent=2).encode() + b"\n")
