"""The page's section on false alarms."""

from tabiced.bench import prose
from tabiced.bench.calibration import RATES
from tabiced.bench.markdown import cells, markdown, ours_first, two
from tabiced.bench.results import Row, number
from tabiced.bench.summary import calibration_means, label

TOLD = "0.05"  # the rate whose worst table, and whose anomalies found, are told


def calibration_section(rows: list[Row]) -> str:
    """Show the false alarms by the rate asked for, and what is found by them."""
    if not rows:
        return ""
    alarms, found = calibration_means(rows), calibration_means(rows, "found")
    count = len({(row["bench"], row["dataset"]) for row in rows})
    rates = [f"{100 * rate:g}" for rate in RATES]
    header = [""]
    for setting in ("clean", "contaminated"):
        header += [f"{setting}: {rate} %" for rate in rates]
        header += [f"worst at {100 * float(TOLD):g} %", f"found at {100 * float(TOLD):g} %"]
    lines = []
    for name in ours_first(list(alarms)):
        line = [name]
        for setting in ("clean", "contaminated"):
            line += cells(alarms[name], [f"{setting} {rate}" for rate in RATES], two)
            line.append(two(100 * _worst(rows, name, setting)))
            line += cells(found[name], [f"{setting} {TOLD}"], two)
        lines.append(line)
    told = prose.CALIBRATION.format(count=count, rates=", ".join(rates[:-1]) + f" or {rates[-1]}")
    return told.strip() + "\n\n" + markdown(header, lines)


def _worst(rows: list[Row], name: str, setting: str) -> float:
    mine = [r for r in rows if label(r) == name and (r["setting"], r["rate"]) == (setting, TOLD)]
    return max((number(row["false_alarms"]) for row in mine), default=float("nan"))
