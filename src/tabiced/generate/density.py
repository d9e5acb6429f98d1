"""The density that chains follow: the network's estimate, in nats of the encoded columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from tabiced.reference import Reference

LOWEST_ENERGY = -10.0  # chains end here; training asks of rows below -5 only to be below


class Density(Protocol):
    """An unnormalised log-density of encoded rows (m, width), NaN = missing."""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return log p (m,), -inf outside of the support."""
        ...

    def gradient(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log p (m,) and d log p / d rows (m, width), 0 for missing cells."""
        ...


class NetworkDensity:
    """The network's estimate given all reference rows.

        log p = low + (energy + 1) / 2 * (high - low),    p = 0 where the energy is below -10

    with the percentiles low and high of the level head. Training fits energies down to -5 and asks
    of rows below only to be below; without an end the tails would have no finite mass. A table that
    is too wide for one pass is judged in parts of its columns, whose log-densities add up.
    """

    def __init__(self, reference: Reference, rounds: int):
        """Take a fitted estimator's reference, and its number of views."""
        self.reading = reference.whole
        self.parts = len(self.reading.reader.views) // rounds
        self.low, self.high = self.reading.percentiles()

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return self._nats(self.reading.energy(rows, together=True))

    def _nats(self, energy: np.ndarray) -> np.ndarray:
        nats = self.parts * (self.low + (energy + 1) / 2 * (self.high - self.low))
        return np.where(energy >= LOWEST_ENERGY, nats, -np.inf)

    def gradient(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        reader = self.reading.reader
        energy, slope = np.zeros(len(rows)), np.zeros(rows.shape)
        for view, context in self.reading.contexts():
            for start in range(0, len(rows), reader.tile):
                part = slice(start, start + reader.tile)
                x = torch.from_numpy(rows[part, view.columns]).to(reader.device)[None]
                found = reader.network.energy(context, x.requires_grad_())
                (found_slope,) = torch.autograd.grad(found.sum(), x)
                energy[part] += found[0].detach().double().cpu().numpy()
                slope[part, view.columns] += found_slope[0].double().cpu().numpy()
        views = len(reader.views)
        scale = self.parts * (self.high - self.low) / 2 / views
        clean = np.where(np.isnan(rows), 0.0, np.nan_to_num(scale * slope))
        return self._nats(energy / views), clean
