"""What a benchmark measures: a name and a function, and the registry of names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Score = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""(context, query, seed) -> one number per query row, higher = more typical"""


@dataclass(frozen=True)
class Method:
    """A way to score query rows against a context.

    `log_density` is given where the method estimates log p(x) in nats, in the units of the input.
    `options` and `weights` tell apart results of the same method with other settings or weights.
    """

    name: str
    score: Score
    log_density: Score | None = None
    options: str = ""
    weights: str = ""

    @property
    def key(self) -> dict[str, str]:
        return {"method": self.name, "options": self.options, "weights": self.weights}

    def device(self, otherwise: str = "cpu") -> str:
        """Return the device that the options name, if they do."""
        given = dict(option.partition("=")[::2] for option in self.options.split())
        return given.get("device", otherwise)


def pick(names: list[str], registry: Mapping[str, Method]) -> list[Method]:
    """Return the methods of these names."""
    unknown = [name for name in names if name not in registry]
    if unknown:
        known = ", ".join(["ours", *registry])
        raise SystemExit(f"unknown method {', '.join(unknown)}; choose from {known}")
    return [registry[name] for name in names]
