"""What scores are made of, chosen together with weights and kept on their card."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

QUANTILES = (0.1, 0.9)


@dataclass(frozen=True)
class Scoring:
    """How much of each part is in a score; the rest is the energy by all layers of the network.

    shallow: Share of the branch without attention in the network's part.
    tails: Share of `Tails` in a score.
    pairs: Share of `Pairs` in a score.
    repeats: Weight of what exact repeats of a row tell; 0: copies of measured rows do not count.
    """

    shallow: float = 0.0
    tails: float = 0.0
    pairs: float = 0.0
    repeats: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


class EnergyScale:
    """Puts numbers on the scale of energies: -1 and +1 are percentiles of the reference rows.

    Beyond them the scale bends, as rows can be far out.
    """

    def __init__(self, known: np.ndarray):
        """Take the numbers of reference rows."""
        self.low, self.high = np.quantile(known, QUANTILES)

    @property
    def is_flat(self) -> bool:
        """Tell whether the reference rows hardly differ, so that there is no scale."""
        return bool(self.high <= self.low)

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        if self.is_flat:
            return np.zeros(len(numbers))
        place = (2 * numbers - self.high - self.low) / (self.high - self.low)
        return 2 * np.arcsinh(place / 2)
