"""Turn stored rows into means: what the commands print and the page shows."""

from collections.abc import Iterable, Sequence

import numpy as np

from tabiced.bench.density import PAPER_SUITES, SUITES
from tabiced.bench.macrodata import SETTINGS
from tabiced.bench.methods import Method
from tabiced.bench.parts import VARIANTS
from tabiced.bench.results import Row, number
from tabiced.bench.tasks import Task

Means = dict[str, dict[str, float]]
"""{method label: {column: mean}}"""


def label(row: Row | dict[str, str]) -> str:
    """Return `method options weights`, the parts that are empty left out."""
    return " ".join(filter(None, (row["method"], row["options"], row["weights"])))


def collect(rows: Iterable[Row], column: str, value: str) -> Means:
    """Return {label: {column: mean of value}}; a label with a failed row (NaN) gets NaN there."""
    cells: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        cells.setdefault(label(row), {}).setdefault(row[column], []).append(number(row[value]))
    return {
        name: {key: float(np.mean(values)) for key, values in parts.items()}
        for name, parts in cells.items()
    }


def macrodata_means(rows: Iterable[Row], value: str = "auroc") -> Means:
    """Return {label: {"BENCH/SETTING": percent}} with the bench `all` for every table together."""
    flat = []
    for row in rows:
        for bench in (row["bench"], "all"):
            flat.append({**row, "cell": f"{bench}/{row['setting']}"})
    return _percent(collect(flat, "cell", value))


def parts_means(rows: Iterable[Row], weights: str, value: str = "auroc") -> Means:
    """Return {variant: {setting: percent}} of some weights, the variants in their order."""
    mine = [r for r in rows if r["weights"] == weights]
    named = [{**r, "method": r["variant"], "options": "", "weights": ""} for r in mine]
    means = _percent(collect(named, "setting", value))
    return {name: means[name] for name in VARIANTS if name in means}


def parts_lines(rows: Iterable[Row], weights: str) -> list[str]:
    """Return the mean AUROC of the variants over the stored tables, as text."""
    means = parts_means(rows, weights)
    return ["mean AUROC", *text_table(means, list(means), list(SETTINGS), "{:.2f}")]


def calibration_means(rows: Iterable[Row], value: str = "false_alarms") -> Means:
    """Return {label: {"SETTING RATE": percent}}, means over the tables."""
    return _percent(
        collect([{**r, "cell": f"{r['setting']} {r['rate']}"} for r in rows], "cell", value)
    )


def calibration_lines(rows: Iterable[Row]) -> list[str]:
    """Return how many rows of either kind are called unusual, in percent, as text."""
    rows, lines = list(rows), []
    for value, title in (("false_alarms", "normal"), ("found", "anomalous")):
        means = calibration_means(rows, value)
        columns = list(dict.fromkeys(cell for parts in means.values() for cell in parts))
        lines.append(f"percent of {title} rows called unusual, by the rate asked for")
        lines += text_table(means, list(means), columns, "{:.2f}")
    return lines


def adbench_tables(rows: list[Row], protocol: str, setting: str, value: str = "auroc") -> Means:
    """Return {label: {idx: percent}}, each the mean over the seeds.

    Tables that are the same without resampling are taken over from the paper's protocol.
    """
    here = [row for row in rows if row["setting"] == setting]
    means = _percent(collect([r for r in here if r["protocol"] == "paper"], "idx", value))
    if protocol == "paper":
        return means
    small = _percent(collect([r for r in here if r["protocol"] == protocol], "idx", value))
    resampled = {idx for parts in small.values() for idx in parts}
    same = {
        name: {idx: v for idx, v in parts.items() if idx not in resampled}
        for name, parts in means.items()
    }
    return {name: same.get(name, {}) | parts for name, parts in small.items()}


def density_means(rows: Iterable[Row], value: str = "pairwise_accuracy") -> Means:
    """Return {label: {suite: mean}}."""
    return collect(rows, "suite", value)


def margins(means: Means, name: str) -> dict[str, float]:
    """Return a method's mean less the better of GMM-BIC and kNN, suite by suite."""
    rivals = [means[rival] for rival in ("GMM-BIC", "kNN") if rival in means]
    if len(rivals) < 2:
        return {}
    return {
        suite: means[name][suite] - max(rival[suite] for rival in rivals)
        for suite in PAPER_SUITES
        if suite in means[name] and all(suite in rival for rival in rivals)
    }


