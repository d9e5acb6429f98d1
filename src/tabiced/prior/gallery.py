"""A page of training tables, to see what the network learns from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tabiced._extras import extra
from tabiced.prior.prior import Prior, Tables

_TABLES = 12
_COLUMNS = 3
_PAIRS = ((0, 1), (0, 2), (1, 2))


def draw_gallery(seed: int, path: str | Path, preset: str = "full") -> Path:
    """Draw twelve random tables of three columns to a PNG, as the pairs of their columns.

    Grey dots are context rows; coloured dots are queries, the brighter the denser: the colour runs
    over log-densities from the context's 1st to its 95th percentile, and queries below that are
    black crosses. Axes are cut to the middle 98 % of context and queries.
    """
    with extra("plot"):
        from matplotlib.figure import Figure

    generator = torch.Generator().manual_seed(seed)
    # Tables of one draw share structure in groups, so every table is of a draw of its own.
    prior = Prior(preset)
    tables = [prior.draw(1, 400, 256, _COLUMNS, "cpu", generator) for _ in range(_TABLES)]

    per_line = 2
    figure = Figure(figsize=(12, 1.95 * _TABLES / per_line), layout="constrained")
    axes = figure.subplots(_TABLES // per_line, per_line * len(_PAIRS))
    for i, table in enumerate(tables):
        line, first = divmod(i, per_line)
        for j, pair in enumerate(_PAIRS):
            _draw_pair(axes[line, first * len(_PAIRS) + j], table, pair)
        axes[line, first * len(_PAIRS)].set_title(f"table {i + 1}", loc="left", fontsize=9)
    figure.suptitle(f"Twelve tables of the prior ({preset}, seed {seed})", fontsize=11)
    path = Path(path)
    figure.savefig(path, dpi=72)
    return path


def _draw_pair(axis: object, table: Tables, pair: tuple[int, int]) -> None:
    context, query = table.context[0][:, pair], table.query[0][:, pair]
    low, high = (table.anchors[0].quantile(q) for q in (0.01, 0.95))
    log_density = table.log_density[0]
    unusual = log_density < low
    options = {"s": 4, "linewidths": 0}
    draw = axis.scatter  # type: ignore[attr-defined]
    draw(*context.T.numpy(), color="0.85", **options)
    usual = query[~unusual].T.numpy()
    draw(*usual, c=log_density[~unusual].numpy(), vmin=float(low), vmax=float(high), **options)
    draw(*query[unusual].T.numpy(), color="black", marker="x", s=6, linewidths=0.5)
    for column, limits in enumerate(("set_xlim", "set_ylim")):
        getattr(axis, limits)(*_limits(torch.cat((context, query))[:, column]))
    axis.set_xticks([])  # type: ignore[attr-defined]
    axis.set_yticks([])  # type: ignore[attr-defined]


def _limits(values: Tensor) -> tuple[float, float]:
    values = values[~values.isnan()]
    low, high = values.quantile(0.01), values.quantile(0.99)
    margin = 0.08 * (high - low) + 1e-6
    return float(low - margin), float(high + margin)
