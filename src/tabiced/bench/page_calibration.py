"""The page's section on false alarms."""

from tabiced.bench import prose
from tabiced.bench.calibration import RATES
from tabiced.bench.macrodata import SETTINGS
from tabiced.bench.markdown import cells, markdown, ours_first, two
from tabiced.bench.results import Row, number
from tabiced.bench.summary import Means, calibration_means, label

CELLS = [f"{setting} {rate}" for setting in SETTINGS for rate in RATES]


def calibration_section(rows: list[Row]) -> str:
    """Show the false alarms by the rate asked for, their worst table, and what is found by them."""
    if not rows:
        return ""
    count = len({(row["bench"], row["dataset"]) for row in rows})
    rates = [f"{100 * rate:g}" for rate in RATES]
    header = [f"{setting}: {rate} %" for setting in SETTINGS for rate in rates]
    told = prose.CALIBRATION.format(count=count, rates=f"{', '.join(rates[:-1])} or {rates[-1]}")
    return "\n\n".join(
        [
            told.strip(),
            "Of the normal rows, in percent (in brackets the table with the largest share):",
            _table(header, calibration_means(rows), _worst(rows)),
            "Of the anomalous rows:",
            _table(header, calibration_means(rows, "found")),
        ]
    )


def _table(header: list[str], means: Means, worst: Means | None = None) -> str:
    lines = []
    for name in ours_first(list(means)):
        told = cells(means[name], CELLS, two)
        if worst:
            pairs = zip(told, cells(worst[name], CELLS, lambda v: f"{v:.0f}"), strict=True)
            told = [f"{mean} ({most})" for mean, most in pairs]
        lines.append([name, *told])
    return markdown(["", *header], lines)


def _worst(rows: list[Row]) -> Means:
    """Return {label: {"SETTING RATE": percent}}, of the table with the most false alarms."""
    found: Means = {}
    for row in rows:
        cell, share = f"{row['setting']} {row['rate']}", 100 * number(row["false_alarms"])
        mine = found.setdefault(label(row), {})
        mine[cell] = max(share, mine.get(cell, share))
    return found