def _percent(means: Means) -> Means:
    return {name: {k: 100 * v for k, v in parts.items()} for name, parts in means.items()}


def _labels(methods: Sequence[Method]) -> list[str]:
    return [label(method.key) for method in methods]


def macrodata_lines(
    rows: Iterable[Row], tasks: Sequence[Task], methods: Sequence[Method]
) -> list[str]:
    """Return the mean AUROC of the methods over the tasks of this run, as text."""
    chosen = {tuple(map(str, task.key.values())) for task in tasks}
    rows = [r for r in rows if (r["bench"], r["dataset"], r["setting"]) in chosen]
    means = macrodata_means(rows)
    columns = sorted({cell for parts in means.values() for cell in parts})
    lines = [f"mean AUROC, {len(chosen) // 2} tables"]
    return lines + text_table(means, _labels(methods), columns, "{:.2f}")


def adbench_lines(rows: list[Row], methods: Sequence[Method]) -> list[str]:
    """Return mean AUROC and average precision over the stored tables, as text."""
    lines = []
    for protocol, setting in sorted({(r["protocol"], r["setting"]) for r in rows}):
        means = {
            name: {
                "auroc": _mean(parts),
                "ap": _mean(adbench_tables(rows, protocol, setting, "average_precision")[name]),
                "tables": float(len(parts)),
            }
            for name, parts in adbench_tables(rows, protocol, setting).items()
        }
        lines += [f"{protocol} {setting}"]
        lines += text_table(means, _labels(methods), ["auroc", "ap", "tables"], "{:.2f}")
    return lines


def _mean(parts: dict[str, float]) -> float:
    return float(np.nanmean(list(parts.values())))


def density_lines(rows: list[Row], methods: Sequence[Method]) -> list[str]:
    """Return accuracies, margins and errors in nats over the stored tables, as text."""
    accuracy, tau = density_means(rows), density_means(rows, "kendall_tau")
    suites = [suite for suite in SUITES if any(suite in parts for parts in accuracy.values())]
    names = _labels(methods)
    lines = ["pairwise accuracy", *text_table(accuracy, names, suites, "{:.4f}")]
    lines += ["Kendall's tau-b", *text_table(tau, names, suites, "{:.4f}")]
    nats = [suite for suite in suites if SUITES[suite].in_nats]
    if nats:
        for value, title in (("mean_error", "mean"), ("median_error", "median")):
            table = text_table(density_means(rows, value), names, nats, "{:.3f}")
            lines += [f"{title} absolute error of log_density in nats", *table]
    for name in names:
        margin = margins(accuracy, name) if name in accuracy else {}
        if margin and not name.startswith(("GMM-BIC", "kNN")):
            each = " ".join(f"{suite} {value:+.4f}" for suite, value in margin.items())
            lines.append(f"{name} over GMM-BIC and kNN: {each}, mean {_mean(margin):+.4f}")
    return lines


def speed_means(rows: Iterable[Row], value: str = "seconds") -> Means:
    """Return {label: {"ROWS x COLUMNS": seconds or megabytes}}."""
    return collect([{**r, "size": f"{r['rows']} x {r['columns']}"} for r in rows], "size", value)


def speed_lines(rows: list[Row]) -> list[str]:
    """Return time and memory of every stored method, as text."""
    lines = []
    for value, title, form in (
        ("seconds", "seconds to fit and score", "{:.3f}"),
        ("megabytes", "megabytes of memory that takes", "{:.0f}"),
    ):
        means = speed_means(rows, value)
        sizes = list(dict.fromkeys(size for parts in means.values() for size in parts))
        lines += [title, *text_table(means, list(means), sizes, form)]
    return lines


def text_table(means: Means, names: list[str], columns: list[str], form: str) -> list[str]:
    first = max([len(name) for name in names] + [8])
    widths = [max(len(column), 8) for column in columns]
    lines = [" " * first + "".join(f"  {c:>{w}}" for c, w in zip(columns, widths, strict=True))]
    for name in names:
        parts = means.get(name, {})
        values = [parts.get(column, float("nan")) for column in columns]
        cells = ["-" if np.isnan(value) else form.format(value) for value in values]
        lines.append(
            f"{name:{first}}" + "".join(f"  {c:>{w}}" for c, w in zip(cells, widths, strict=True))
        )
    return lines
