"""Write `docs/benchmarks.md` from the stored results: no number on it is typed by hand."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tabiced.bench import ablation, foundation, paper, prose
from tabiced.bench.density import PAPER_SUITES, SUITES
from tabiced.bench.metrics import median_ranks
from tabiced.bench.ours import version
from tabiced.bench.results import Row, read_csv
from tabiced.bench.summary import (
    Means,
    adbench_tables,
    density_means,
    label,
    macrodata_means,
    margins,
    speed_means,
)

OURS = "**tabiced**"
SETTING_TITLES = {
    "ood": "Clean context (the paper's out-of-distribution setting)",
    "anomaly": "Contaminated context (the paper's anomaly setting)",
}


def write_page(results: Path, out: Path) -> None:
    """Write the page and its charts."""
    from tabiced.bench.charts import draw_adbench

    shipped = version(), version(scoring=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_text(results, *shipped))
    rows = _rows(results / "adbench.csv", shipped)
    for setting in SETTING_TITLES:
        measured, quoted, tables = adbench_values(rows, "paper", setting)
        if tables:
            draw_adbench(measured, quoted, out.parent / "images" / f"adbench_{setting}.svg")


def page_text(results: Path, *shipped: str) -> str:
    """Return the page as Markdown; `shipped` are names of the weights whose results are ours."""
    sections = [
        prose.INTRODUCTION.format(ours=OURS, shipped=shipped[0]),
        _density_section(_rows(results / "density.csv", shipped)),
        _adbench_section(_rows(results / "adbench.csv", shipped)),
        _macrodata_section(_rows(results / "macrodata.csv", shipped)),
        _ablation_section(results),
        _speed_section(_rows(results / "speed.csv", shipped)),
        _machines_section(results, shipped),
        _missing_section(results / "unavailable.csv"),
    ]
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _rows(path: Path, shipped: tuple[str, ...]) -> list[Row]:
    """Return the rows of baselines and of the shipped weights, ours named as the page names it."""
    rows = read_csv(path) if path.exists() else []
    kept = [row for row in rows if row["weights"] in ("", *shipped)]
    return [_renamed(row) for row in kept]


def _renamed(row: Row) -> Row:
    if not row["weights"]:
        return row
    name = OURS if row["method"] == "ours" else "tabiced, bare network"
    return {**row, "method": name, "weights": ""}


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, first column to the left, the others to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cells(parts: dict[str, float], columns: list[str], form: Callable[[float], str]) -> list[str]:
    return [form(parts[c]) if c in parts and parts[c] == parts[c] else "-" for c in columns]


def _four(value: float) -> str:
    return f"{value:.4f}"


def _two(value: float) -> str:
    return f"{value:.2f}"


def _italic(text: str) -> str:
    return text if text == "-" else f"*{text}*"


def _with_mean(parts: dict[str, float], columns: list[str]) -> dict[str, float]:
    """Add the mean over the columns where all of them are there."""
    if any(column not in parts for column in columns):
        return parts
    return {**parts, "mean": float(np.mean([parts[column] for column in columns]))}


def _ours_first(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: ("tabiced" not in name, len(name) if "=" in name else 0))


def _density_section(rows: list[Row]) -> str:
    if not rows:
        return ""
    columns = [*PAPER_SUITES, "mean"]
    header = ["", *(SUITES[suite].title for suite in PAPER_SUITES), "mean"]
    parts = [prose.DENSITY.strip()]
    for metric, title in (
        ("pairwise_accuracy", "### Pairwise accuracy (ties count half)"),
        ("kendall_tau", "### Kendall's tau-b"),
    ):
        means = density_means(rows, metric)
        lines = [
            [name, *_cells(_with_mean(means[name], list(PAPER_SUITES)), columns, _four)]
            for name in _ours_first(list(means))
        ]
        for name, values in paper.density(metric).items():
            cells = _cells(_with_mean(values, list(PAPER_SUITES)), columns, _four)
            lines.append([f"*{name}, paper*", *map(_italic, cells)])
        parts += [title, markdown(header, lines)]
    parts.append(_margin_table(density_means(rows)))
    parts.append(_low_table(rows))
    return "\n\n".join(filter(None, parts))


def _margin_table(means: Means) -> str:
    quoted = paper.density("pairwise_accuracy")
    lines = []
    for name in (name for name in _ours_first(list(means)) if "tabiced" in name):
        margin = _with_mean(margins(means, name), list(PAPER_SUITES))
        cells = _cells(margin, [*PAPER_SUITES, "mean"], lambda v: f"{v:+.4f}")
        lines.append([f"{name} over the better of GMM-BIC and kNN", *cells])
    gaps = {s: quoted["ICED"][s] - quoted["GMM-BIC"][s] for s in PAPER_SUITES}
    cells = _cells(
        _with_mean(gaps, list(PAPER_SUITES)), [*PAPER_SUITES, "mean"], lambda v: f"*{v:+.4f}*"
    )
    lines.append(["*ICED over GMM-BIC, paper*", *cells])
    header = ["", *(SUITES[suite].title for suite in PAPER_SUITES), "mean"]
    return "### Margins in pairwise accuracy\n\n" + markdown(header, lines)


def _low_table(rows: list[Row]) -> str:
    suites = [suite for suite in SUITES if SUITES[suite].in_nats]
    means = {
        value: density_means(rows, value)
        for value in ("pairwise_accuracy", "mean_error", "median_error")
    }
    forms = dict(zip(means, (_four, _two, _two), strict=True))
    names = [name for name, parts in means["pairwise_accuracy"].items() if parts.keys() & suites]
    if not names:
        return ""
    lines = [
        [name]
        + [cell for s in suites for v in means for cell in _cells(means[v][name], [s], forms[v])]
        for name in _ours_first(names)
    ]
    header = [""]
    for suite in suites:
        header += [f"{SUITES[suite].title}: accuracy", "mean error", "median error"]
    return prose.FEW_COLUMNS.strip() + "\n\n" + markdown(header, lines)


def adbench_values(rows: list[Row], protocol: str, setting: str) -> tuple[Means, Means, list[str]]:
    """Return what was measured and what is quoted over the same tables, and these tables."""
    measured = adbench_tables(rows, protocol, setting)
    tables = sorted({idx for parts in measured.values() for idx in parts}, key=int)
    quoted = {
        name: {idx: parts[idx] for idx in tables if idx in parts}
        for name, parts in paper.adbench(setting).items()
    }
    return measured, quoted, tables


def _adbench_section(rows: list[Row]) -> str:
    if not rows:
        return ""
    parts = [prose.ADBENCH.strip()]
    for setting, title in SETTING_TITLES.items():
        parts += [f"### {title}", _adbench_table(rows, "paper", setting)]
        parts += [
            f"![Mean AUROC by method](images/adbench_{setting}.svg)",
            _by_table(rows, setting),
        ]
    for setting, title in SETTING_TITLES.items():
        table = _adbench_table(rows, "no-resample", setting)
        if table:
            parts += [f"### {title}, small tables left as they are", table]
    return "\n\n".join(filter(None, parts))


def _adbench_table(rows: list[Row], protocol: str, setting: str) -> str:
    measured, quoted, tables = adbench_values(rows, protocol, setting)
    if not measured:
        return ""
    if protocol != "paper":  # the paper has no such values
        quoted = {}
    precision = adbench_tables(rows, protocol, setting, "average_precision")
    shown: Means = {
        **{name: parts for name, parts in quoted.items() if name not in measured},
        **measured,
    }
    here = [row for row in rows if (row["protocol"], row["setting"]) == (protocol, setting)]
    seeds = {name: str(len({r["seed"] for r in here if label(r) == name})) for name in measured}
    grid = [[parts.get(idx, float("nan")) for parts in shown.values()] for idx in tables]
    ranks = dict(zip(shown, median_ranks(grid), strict=True))
    lines = []
    for name in sorted(shown, key=lambda name: -_mean(shown[name])):
        own = name in measured
        lines.append(
            [
                name if own else f"*{name}*",
                _two(_mean(measured[name])) if own else "",
                _italic(_two(_mean(quoted[name]))) if name in quoted else "",
                f"{ranks[name]:.1f}",
                _two(_mean(precision[name])) if own else "",
                str(sum(value == value for value in shown[name].values())),
                seeds.get(name, ""),
            ]
        )
    header = ["", "mean AUROC", "*in the paper*", "median rank", "average precision"]
    return markdown([*header, "tables", "seeds"], lines)


def _mean(parts: dict[str, float]) -> float:
    return float(np.nanmean(list(parts.values())))


def _by_table(rows: list[Row], setting: str) -> str:
    measured, quoted, tables = adbench_values(rows, "paper", setting)
    if not measured:
        return ""
    names = {row["idx"]: row["dataset"] for row in rows}
    own = _ours_first(list(measured))
    lines = [
        [f"{idx} {names[idx]}"]
        + [cell for name in own for cell in _cells(measured[name], [idx], _two)]
        + [_italic(cell) for name in QUOTED for cell in _cells(quoted[name], [idx], _two)]
        for idx in tables
    ]
    table = markdown(["", *own, *(f"*{name}*" for name in QUOTED)], lines)
    return f"<details><summary>Table by table</summary>\n\n{table}\n\n</details>"


QUOTED = ("ICED", "TACTIC-C", "TACTIC-N", "TabICL", "TabPFN", "MAF")
"""Columns of the paper shown table by table: its own method and the leaders of either setting"""


def _macrodata_section(rows: list[Row]) -> str:
    if not rows:
        return ""
    means = macrodata_means(rows)
    columns = [f"{b}/{s}" for b in ("all", "odd", "ovr") for s in ("clean", "contaminated")]
    names = sorted(means, key=lambda name: -means[name]["all/clean"])
    titles = {"all": "all", "odd": "OddBench", "ovr": "OvRBench"}
    header = ["", *(f"{titles[c.split('/')[0]]}, {c.split('/')[1]}" for c in columns)]
    count = len({(row["bench"], row["dataset"]) for row in rows})
    lines = [[name, *_cells(means[name], columns, _two)] for name in names]
    return prose.MACRODATA.format(count=count) + "\n" + markdown(header, lines)


def _speed_section(rows: list[Row]) -> str:
    """Show seconds for ours and, for the others, multiples of that."""
    seconds = speed_means(rows)
    if OURS not in seconds:
        return ""
    own = seconds[OURS]
    lines = [[f"{OURS}, seconds", *(f"{value:.2f}" for value in own.values())]]
    for name, parts in seconds.items():
        if name != OURS:
            ratios = {size: parts[size] / own[size] for size in parts if size in own}
            lines.append([name, *_cells(ratios, list(own), lambda ratio: f"{ratio:.2g} x")])
    return prose.SPEED + "\n" + markdown(["context", *own], lines)


def _ablation_section(results: Path) -> str:
    path = results / "ablation.csv"
    rows = read_csv(path) if path.exists() else []
    if not rows:
        return ""
    budgets = sorted({row["budget"] for row in rows}, key=lambda name: float(name.split("-")[0]))
    parts = [
        prose.ABLATION.format(
            baseline=ablation.VARIANTS[ablation.BASELINE].title,
            again=ablation.VARIANTS["another-seed"].title,
            commands="\n".join(f"tabiced bench ablation {o}" for o in _different(rows, "options")),
        ).strip()
    ]
    for budget in budgets:
        parts.append(_ablation_tables([row for row in rows if row["budget"] == budget]))
    stored = {row["variant"] for row in rows}
    reasons = foundation.open_reasons(results).rows()
    parts += [
        f"{ablation.VARIANTS[row['method']].title} did not run: {row['reason']}."
        for row in reasons
        if row["benchmark"] == "ablation" and row["method"] not in stored
    ]
    return "\n\n".join(parts)


def _different(rows: list[Row], column: str) -> list[str]:
    return sorted({row[column] for row in rows})


def _ablation_tables(rows: list[Row]) -> str:
    """Show both metrics and what changes against the baseline, the paper's values below ours."""
    tables = max(int(row["tables"]) for row in rows)
    rows = [row for row in rows if int(row["tables"]) == tables]  # the others are not comparable
    steps = {row["variant"]: f"{int(row['steps']):,}" for row in rows}
    header = ["", *(SUITES[suite].title for suite in PAPER_SUITES), "mean"]
    text = prose.ABLATION_BUDGET.format(
        budget=rows[0]["budget"].replace("-", " "),
        machines="; ".join(_different(rows, "machine")),
        tables=tables,
    )
    parts = [text.strip()]
    for metric, title in (
        ("pairwise_accuracy", "Pairwise accuracy"),
        ("kendall_tau", "Kendall's tau-b"),
    ):
        lines = _ablation_lines(
            ablation.variant_means(rows, metric), paper.ablation(metric), _four, steps
        )
        parts += [f"#### {title}", markdown([*header, "steps"], lines)]
    own, quoted = (
        ablation.variant_means(rows, "pairwise_accuracy"),
        paper.ablation("pairwise_accuracy"),
    )
    if ablation.BASELINE in own:
        changes = _changes(own, ablation.BASELINE)
        theirs = _changes(quoted, ablation.VARIANTS[ablation.BASELINE].quoted)
        lines = _ablation_lines(changes, theirs, lambda value: f"{value:+.4f}")
        parts += ["#### Change in pairwise accuracy", markdown(header, lines)]
    return "\n\n".join(parts)


