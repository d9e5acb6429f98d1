"""Random numbers of the prior: one torch generator for values, one seeded twin for structure."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

Shape = Sequence[int]


class Random:
    """Draw tensors on a device from one generator, and structure from a CPU twin seeded by it.

    Structure (how many components, which flow) steers Python control flow; drawing it on the device
    would stall the device at every choice. The twin is seeded by the generator's state, which lives
    on the CPU. All tensors are float64.
    """

    def __init__(self, generator: torch.Generator, device: torch.device | str | None = None):
        self.device = torch.device(device if device is not None else generator.device)
        if generator.device.type != self.device.type:
            seed = torch.randint(2**62, (), generator=generator, device=generator.device)
            generator = torch.Generator(self.device).manual_seed(int(seed))
        self.generator = generator
        state = hashlib.blake2b(generator.get_state().numpy().tobytes(), digest_size=8)
        self.structure = random.Random(int.from_bytes(state.digest(), "little"))

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Tensor:
        values = torch.empty(tuple(shape), device=self.device, dtype=torch.float64)
        return values.uniform_(low, high, generator=self.generator)

    def log_uniform(self, shape: Shape, low: float, high: float) -> Tensor:
        return self.uniform(shape, math.log(low), math.log(high)).exp_()

    def normal(self, shape: Shape) -> Tensor:
        return torch.randn(
            tuple(shape), generator=self.generator, device=self.device, dtype=torch.float64
        )

    def integers(self, shape: Shape, low: int, high: int) -> Tensor:
        """Draw integers with low <= i < high."""
        return torch.randint(low, high, tuple(shape), generator=self.generator, device=self.device)

    def bernoulli(self, shape: Shape, probability: float | Tensor) -> Tensor:
        return self.uniform(shape) < probability

    def permutations(self, shape: Shape) -> Tensor:
        """Draw an independent permutation along the last dimension."""
        return self.uniform(shape).argsort(-1)

    def simplex(self, shape: Shape, temperature: float | Tensor) -> Tensor:
        """Draw log-probabilities along the last dimension: log softmax(temperature * normal)."""
        return torch.log_softmax(self.normal(shape) * temperature, -1)
