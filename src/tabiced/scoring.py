"""What scores are made of, chosen together with weights and kept on their card."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

QUANTILES = (0.1, 0.9)


@dataclass(frozen=True)
class Scoring:
    """How much of each part is in a score; the rest is the energy by all layers of the network.

    shallow: Share of the branch without attention in the network's part.
    tails: Share of `Tails`.
    components: Share of the tails of principal components.
    pairs: Share of `Pairs`.
    distances: Share of `Distances`.
    sharpness: How far the lowest part decides: 0 the mean of all, many the least of all.
    repeats: Weight of a row's having been there before.
    rows: How many reference rows the layers of the network see; 0: all. The other parts, and the
        statistics of rows that the layers start from, are of all.
    """

    shallow: float = 0.0
    tails: float = 0.0
    components: float = 0.0
    pairs: float = 0.0
    distances: float = 0.0
    sharpness: float = 0.0
    repeats: float = 0.0
    rows: int = 0

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 0 or max(self.shallow, self._beside_network) > 1 + 1e-9:
            raise ValueError(f"Shares of a score must lie between 0 and 1 and add up to 1: {self}.")

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of each part in a score; they add up to 1."""
        network = 1 - self._beside_network
        network = network if network > 1e-9 else 0.0  # rounding must not give it a voice
        return {
            "network": (1 - self.shallow) * network,
            "branch": self.shallow * network,
            "tails": self.tails,
            "components": self.components,
            "pairs": self.pairs,
            "distances": self.distances,
        }

    @property
    def _beside_network(self) -> float:
        return self.tails + self.components + self.pairs + self.distances

    def with_shares(self, shares: dict[str, float]) -> Scoring:
        """Return the same with other shares of the parts, in these proportions."""
        total = sum(shares.values())
        part = {name: shares.get(name, 0.0) / total for name in self.shares}
        network = part["network"] + part["branch"]
        return replace(
            self,
            shallow=part["branch"] / network if network > 0 else self.shallow,
            tails=part["tails"],
            components=part["components"],
            pairs=part["pairs"],
            distances=part["distances"],
        )

    def with_tails(self, share: float) -> Scoring:
        """Return the same with another share of tails, the other parts in their proportions."""
        rest = {**self.shares, "tails": 0.0}
        others = self.with_shares(rest if any(rest.values()) else {"network": 1.0}).shares
        kept = {name: (1 - share) * part for name, part in others.items()}
        return self.with_shares({**kept, "tails": share})

    def blend(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        """Return the soft minimum of parts (m,), each with its share.

        -1/s log sum_i share_i exp(-s part_i)
        """
        told = [(share, parts[name]) for name, share in self.shares.items() if share > 0]
        shares, values = np.array([share for share, _ in told]), np.stack([v for _, v in told])
        if not self.sharpness:
            return shares @ values
        least = values.min(0)
        weight = shares @ np.exp(-self.sharpness * (values - least))
        return least - np.log(weight) / self.sharpness


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