def _changes(means: Means, base: str) -> Means:
    """Return the means of all other rows less those of one."""
    return {
        name: {s: value - means[base][s] for s, value in parts.items() if s in means[base]}
        for name, parts in means.items()
        if name != base
    }


def _ablation_lines(
    own: Means,
    quoted: Means,
    form: Callable[[float], str],
    steps: dict[str, str] | None = None,
) -> list[list[str]]:
    columns, lines = [*PAPER_SUITES, "mean"], []
    for name, parts in own.items():
        variant = ablation.VARIANTS[name]
        cells = _cells(_with_mean(parts, list(PAPER_SUITES)), columns, form)
        lines.append([variant.title, *cells, *([steps[name]] if steps else [])])
        if variant.quoted:
            parts = _with_mean(quoted[variant.quoted], list(PAPER_SUITES))
            cells = [_italic(cell) for cell in _cells(parts, columns, form)]
            lines.append([f"*{variant.title}, paper*", *cells, *([""] if steps else [])])
    return lines


def _machines_section(results: Path, shipped: tuple[str, ...]) -> str:
    lines = []
    for path in sorted(results.glob("*.machines.json")):
        groups: dict[str, list[str]] = {}
        for name, machine in json.loads(path.read_text()).items():
            plain = " ".join(word for word in name.split() if word not in shipped)
            if name.startswith(("ours", "network")) and plain == name:
                continue
            groups.setdefault(machine, []).append(plain)
        for machine, names in groups.items():
            lines.append(f"- {path.name.split('.')[0]}: {', '.join(sorted(names))} on {machine}")
    return "## Machines\n\n" + "\n".join(lines) if lines else ""


def _missing_section(path: Path) -> str:
    """Add to the prose a line for each model that could not run, with the stored reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in read_csv(path) if path.exists() else []:
        if row["benchmark"] == "ablation":  # told in its section; no weights are missing there
            continue
        reasons.setdefault((row["method"], row["reason"]), []).append(row["benchmark"])
    lines = [
        f"- {name} did not run ({', '.join(benchmarks)}): {reason}."
        for (name, reason), benchmarks in sorted(reasons.items())
    ]
    return "\n".join([prose.MISSING.strip(), *lines])
