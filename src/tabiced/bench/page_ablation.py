"""The page's section on ablations."""

from collections.abc import Callable
from pathlib import Path

from tabiced.bench import ablation, foundation, paper, prose
from tabiced.bench.density import PAPER_SUITES, SUITES
from tabiced.bench.markdown import cells, four, italic, markdown, with_mean
from tabiced.bench.results import Row, read_csv
from tabiced.bench.summary import Means


def ablation_section(results: Path) -> str:
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
        budget=ablation.told(rows[0]["budget"]),
        machines="; ".join(_different(rows, "machine")),
        tables=tables,
    )
    parts = [text.strip()]
    for metric, title in (
        ("pairwise_accuracy", "Pairwise accuracy"),
        ("kendall_tau", "Kendall's tau-b"),
    ):
        lines = _ablation_lines(
            ablation.variant_means(rows, metric), paper.ablation(metric), four, steps
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
        told = cells(with_mean(parts, list(PAPER_SUITES)), columns, form)
        lines.append([variant.title, *told, *([steps[name]] if steps else [])])
        if variant.quoted:
            parts = with_mean(quoted[variant.quoted], list(PAPER_SUITES))
            told = [italic(cell) for cell in cells(parts, columns, form)]
            lines.append([f"*{variant.title}, paper*", *told, *([""] if steps else [])])
    return lines
