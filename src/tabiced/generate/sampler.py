"""Chains that follow a density of rows: Metropolis' rule, and Langevin steps without it.

All chains move together, one call of the density per step. They start at context rows, each used
equally often. These rows are draws from the true density, so chains need no time to find it; the
longer they run, the more their rows follow the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tabiced.generate.density import Density
from tabiced.generate.kernels import Kernels
from tabiced.generate.layout import Layout, State

TRUSTED_WIDTH = 0.2  # of the kernels in q, in distances between near rows

Progress = Callable[[Iterable[int]], Iterable[int]]
"""Wraps the steps, to show how far they are."""


@dataclass(frozen=True)
class Trace:
    """What happened along the chains."""

    log_density: np.ndarray  # (steps + 1,) of what the chains follow, unnormalised, mean
    accepted: np.ndarray  # (steps,) share of proposals accepted


@dataclass(frozen=True)
class Metropolis:
    """Move chains by proposals that are accepted so that the density stays the same.

    Of the steps, the share `kernel_moves` redraws each row around a context row near it, and the
    share `jumps` around any context row, with the exact Metropolis-Hastings correction. The others
    walk in the numbers or change a level. The length of the walk's steps is tuned to accept
    `acceptance` of them, during the first half.

    The chains follow p^trust q^(1 - trust): p is the density given to them, q a narrow kernel
    density over the context rows. The network smooths thin structures that the rows themselves
    show; q brings them back. With `trust` 1 the chains follow the network's estimate alone.
    """

    steps: int = 30
    trust: float = 0.5
    kernel_moves: float = 0.5
    jumps: float = 0.0
    acceptance: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.trust <= 1:
            raise ValueError(f"trust lies above 0 and up to 1, got {self.trust}.")
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}.")

    def run(
        self,
        layout: Layout,
        density: Density,
        start: State,
        generator: np.random.Generator,
        progress: Progress = iter,
    ) -> tuple[State, Trace]:
        """Move the chains `steps` times; return where they are, and a trace."""
        kernels = Kernels(layout, generator)
        state = layout.loosened(start, generator)
        value = self._value(kernels, density, state)
        length = 1.0 / math.sqrt(max(1, kernels.columns))
        means, shares = [_mean(value)], []
        for step in progress(range(self.steps)):
            kind = self._choose(layout, generator)
            walks = kind == "walk"
            correction: np.ndarray | float = 0.0
            if walks:
                spread = np.exp(0.5 * generator.standard_normal(len(value)))
                proposal = kernels.walk(state, length * spread, generator)
            elif kind == "flip":
                proposal, correction = kernels.flip_levels(state, generator)
            else:
                scale = float(generator.choice([0.25, 0.5, 1.0]))
                proposal, correction = kernels.move(state, scale, generator, kind == "near")
            new = self._value(kernels, density, proposal)
            with np.errstate(invalid="ignore"):  # -inf - -inf: a start outside may go anywhere
                gain = np.nan_to_num(new - value + correction, nan=0.0, posinf=1e9, neginf=-1e9)
            accept = np.log(generator.random(len(value))) < gain
            state, value = state.moved_to(proposal, accept), np.where(accept, new, value)
            means.append(_mean(value))
            shares.append(float(accept.mean()))
            if walks and step < self.steps / 2:
                length *= math.exp(shares[-1] - self.acceptance)
        return state, Trace(np.array(means), np.array(shares))

    def _value(self, kernels: Kernels, density: Density, state: State) -> np.ndarray:
        """Return the log-density of the chains' whole state; rows outside the box have none."""
        layout = kernels.layout
        inside = layout.inside(state)
        value = np.full(len(inside), -np.inf)
        if inside.any():
            chosen = state.take(inside)
            found = density(layout.rows_of(chosen)) + layout.latent_log_density(chosen)
            if self.trust < 1:
                near = kernels.log_density(chosen, TRUSTED_WIDTH)
                found = self.trust * found + (1 - self.trust) * near
            value[inside] = found
        return value

    def _choose(self, layout: Layout, generator: np.random.Generator) -> str:
        draw = generator.random()
        if draw < self.kernel_moves:
            return "near"
        if draw < self.kernel_moves + self.jumps:
            return "any"
        numbers, levels = len(layout.measured), len(layout.blocks)
        return "walk" if generator.random() * (numbers + levels) < numbers else "flip"


@dataclass(frozen=True)
class Langevin:
    """Follow the gradient of the log-density with noise, as in the paper (SGLD).

        z <- z + step d log p / dz + noise N(0, 1)

    z are the numbers divided by their standard deviation in the context. Nothing corrects for the
    length of the steps, and levels stay as they are. The defaults are TabEBM's.
    """

    steps: int = 200
    step: float = 0.1
    noise: float = 0.01
    start_noise: float = 0.01

    def run(
        self,
        layout: Layout,
        density: Density,
        start: State,
        generator: np.random.Generator,
        progress: Progress = iter,
    ) -> tuple[State, Trace]:
        """Move the chains `steps` times; return where they are, and a trace."""
        deviation = layout.context.numbers.std(0)
        low, high = layout.box

        def moved(numbers: np.ndarray, size: float) -> State:
            noise = size * deviation * generator.standard_normal(numbers.shape)
            numbers = np.clip(numbers + noise, low, high)
            return State(numbers, start.levels, start.no_number, start.no_level)

        state = moved(start.numbers, self.start_noise)
        means = []
        for _ in progress(range(self.steps)):
            value, gradient = density.gradient(layout.rows_of(state))
            means.append(_mean(value))
            slope = gradient[:, layout.measured] * deviation
            state = moved(state.numbers + self.step * deviation * slope, self.noise)
        means.append(_mean(density(layout.rows_of(state))))
        return state, Trace(np.array(means), np.ones(self.steps))


def start_rows(rows: int, chains: int, generator: np.random.Generator) -> np.ndarray:
    """Choose context rows for chains to start at: all equally often, the remainder at random."""
    whole = np.tile(np.arange(rows), chains // rows)
    rest = generator.permutation(rows)[: chains % rows]
    return generator.permutation(np.concatenate([whole, rest]))


def _mean(value: np.ndarray) -> float:
    finite = value[np.isfinite(value)]
    return float(finite.mean()) if len(finite) else -math.inf
