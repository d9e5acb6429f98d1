"""Proposals shaped by the context: a kernel density over its rows, and random walks.

With kernels K_i around n context rows, q(x) = 1/n sum_i K_i(x). From x, choose a row i with
probability K_i(x) / sum_k K_k(x), then draw x' from K_i. This move is reversible with respect to q:

    q(x) T(x -> x') = 1/n sum_i K_i(x) K_i(x')

is symmetric in x and x'. So Metropolis' rule for a target p accepts x' with probability
min(1, p(x') q(x) / (p(x) q(x'))), the same as for a draw of x' from q itself.
"""

from __future__ import annotations

import math

import numpy as np

from tabiced.generate.layout import Layout, State

NEIGHBOURS = 5
LOCAL = 0.98  # share of a kernel's variance that lies in the directions of near rows
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
        """Whiten by the differences of near rows, then give each kernel its neighbours' directions.

        The whitening is the shape inside of clusters, all together; each difference counts for its
        direction alone, because some rows are far from all others.
        """
        x, n, d = self.centres.numbers, self.count, self.columns
        if d == 0:
            self.shape = np.eye(0)
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
        self._fit_local(k)

    def _fit_local(self, k: int) -> None:
        """Let each kernel be as wide, in each direction, as its row and the k nearest ones differ.

        In whitened units, with S_i twice the covariance of these k + 1 rows (what two of them
        differ by) and w_i^2 its mean variance, the covariance of kernel i is

            LOCAL S_i + (1 - LOCAL) w_i^2 I = U_i U_i^T + c_i I

        so clusters that are thin in different directions have kernels that are, too. Differences
        from the rows' mean, not from row i: in many columns nearest rows lie further inside.
        """
        d = self.columns
        near = np.argsort(_squared_distances(self.white), 1)[:, : k + 1]
        group = self.white[near]  # n k+1 d
        along = math.sqrt(2 / k) * (group - group.mean(1, keepdims=True))
        spread = np.sqrt((along**2).sum(1).mean(1))
        usual = float(np.median(spread[spread > 0])) if (spread > 0).any() else 1.0
        self.width = np.maximum(spread, 0.1 * usual)  # w
        self.round = self.width**2 - LOCAL * spread**2  # c
        self.along = math.sqrt(LOCAL) * along  # U^T
        k += 1
        # |v|^2 / c - v^T U (c I + U^T U)^-1 U^T v / c, by Woodbury's identity
        inner = self.round[:, None, None] * np.eye(k) + self.along @ self.along.transpose(0, 2, 1)
        root = np.linalg.cholesky(inner)  # n k+1 k+1
        self.project = np.linalg.solve(root, self.along)  # n k+1 d
        self.offset = np.einsum("nkd,nd->nk", self.project, self.white)
        log_inner = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        self.log_volume = 0.5 * ((d - k) * np.log(self.round) + log_inner)

    def whiten(self, numbers: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.shape, numbers.T).T

    def _log_kernels(self, state: State, scale: float) -> np.ndarray:
        """Return log K_i(x) for all chains and centres: (m, n), up to a constant.

        Missing levels are no part of a row, so they have no factor.
        """
        m, d = len(state.numbers), self.columns
        out = np.zeros((m, self.count))
        if d:
            white = self.whiten(state.numbers)
            squared = _squared_distances(white, self.white)
            along = np.tensordot(white, self.project, (1, 2)) - self.offset  # m n k+1
            squared = np.maximum(squared - np.einsum("mnk,mnk->mn", along, along), 0.0)
            out = -0.5 * squared / self.round / scale**2 - self.log_volume - d * math.log(scale)
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
        return _logsumexp(self._log_kernels(state, scale))

    def move(
        self, state: State, scale: float, generator: np.random.Generator, local: bool = True
    ) -> tuple[State, np.ndarray]:
        """Propose a draw from a kernel that covers each chain (or any kernel, if not `local`).

        Returns the new state and log q(x) - log q(x') for kernels of `scale` times their width.
        """
        kernels = self._log_kernels(state, scale)
        before = _logsumexp(kernels)
        m = len(state.numbers)
        if local:
            centre = (kernels + generator.gumbel(size=kernels.shape)).argmax(1)
        else:
            centre = generator.integers(self.count, size=m)
        numbers = self.centres.numbers[centre] + scale * self.noise(centre, generator)
        levels = self.centres.levels[centre].copy()
        for k in range(levels.shape[1]):
            forgets = self.centres.no_level[centre, k] | (generator.random(m) < self.flip)
            levels[forgets, k] = self._draw_level(k, int(forgets.sum()), generator)
        proposal = State(numbers, levels, state.no_number, state.no_level)
        return proposal, before - self.log_density(proposal, scale)

    def noise(self, centre: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw the numbers' deviations from their kernels' centres."""
        m, d = len(centre), self.columns
        if d == 0:
            return np.zeros((m, 0))
        noise = np.sqrt(self.round[centre])[:, None] * generator.standard_normal((m, d))
        along = self.along[centre]  # m k+1 d
        noise += np.einsum("mk,mkd->md", generator.standard_normal(along.shape[:2]), along)
        return noise @ self.shape.T

    def walk(self, state: State, scale: np.ndarray, generator: np.random.Generator) -> State:
        """Propose a step in all numbers, symmetric: `scale` (m,) times the usual kernel width."""
        m = len(state.numbers)
        size = np.median(self.width) * scale[:, None] if self.columns else scale[:, None]
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
