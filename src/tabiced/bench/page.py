"""Write `docs/benchmarks.md` from the stored results: no number on it is typed by hand."""

import json
import math
from pathlib import Path

import numpy as np

from tabiced.bench import paper, prose
from tabiced.bench.density import PAPER_SUITES, SUITES
from tabiced.bench.macrodata import SETTINGS
from tabiced.bench.markdown import cells, four, italic, markdown, ours_first, two, with_mean
from tabiced.bench.metrics import median_ranks
from tabiced.bench.ours import version
from tabiced.bench.page_ablation import ablation_section
from tabiced.bench.page_augmentation import augmentation_bars, augmentation_section
from tabiced.bench.page_calibration import calibration_section
from tabiced.bench.parts import VARIANTS
from tabiced.bench.results import Row, read_csv
from tabiced.bench.speed import QUERIES
from tabiced.bench.summary import (
    Means,
    adbench_tables,
    density_means,
    label,
    macrodata_means,
    margins,
    parts_means,
    speed_means,
)
from tabiced.weights import read_card

OURS = "**tabiced**"
SETTING_TITLES = {
    "ood": "Clean context (the paper's out-of-distribution setting)",
    "anomaly": "Contaminated context (the paper's anomaly setting)",
}


def write_page(results: Path, out: Path) -> None:
    """Write the page and its charts."""
    from tabiced.bench.charts import draw_bars

    shipped = version(), version(scoring=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_text(results, *shipped))
    rows = _rows(results / "adbench.csv", shipped)
    for setting in SETTING_TITLES:
        measured, quoted, tables = adbench_values(rows, "paper", setting)
        if tables:
            what = "mean AUROC, percent (pale: quoted from the paper)"
            image = out.parent / "images" / f"adbench_{setting}.svg"
            draw_bars(_over_tables(measured), _over_tables(quoted), what, image)
    gains = augmentation_bars(_rows(results / "augmentation.csv", shipped), OURS)
    if gains:
        what = "gain in balanced accuracy, points (pale: quoted from the paper)"
        draw_bars(*gains, what, out.parent / "images" / "augmentation.svg")
    size, seconds = _speed_bars(_rows(results / "speed.csv", shipped))
    if seconds:
        what = f"seconds for a context of {size} and {QUERIES} queries"
        draw_bars(seconds, {}, what, out.parent / "images" / "runtime.svg", costs=True)


def page_text(results: Path, *shipped: str) -> str:
    """Return the page as Markdown; `shipped` are names of the weights whose results are ours."""
    sections = [
        prose.INTRODUCTION.format(ours=OURS, shipped=shipped[0]),
        _density_section(_rows(results / "density.csv", shipped)),
        _adbench_section(_rows(results / "adbench.csv", shipped)),
        _macrodata_section(_rows(results / "macrodata.csv", shipped)),
        _parts_section(results / "parts.csv", shipped[0]),
        calibration_section(_rows(results / "calibration.csv", shipped)),
        augmentation_section(_rows(results / "augmentation.csv", shipped), OURS),
        ablation_section(results),
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
            [name, *cells(with_mean(means[name], list(PAPER_SUITES)), columns, four)]
            for name in ours_first(list(means))
        ]
        for name, values in paper.density(metric).items():
            told = cells(with_mean(values, list(PAPER_SUITES)), columns, four)
            lines.append([f"*{name}, paper*", *map(italic, told)])
        parts += [title, markdown(header, lines)]
    parts.append(_margin_table(density_means(rows)))
    parts.append(_low_table(rows))
    return "\n\n".join(filter(None, parts))


def _margin_table(means: Means) -> str:
    quoted = paper.density("pairwise_accuracy")
    lines = []
    for name in (name for name in ours_first(list(means)) if "tabiced" in name):
        margin = with_mean(margins(means, name), list(PAPER_SUITES))
        told = cells(margin, [*PAPER_SUITES, "mean"], lambda v: f"{v:+.4f}")
        lines.append([f"{name} over the better of GMM-BIC and kNN", *told])
    gaps = {s: quoted["ICED"][s] - quoted["GMM-BIC"][s] for s in PAPER_SUITES}
    told = cells(
        with_mean(gaps, list(PAPER_SUITES)), [*PAPER_SUITES, "mean"], lambda v: f"*{v:+.4f}*"
    )
    lines.append(["*ICED over GMM-BIC, paper*", *told])
    header = ["", *(SUITES[suite].title for suite in PAPER_SUITES), "mean"]
    return "### Margins in pairwise accuracy\n\n" + markdown(header, lines)


