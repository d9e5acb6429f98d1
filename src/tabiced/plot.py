"""Pictures of energies, p-values, explanations and samples.

Every function draws on the axes it is given, or on new ones, and returns them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from tabiced._extras import extra
from tabiced.explanation import UNUSUAL, explain_cells
from tabiced.table import read_table

with extra("plot"):
    import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tabiced.estimator import ICED


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


def anomaly_pairs(
    model: "ICED",
    X: Any,
    *,
    count: int = 3,
    axes: "Sequence[Axes] | None" = None,
) -> "np.ndarray":
    """Draw the most unusual rows of X among all rows, one panel per row.

    A panel shows the two numeric columns that surprise most in its row. A guilty cell, one whose
    p-value given the rest of its row is at most 0.05, is marked by a red line at its value.

    Parameters
    ----------
    model : fitted estimator
    X : data frame or array with at least two numeric columns
    count : how many rows to draw
    axes : as many axes as rows; new ones by default
    """
    names, values = _numeric_columns(X)
    if values.shape[1] < 2:
        raise ValueError(f"a pair view needs two numeric columns, this table has {len(names)}")
    worst = np.argsort(model.score_samples(X), kind="stable")[:count]
    found = explain_cells(model, _take(X, worst))
    place = [found.names.index(name) for name in names]
    surprise, p = found.surprise[:, place], found.p_value[:, place]
    if axes is None:
        size = (3.6 * len(worst), 3.4)
        axes = plt.subplots(1, len(worst), figsize=size, layout="constrained", squeeze=False)[1][0]
    for ax, row, s, q in zip(axes, worst, surprise, p, strict=True):
        s = np.where(np.isnan(values[row]), -np.inf, s)  # a missing cell has no place
        across, up = np.sort(np.argsort(-s, kind="stable")[:2])
        ax.scatter(values[:, across], values[:, up], s=8, color="tab:blue", alpha=0.4)
        ax.scatter(values[row, across], values[row, up], s=60, color="tab:red", zorder=3)
        for j, draw in ((across, ax.axvline), (up, ax.axhline)):
            if q[j] <= UNUSUAL:
                draw(values[row, j], color="tab:red", linewidth=1)
        ax.set(xlabel=names[across], ylabel=names[up], title=f"row {row}")
    return np.asarray(axes)


def p_value_calibration(p: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the share of rows with p-values up to each level, with the range that chance explains.

    For rows from the source of the reference the line follows the diagonal. The band holds the
    share at each level for 95 % of samples of this size.

    Parameters
    ----------
    p : p-values of rows, for instance `model.p_values(X)`
    ax : axes to draw on; new ones by default
    """
    ordered = np.sort(np.asarray(p, dtype=float).ravel())
    if len(ordered) == 0 or not ((ordered >= 0) & (ordered <= 1)).all():
        raise ValueError("p must be numbers between 0 and 1, at least one")
    levels = np.linspace(0, 1, 201)
    share = np.searchsorted(ordered, levels, side="right") / len(ordered)
    reach = 1.96 * np.sqrt(levels * (1 - levels) / len(ordered))
    ax = ax if ax is not None else plt.subplots(figsize=(4.5, 4.5), layout="constrained")[1]
    ax.fill_between(levels, levels - reach, levels + reach, color="0.85", label="chance (95 %)")
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=1)
    ax.plot(levels, share, color="tab:blue", label=f"{len(ordered)} rows")
    ax.set(xlabel="p-value", ylabel="share of rows up to it", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, loc="upper left")
    return ax


def samples_beside_rows(
    real: Any,
    sampled: Any,
    *,
    columns: "tuple[str, str] | None" = None,
    axes: "Sequence[Axes] | None" = None,
) -> "np.ndarray":
    """Draw real and sampled rows side by side, over the same two numeric columns.

    Parameters
    ----------
    real, sampled : tables with the same columns
    columns : names of the columns to draw; the first two numeric ones by default
    axes : two axes; new ones by default
    """
    names, rows = _numeric_columns(real)
    others, drawn = _numeric_columns(sampled)
    chosen = columns or tuple(names[:2])
    absent = [name for name in chosen if name not in names or name not in others]
    if len(chosen) != 2 or absent:
        raise ValueError(
            f"two numeric columns of both tables are needed, got {list(chosen)}; "
            f"the real table has {names}, the sampled one {others}"
        )
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharex=True, sharey=True)[
            1
        ]
    sets = (("real", names, rows, "tab:blue"), ("sampled", others, drawn, "tab:orange"))
    for ax, (title, order, values, colour) in zip(axes, sets, strict=True):
        across, up = (values[:, order.index(name)] for name in chosen)
        ax.scatter(across, up, s=9, color=colour, alpha=0.5, linewidths=0)
        ax.set(xlabel=chosen[0], ylabel=chosen[1], title=f"{len(values)} {title} rows")
    return np.asarray(axes)


def _numeric_columns(X: Any) -> tuple[list[str], np.ndarray]:
    """Return the names and values (n, c) of the columns that hold numbers."""
    table = read_table(X)
    kept = [j for j, column in enumerate(table.columns) if column.kind == "number"]
    names = table.names or tuple(f"column {j}" for j in range(len(table.columns)))
    values = [table.columns[j].values for j in kept]
    return [names[j] for j in kept], np.stack(values, 1) if kept else np.empty((table.rows, 0))


def _take(X: Any, rows: np.ndarray) -> Any:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame[rows.tolist()].to_native()
    return np.asarray(X)[rows]
