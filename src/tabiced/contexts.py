"""Read contexts with the network and score rows against them: views, tiles and a memory budget."""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tabiced.half import halved, is_faster
from tabiced.model import JUDGEMENTS, Context, Network, NetworkConfig
from tabiced.weights import load_network

Weights = Network | str | os.PathLike[str] | None

# Small tiles answer single rows sooner, large ones fill the processor.
TILE_ROWS = {"cpu": 256, "cuda": 2048}


def network_on(weights: Weights, device: str) -> Network:
    """Return the network that `weights` means, on a device."""
    if isinstance(weights, Network):
        here = next(weights.parameters()).device
        return weights if here == torch.device(device) else copy.deepcopy(weights).to(device)
    return _loaded(None if weights is None else os.fspath(weights), device)


@lru_cache(maxsize=2)
def _loaded(path: str | None, device: str) -> Network:
    network = load_network(path)
    # The loaded network is shared: another device gets its own copy.
    return network if device == "cpu" else copy.deepcopy(network).to(device)


@lru_cache(maxsize=1)
def _loaded_light(path: str | None) -> Network:
    network = _loaded(path, "cpu")
    return halved(network.scorer or network)


@dataclass(frozen=True)
class View:
    """One way to show a table to the network: some columns, and how they are told apart."""

    columns: np.ndarray
    order: Tensor | None = None