def _low_table(rows: list[Row]) -> str:
    suites = [suite for suite in SUITES if SUITES[suite].in_nats]
    means = {
        value: density_means(rows, value)
        for value in ("pairwise_accuracy", "mean_error", "median_error")
    }
    forms = dict(zip(means, (four, two, two), strict=True))
    names = [name for name, parts in means["pairwise_accuracy"].items() if parts.keys() & suites]
    if not names:
        return ""
    lines = [
        [name]
        + [cell for s in suites for v in means for cell in cells(means[v][name], [s], forms[v])]
        for name in ours_first(names)
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
        parts.append(_seen_note(rows, setting))
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
                two(_mean(measured[name])) if own else "",
                italic(two(_mean(quoted[name]))) if name in quoted else "",
                f"{ranks[name]:.1f}",
                two(_mean(precision[name])) if own else "",
                str(sum(value == value for value in shown[name].values())),
                seeds.get(name, ""),
            ]
        )
    header = ["", "mean AUROC", "*in the paper*", "median rank", "average precision"]
    return markdown([*header, "tables", "seeds"], lines)


def _seen_note(rows: list[Row], setting: str) -> str:
    """Say which tables our scorer learned from under another name, and the mean without them."""
    measured, quoted, tables = adbench_values(rows, "paper", setting)
    ours = measured.get(OURS, {})
    names = {row["idx"]: f"{row['idx']}_{row['dataset']}" for row in rows}
    known = read_card().get("scorer", {}).get("seen", {})
    seen = {i: source for i, source in known.items() if i in ours}
    if not seen:
        return ""
    told = ", ".join(f"{names[i]} ({source})" for i, source in seen.items())
    means = {
        name: _mean({i: value for i, value in parts.items() if i not in seen})
        for name, parts in {**quoted, **measured}.items()
        if len(parts) == len(tables)
    }
    order = sorted(means, key=lambda name: -means[name])[:3]
    values = {name: two(means[name]) for name in order}
    leaders = ", ".join(
        f"{name} {value if name in measured else italic(value)}" for name, value in values.items()
    )
    return prose.SEEN.strip().format(tables=told, leaders=leaders)


def _over_tables(means: Means) -> dict[str, float]:
    return {name: _mean(parts) for name, parts in means.items()}


def _mean(parts: dict[str, float]) -> float:
    return float(np.nanmean(list(parts.values())))


def _by_table(rows: list[Row], setting: str) -> str:
    measured, quoted, tables = adbench_values(rows, "paper", setting)
    if not measured:
        return ""
    names = {row["idx"]: row["dataset"] for row in rows}
    own = ours_first(list(measured))
    lines = [
        [f"{idx} {names[idx]}"]
        + [cell for name in own for cell in cells(measured[name], [idx], two)]
        + [italic(cell) for name in QUOTED for cell in cells(quoted[name], [idx], two)]
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
    lines = [[name, *cells(means[name], columns, two)] for name in names]
    return prose.MACRODATA.format(count=count) + "\n" + markdown(header, lines)


def _parts_section(path: Path, shipped: str) -> str:
    means = parts_means(read_csv(path) if path.exists() else [], shipped)
    if not means:
        return ""
    lines = [[VARIANTS[name].title, *cells(m, list(SETTINGS), two)] for name, m in means.items()]
    return prose.PARTS.strip() + "\n\n" + markdown(["", *SETTINGS], lines)


def _speed_section(rows: list[Row]) -> str:
    """Show the seconds that ours needs and, for the others, multiples of that; then megabytes."""
    seconds, memory = speed_means(rows), speed_means(rows, "megabytes")
    if OURS not in seconds:
        return ""
    own = seconds.pop(OURS)
    lines = [[f"{OURS}, seconds", *cells(own, list(own), lambda v: f"{v:,.3g}")]]
    for name, theirs in seconds.items():
        ratios = {size: theirs[size] / own[size] for size in theirs if size in own}
        lines.append([name, *cells(ratios, list(own), lambda ratio: f"{ratio:.2g} x")])
    taken = [
        [name, *cells(memory[name], list(own), lambda v: f"{v:,.0f}")]
        for name in ours_first(list(memory))
        if not all(math.isnan(v) for v in memory[name].values())
    ]
    header = ["context", *own]
    parts = [prose.SPEED, markdown(header, lines), prose.SPEED_MEMORY, markdown(header, taken)]
    return "\n\n".join(part.strip() for part in parts)


def _speed_bars(rows: list[Row]) -> tuple[str, dict[str, float]]:
    """Return the middle one of the sizes that most methods were measured on, and their seconds."""
    means = speed_means(rows)
    sizes = [size for seconds in means.values() for size in seconds]
    most = max(map(sizes.count, sizes), default=0)
    shared = [size for size in dict.fromkeys(sizes) if sizes.count(size) == most] or [""]
    size = shared[len(shared) // 2]
    return size, {name: seconds[size] for name, seconds in means.items() if size in seconds}


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
