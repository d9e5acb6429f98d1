"""What scores are made of, chosen together with weights and kept on their card."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Scoring:
    """How much of each part is in a score, beside the energy by all layers of the network.

    shallow: Share of the branch without attention in the network's part.
    tails: Share of `Tails` in a score.
    repeats: Weight of what exact repeats of a row tell; 0: copies of measured rows do not count.
    """

    shallow: float = 0.0
    tails: float = 0.0
    repeats: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
