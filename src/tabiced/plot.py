"""Pictures of energies: a landscape over two columns, and a histogram with its threshold."""

from typing import TYPE_CHECKING, Any, Protocol

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from tabiced._extras import extra

with extra("plot"):
    import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Scorer(Protocol):
    """Anything that gives every row of a table a number, higher = more typical."""

    def score_samples(self, X: Any, /) -> np.ndarray: ...


def energy_landscape(
    model: Scorer,
    X: Any,
    *,
    ax: "Axes | None" = None,
    resolution: int = 60,
    margin: float = 0.15,
) -> "Axes":
    """Draw the energy over the plane of two numeric columns, with the rows on top.

    The colours rank the plane instead of showing raw energies: a place is as dark as the share of
    the rows of `X` that are less typical than it, so 0.05 outlines the 95 % most typical region.

    Parameters
    ----------
    model : fitted on the same two columns
    X : data frame or array with two numeric columns; rows with a missing cell are not drawn
    ax : axes to draw on; new ones by default
    resolution : grid points per axis
    margin : how far the plane reaches beyond the rows, as a share of their range
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    named = isinstance(frame, nw.DataFrame)
    names = frame.columns if named else ["column 0", "column 1"]
    rows = np.asarray(frame.to_numpy() if named else X, dtype=float)  # (n, 2)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise ValueError(f"a landscape needs two columns, this table has shape {rows.shape}")
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) == 0:
        raise ValueError("a landscape needs rows without missing cells, this table has none")

    low, high = rows.min(axis=0), rows.max(axis=0)
    reach = margin * np.where(high > low, high - low, 1.0)
    across, up = np.linspace(low - reach, high + reach, resolution).T
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)  # (resolution^2, 2)

    def score(points: np.ndarray) -> np.ndarray:
        if not named:
            return model.score_samples(points)
        columns = dict(zip(names, points.T.copy(), strict=True))
        return model.score_samples(
            nw.from_dict(columns, backend=nw.get_native_namespace(X)).to_native()
        )

    typical = np.sort(score(rows))
    share = np.searchsorted(typical, score(grid)) / len(typical)

    ax = ax if ax is not None else plt.subplots(figsize=(6, 4.5), layout="constrained")[1]
    plane = share.reshape(resolution, resolution)
    shading = ax.contourf(across, up, plane, levels=np.linspace(0, 1, 11), cmap="Blues")
    ax.contour(across, up, plane, levels=[0.05], colors="tab:red", linewidths=1.2)
    ax.plot([], [], color="tab:red", label="95 % of the rows lie inside")
    ax.scatter(rows[:, 0], rows[:, 1], s=11, color="black", edgecolors="white", linewidths=0.4)
    ax.legend(frameon=False)
    ax.set(xlabel=names[0], ylabel=names[1])
    bar = ax.figure.colorbar(shading, ax=ax)
    bar.set_label("share of rows that are less typical")
    return ax


def score_histogram(
    scores: ArrayLike,
    threshold: float | None = None,
    *,
    reference: ArrayLike | None = None,
    ax: "Axes | None" = None,
    bins: int = 40,
) -> "Axes":
    """Draw the distribution of scores, with everything below the threshold in red.

    Parameters
    ----------
    scores : one energy per row, for instance `model.score_samples(X)`
    threshold : scores below it are anomalies, for instance `model.offset_`
    reference : scores of the reference rows, drawn as an outline
    ax : axes to draw on; new ones by default
    bins : number of bars
    """
    values = np.asarray(scores, dtype=float).ravel()
    outline = values[:0] if reference is None else np.asarray(reference, dtype=float).ravel()
    edges = np.histogram_bin_edges(np.concatenate([values, outline]), bins).tolist()
    if threshold is not None:  # an edge at the threshold keeps every bar on one side of it
        edges = sorted({*edges, float(threshold)})

    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    cut = -np.inf if threshold is None else threshold
    ax.hist(values[values >= cut], edges, color="tab:blue", alpha=0.8, label="rows")
    if threshold is not None:
        below = values[values < cut]
        ax.hist(below, edges, color="tab:red", label=f"below the threshold ({len(below)})")
        ax.axvline(threshold, color="black", linestyle="--", linewidth=1)
    if len(outline):
        # Scaled to the number of rows, so that the two shapes can be compared.
        weights = np.full(len(outline), len(values) / len(outline))
        ax.hist(outline, edges, weights=weights, histtype="step", color="black", label="reference")
    ax.set(xlabel="energy (higher = more typical)", ylabel="rows")
    ax.legend(frameon=False)
    return ax
