"""Proposals shaped by the context: a kernel density over its rows, and random walks.

With kernels K_i around n context rows, q(x) = 1/n sum_i K_i(x). From x, choose a row i with
probability K_i(x) / sum_k K_k(x), then draw x' from K_i. This move is reversible with respect to q:

    q(x) T(x -> x') = 1/n sum_i K_i(x) K_i(x')

is symmetric in x and x'. So Metropolis' rule for a target p accepts x' with probability
min(1, p(x') q(x) / (p(x) q(x'))), the same as for a draw of x' from q itself.
"""

from __future__ import annotations

import numpy as np

from tabiced.generate.layout import Layout, State

NEIGHBOURS = 5
MOST_CENTRES = 1000
FLIP = 0.2  # probability that a kernel forgets the level of its row, per counted column ...
FLIPS = 1.0  # ... but on average not more than so many levels of a row


class Kernels:
    """Product kernels around context rows: Gaussian in the numbers, flips in the levels."""

    def __init__(self, layout: Layout, generator: np.random.Generator):
        self.layout = layout
        context = layout.context
        some = generator.permutation(len(context.numbers))[:MOST_CENTRES]
        self.centres = layout.loosened(context.take(some), generator)
        self.count, self.columns = self.centres.numbers.shape
        self._fit_shape()
        self.flip = min(FLIP, FLIPS / max(1, len(layout.blocks)))

    def _fit_shape(self) -> None:
        """Whiten by the differences of near rows, each counted for its direction alone.

        Near rows tell the shape inside of clusters; directions alone, because some rows are far
        from all others.
        """
        x, n, d = self.centres.numbers, self.count, self.columns
        if d == 0:
            self.shape, self.white, self.width = np.eye(0), x, np.ones(n)
            return
        k = min(NEIGHBOURS, n - 1)
        scale = _column_scales(x)
        near = np.argsort(_squared_distances(x / scale), 1)[:, 1 : k + 1]
        gaps = (x[near] - x[:, None]).reshape(-1, d) / scale
        size = (gaps**2).mean(1, keepdims=True)
        gaps = gaps[size[:, 0] > 0] / np.sqrt(size[size[:, 0] > 0])
        scatter = gaps.T @ gaps / max(1, len(gaps))
        diagonal = (n * np.diag(scatter) + 5.0) / (n + 5.0)  # the mean of the diagonal is 1
        trust = n / (n + d)
        scatter = trust * scatter + np.diag(diagonal - trust * np.diag(scatter) + 1e-4)
        self.shape = scale[:, None] * np.linalg.cholesky(scatter)  # d d
        self.white = self.whiten(x)
        distance = np.sqrt(np.sort(_squared_distances(self.white), 1)[:, k] / d)
        usual = float(np.median(distance[distance > 0])) if (distance > 0).any() else 1.0
        self.width = np.maximum(distance, 0.1 * usual)  # of each kernel, in whitened units

    def whiten(self, numbers: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.shape, numbers.T).T

    def _log_kernels(self, state: State, width: np.ndarray) -> np.ndarray:
        """Return log K_i(x) for all chains and centres: (m, n).

        Missing levels are no part of a row, so they have no factor.
        """
        m, d = len(state.numbers), self.columns
        out = np.zeros((m, self.count))
        if d:
            squared = _squared_distances(self.whiten(state.numbers), self.white)
            out = -0.5 * squared / width**2 - d * np.log(width)
        for k, shares in enumerate(self.layout.shares):
            mine, theirs = state.levels[:, k], self.centres.levels[:, k]
            unknown = self.centres.no_level[:, k]
            share = shares[mine][:, None]  # m 1
            stays = (mine[:, None] == theirs) * (1 - self.flip) + self.flip * share
            factor = np.where(unknown, share, stays)
            out += np.where(state.no_level[:, k : k + 1], 0.0, np.log(factor))
        return out

    def log_density(self, state: State, scale: float = 1.0) -> np.ndarray:
        """Return log q(x) up to a constant: (m,)."""
        return _logsumexp(self._log_kernels(state, scale * self.width))

    def move(
        self, state: State, scale: float, generator: np.random.Generator, local: bool = True
    ) -> tuple[State, np.ndarray]:
        """Propose a draw from a kernel that covers each chain (or any kernel, if not `local`).

        Returns the new state and log q(x) - log q(x') for kernels of `scale` times their width.
        """
        width = scale * self.width
        kernels = self._log_kernels(state, width)
        before = _logsumexp(kernels)
        m = len(state.numbers)
        if local:
            centre = (kernels + generator.gumbel(size=kernels.shape)).argmax(1)
        else:
            centre = generator.integers(self.count, size=m)
        noise = width[centre][:, None] * generator.standard_normal((m, self.columns))
        numbers = self.centres.numbers[centre] + noise @ self.shape.T
        levels = self.centres.levels[centre].copy()
        for k in range(levels.shape[1]):
            forgets = self.centres.no_level[centre, k] | (generator.random(m) < self.flip)
            levels[forgets, k] = self._draw_level(k, int(forgets.sum()), generator)
        proposal = State(numbers, levels, state.no_number, state.no_level)
        return proposal, before - self.log_density(proposal, scale)

    def walk(self, state: State, scale: np.ndarray, generator: np.random.Generator) -> State:
        """Propose a step in all numbers, symmetric: `scale` (m,) times the usual kernel width."""
        m = len(state.numbers)
        size = np.median(self.width) * scale[:, None]
        noise = size * generator.standard_normal((m, self.columns))
        numbers = state.numbers + noise @ self.shape.T
        return State(numbers, state.levels, state.no_number, state.no_level)

    def flip_levels(self, state: State, generator: np.random.Generator) -> tuple[State, np.ndarray]:
        """Propose a draw of one level of each chain from its share in the context.

        Returns the new state and log share(level) - log share(new level).
        """
        m = len(state.levels)
        levels, correction = state.levels.copy(), np.zeros(m)
        column = generator.integers(levels.shape[1], size=m)
        for k, shares in enumerate(self.layout.shares):
            mine = np.flatnonzero((column == k) & ~state.no_level[:, k])
            old, new = levels[mine, k], self._draw_level(k, len(mine), generator)
            levels[mine, k] = new
            correction[mine] = np.log(shares[old]) - np.log(shares[new])
        return State(state.numbers, levels, state.no_number, state.no_level), correction

    def _draw_level(self, k: int, count: int, generator: np.random.Generator) -> np.ndarray:
        shares = self.layout.shares[k]
        return generator.choice(len(shares), size=count, p=shares)


def _column_scales(x: np.ndarray) -> np.ndarray:
    """Return robust scales of columns; their standard deviation where half of the rows are tied."""
    spread = np.quantile(x, 0.75, axis=0) - np.quantile(x, 0.25, axis=0)
    spread = np.where(spread > 0, spread / 1.349, x.std(0))
    return np.where(spread > 0, spread, 1.0)


def _squared_distances(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    other = x if y is None else y
    out = (x**2).sum(1)[:, None] + (other**2).sum(1) - 2 * x @ other.T
    out = np.maximum(out, 0.0)
    if y is None:
        np.fill_diagonal(out, 0.0)
    return out


def _logsumexp(values: np.ndarray) -> np.ndarray:
    top = values.max(1)
    return top + np.log(np.exp(values - top[:, None]).sum(1))