def make_views(
    blocks: list[np.ndarray], limit: int, rounds: int, generator: np.random.Generator
) -> list[View]:
    """Show all columns in every round; where they are more than `limit`, in several random parts.

    Columns that encode one column of the table, a block of at least one, stay together.
    """
    width = sum(len(block) for block in blocks)
    if width <= limit:
        orders = [torch.from_numpy(generator.permutation(limit)) for _ in range(rounds - 1)]
        return [View(np.arange(width), order) for order in (None, *orders)]
    size = -(-width // -(-width // limit))  # as few parts as possible, of equal size
    views = []
    for _ in range(rounds):
        part: list[np.ndarray] = []
        for i in generator.permutation(len(blocks)):
            if sum(map(len, part)) + len(blocks[i]) > size:
                views.append(View(np.sort(np.concatenate(part))))
                part = []
            part.append(blocks[i])
        views.append(View(np.sort(np.concatenate(part))))
    return views


def tile_rows(config: NetworkConfig, device: str, context: int, columns: int, memory: int) -> int:
    """Choose how many rows to score at once, within `memory` bytes.

    The context alone decides, never the queries. Numbers held per row: distances to the context
    rows, the row's cells in a block, its token.
    """
    cells = (columns + config.class_tokens) * config.cell_width
    numbers = 16 * context + 12 * cells + 8 * config.width
    most = TILE_ROWS["cuda" if device.startswith("cuda") else "cpu"]
    return int(np.clip(memory // (4 * numbers), 8, most))


def fill_tile(rows: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last row until there are `size`: the shape decides how numbers are rounded."""
    return rows[np.minimum(np.arange(size), len(rows) - 1)]


class Reader:
    """A network, the views it is shown, and the memory it may use."""

    def __init__(
        self,
        weights: Weights,
        device: str,
        views: list[View],
        counted: np.ndarray,
        tile: int,
        memory: int,
    ):
        """Score `tile` rows at once; keep contexts of up to `memory` bytes in all."""
        self.weights, self.device, self.views, self.counted = weights, device, views, counted
        self.tile, self.memory, self.used = tile, memory, 0
        self.verbose, self.label = False, "scoring"

    def __getstate__(self) -> dict[str, Any]:
        found_again = ("network", "scoring_network")
        return {name: v for name, v in vars(self).items() if name not in found_again} | {"used": 0}

    @cached_property
    def network(self) -> Network:
        return network_on(self.weights, self.device)

    @cached_property
    def scoring_network(self) -> Network:
        """Return the network for scores: the scorer, if there is one; in bfloat16 where faster."""
        network = self.network.scorer or self.network
        if not is_faster(network, self.device):
            return network
        if isinstance(self.weights, Network):  # whose weights may change until the next time
            return halved(network)
        return _loaded_light(None if self.weights is None else os.fspath(self.weights))

    def admit(self, nbytes: int) -> bool:
        """Tell whether a context of this size may be kept."""
        fits = self.used + nbytes <= self.memory
        self.used += nbytes if fits else 0
        return fits


class Reading:
    """Context rows as the network has read them, one context per view.

    Contexts that exceed the reader's budget are read again whenever they are needed.
    """

    def __init__(
        self, reader: Reader, rows: np.ndarray, shown: int | None = None, scores: bool = False
    ):
        """Take context rows (n, width); nothing is read before it is needed.

        The layers of the network see only the first `shown` of them. `scores`: by
        `Reader.scoring_network`, not for log-densities.
        """
        self.reader, self.shown, self.scores = reader, shown, scores
        # The network compares rows with each other: a single one is shown twice.
        self.rows = rows if len(rows) > 1 else np.repeat(rows, 2, 0)
        self.kept: dict[int, Context] = {}
        self.levels: dict[int, Tensor] = {}  # percentiles, as far as they are known

    @property
    def network(self) -> Network:
        return self.reader.scoring_network if self.scores else self.reader.network

    def contexts(self, keep: bool = True) -> Iterator[tuple[View, Context]]:
        """Yield every view with its context; `keep` those that fit for the next time."""
        for i, view in enumerate(self.reader.views):
            context = self.kept.get(i)
            if context is None:
                context = self._read(view)
                if keep and self.reader.admit(context.nbytes):
                    self.kept[i] = context
                else:
                    self._note_level(i, context)  # later, it would have to be read again for this
            yield view, context

    def read(self) -> None:
        """Read the contexts now, not at the first query."""
        for _ in self.contexts():
            pass

    def _note_level(self, i: int, context: Context) -> None:
        if i not in self.levels:
            with torch.no_grad():
                self.levels[i] = context.percentiles[0]

    def _read(self, view: View) -> Context:
        counted = torch.from_numpy(self.reader.counted[view.columns])
        rows = torch.from_numpy(self.rows[:, view.columns]).to(self.reader.device)
        # Not inference mode: gradients with respect to queries may be wanted from this context.
        with torch.no_grad():
            return self.network.read(rows[None], counted, view.order, self.shown)

    def percentiles(self) -> tuple[float, float]:
        """Return the 10th and 90th percentile of the context's own log-density."""
        if len(self.levels) < len(self.reader.views):
            for i, (_, context) in enumerate(self.contexts()):
                self._note_level(i, context)
        levels = torch.stack([self.levels[i] for i in sorted(self.levels)])
        low, high = levels.double().cpu().mean(0).tolist()
        return low, high

    def energy(self, rows: np.ndarray, together: bool = False) -> np.ndarray:
        """Return the energies (m,) of rows (m, width) by all layers of the network."""
        return self.judge(rows, together)[:, JUDGEMENTS.index("energy")]

    def judge(self, rows: np.ndarray, together: bool = False) -> np.ndarray:
        """Return the judgements (m, len(JUDGEMENTS)) of rows (m, width), as `Network.judge` does.

        Means over the views. Tiles always have the same shape, so that a row's energy does not
        depend on how many rows come along, save for rounding by its place in the tile. Rows that
        are only ever scored `together`, those of a fold, need no padding, and their context is not
        kept for them: their energies are.
        """
        reader, tile = self.reader, self.reader.tile
        out = np.zeros((len(rows), len(JUDGEMENTS)))
        if len(rows) == 0:
            return out
        starts = range(0, len(rows), tile)
        for view, context in self.contexts(keep=not together):
            parts = []
            with torch.inference_mode():
                for i in progress(starts, reader.label, reader.verbose):
                    part = rows[i : i + tile, view.columns]
                    shown = part if together else fill_tile(part, tile)
                    query = torch.from_numpy(shown).to(reader.device)
                    parts.append(self.network.judge(context, query[None])[0, : len(part)])
                out += torch.cat(parts).double().cpu().numpy()
        return out / len(reader.views)


def progress(steps: Sequence[int], label: str, shown: bool) -> Iterator[int]:
    """Go through the steps; if `shown`, draw a bar on stderr once they take over a second."""
    began, drawn = time.monotonic(), 0.0
    for done, step in enumerate(steps, start=1):
        yield step
        now = time.monotonic()
        if shown and now - began > 1 and (now - drawn > 0.2 or done == len(steps)):
            drawn = now
            share = done / len(steps)
            left = (now - began) * (1 / share - 1)
            bar = "#" * round(30 * share)
            print(f"\r{label} [{bar:<30}] {share:4.0%} {left:5.0f} s", end="", file=sys.stderr)
    if drawn:
        print(file=sys.stderr)
