"""Bar charts of the page."""

from pathlib import Path

import numpy as np

from tabiced._extras import extra
from tabiced.bench.summary import Means

COLOURS = {"ours": "#c1440e", "measured": "#3b6ea5", "quoted": "#b9c4cf"}


def draw_adbench(measured: Means, quoted: Means, path: Path) -> None:
    """Draw the mean AUROC of every method, best on top; what is only quoted is pale."""
    with extra("plot"):
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt

    shown = {**{name: v for name, v in quoted.items() if name not in measured}, **measured}
    means = {name: float(np.nanmean(list(values.values()))) for name, values in shown.items()}
    names = sorted(means, key=lambda name: means[name])
    kinds = ["ours" if "**" in n else "measured" if n in measured else "quoted" for n in names]
    # Fixed ids and no date: the same results give the same file.
    with plt.rc_context({"svg.hashsalt": "tabiced", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(7, 0.24 * len(names) + 0.8), layout="constrained")
        heights = [means[name] for name in names]
        bars = axes.barh(
            [name.replace("*", "") for name in names], heights, color=[COLOURS[k] for k in kinds]
        )
        axes.bar_label(bars, fmt="%.1f", padding=3)
        axes.set_xlim(min(50, min(heights) - 3), max(heights) + 4)
        axes.margins(y=0.01)
        axes.set_xlabel("mean AUROC, percent (pale: quoted from the paper)")
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
