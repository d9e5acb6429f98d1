"""Numbers quoted from the paper's tables: for comparison, and for what cannot be run here."""

from pathlib import Path

from tabiced.bench.results import number, read_csv
from tabiced.bench.summary import Means

_FOLDER = Path(__file__).parent / "paper"
_SUITES = {  # (base class, categorical, augmented) of the paper's rows
    ("Gaussian mix.", "yes", "no"): "gaussian",
    ("Heavy-tailed mix.", "yes", "no"): "heavy_tails",
    ("Mix. with flows", "yes", "no"): "flows",
    ("All datasets", "no", "yes"): "perturbed_continuous",
    ("All datasets", "yes", "yes"): "perturbed",
}
_TABLES = {"pairwise_accuracy": "tab:density-pa", "kendall_tau": "tab:density-kt"}


def adbench(setting: str) -> Means:
    """Return {method: {idx: AUROC in percent}} of one setting; NaN where the paper has no value."""
    means: Means = {}
    for row in read_csv(_FOLDER / "adbench.csv"):
        if row["setting"] == setting:
            means.setdefault(row["method"], {})[row["idx"]] = number(row["auroc"])
    return means


def density(metric: str) -> Means:
    """Return {method: {suite: value}} for `pairwise_accuracy` or `kendall_tau`."""
    means: Means = {}
    for row in read_csv(_FOLDER / "density.csv"):
        if row["table"] == _TABLES[metric]:
            suite = _SUITES[row["base_class"], row["categorical"], row["augmented"]]
            means.setdefault(row["method"], {})[suite] = number(row["value"])
    return means
