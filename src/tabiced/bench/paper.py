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
_ABLATION_TABLES = {  # of the prior's ingredients and of the loss's terms
    "pairwise_accuracy": ("tab:ablation-prior", "tab:ablation-loss"),
    "kendall_tau": ("tab:prior_ablation_kendall", "tab:loss_ablation_kendall"),
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
    return _suites((_TABLES[metric],))


def ablation(metric: str) -> Means:
    """Return {variant: {suite: value}} under the paper's names, such as `w/o flow`."""
    return _suites(_ABLATION_TABLES[metric])


def _suites(tables: tuple[str, ...]) -> Means:
    means: Means = {}
    for row in read_csv(_FOLDER / "density.csv"):
        if row["table"] in tables:
            suite = _SUITES[row["base_class"], row["categorical"], row["augmented"]]
            means.setdefault(row["method"], {})[suite] = number(row["value"])
    return means
