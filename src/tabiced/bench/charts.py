"""Bar charts of the page."""

from pathlib import Path

from tabiced._extras import extra

COLOURS = {"ours": "#c1440e", "measured": "#3b6ea5", "quoted": "#b9c4cf"}


def draw_bars(
    measured: dict[str, float],
    quoted: dict[str, float],
    label: str,
    path: Path,
    costs: bool = False,
) -> None:
    """Draw a number for every method, best on top; what is only quoted is pale.

    The best is the highest, or the lowest of `costs`, which may differ by orders of magnitude.
    """
    with extra("plot"):
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt

    means = {**{name: v for name, v in quoted.items() if name not in measured}, **measured}
    names = sorted(means, key=lambda name: means[name], reverse=costs)
    kinds = ["ours" if "**" in n else "measured" if n in measured else "quoted" for n in names]
    # Fixed ids and no date: the same results give the same file.
    with plt.rc_context({"svg.hashsalt": "tabiced", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(7, 0.24 * len(names) + 0.8), layout="constrained")
        heights = [means[name] for name in names]
        bars = axes.barh(
            [name.replace("*", "") for name in names], heights, color=[COLOURS[k] for k in kinds]
        )
        axes.bar_label(bars, fmt="%.2g" if costs else "%.1f", padding=3)
        if costs:
            axes.set_xscale("log")
            axes.set_xlim(min(heights) / 2, max(heights) * 2)
        else:
            low = 50 if min(heights) > 50 else min(heights) - 3  # AUROC starts at chance
            axes.set_xlim(low, max(heights) + (max(heights) - low) / 12)
        axes.margins(y=0.01)
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
