"""Describe every row by its log-density under small Gaussian mixtures fitted to the context.

Some steps of expectation maximisation, for all tables at once, see what distances cannot: clusters
that are thin in different directions. Context rows are scored as if the last step had not seen
them. The starting points depend on the rows' values alone, never on their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

COMPONENTS = (2, 5, 10)
ITERATIONS = 30
PRIOR_ROWS = 0.5  # per column, and one: rows of the pooled variance every component has seen
PRODUCTS_WIDTH, PRODUCTS = 24, 2**23  # columns and numbers up to which products of cells are kept


class Mixtures:
    """Mixtures of COMPONENTS Gaussians, fitted to whitened context rows (B, n, d)."""

    def __init__(self, white: Tensor, sparsity: Tensor):
        """Fit; `sparsity` (B, n) is a distance to near rows, small where rows are dense.

        In float64: iterations magnify the last digits, in which the order of rows shows.
        """
        exact = white.double()
        self.fit = _fit(exact, sparsity.double())
        self.context = self._per_column(_leave_one_out(exact, self.fit))  # B n len(COMPONENTS)

    def __call__(self, white: Tensor) -> Tensor:
        """Return the log-densities per column (B, m, len(COMPONENTS)) of new rows."""
        return self._per_column(_joint(white.double(), self.fit))

    def _per_column(self, joint: Tensor) -> Tensor:
        found = [part.logsumexp(1) for part in joint.split(self.fit.sizes, 1)]
        return (torch.stack(found, -1) / self.fit.centres.shape[-1]).float()


@dataclass
class _Fit:
    """All mixtures side by side: K components in all, the first `sizes[0]` are those of one."""

    sizes: list[int]
    count: Tensor  # B K: rows in each component
    centres: Tensor  # B K d
    inverse: Tensor  # B K d d: inverse Cholesky factor of the covariance
    rows: int

    def log_weights(self, count: Tensor, rows: int) -> Tensor:
        """Return log-weights (B, K, ...) inside the mixtures, one row added to each component."""
        each = torch.cat([count.new_full((k,), rows + k) for k in self.sizes])
        return torch.log((count + 1) / each.view(-1, *[1] * (count.ndim - 2)))


def _prior_rows(d: int) -> float:
    return 1 + PRIOR_ROWS * d


def _pick(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(1, index[..., None].expand(-1, -1, rows.shape[-1]))


def _start(x: Tensor, sparsity: Tensor, k: int) -> Tensor:
    """Choose rows that are dense and far from each other, the densest first."""
    scale = sparsity.square() + 1e-6
    index = sparsity.argmin(1, keepdim=True)  # B 1
    chosen = [index]
    nearest = torch.full_like(sparsity, math.inf)
    for _ in range(k - 1):
        nearest = torch.minimum(nearest, (x - _pick(x, index)).square().sum(-1))
        index = (nearest / scale).argmax(1, keepdim=True)
        chosen.append(index)
    return _pick(x, torch.cat(chosen, 1))


def _fit(x: Tensor, sparsity: Tensor) -> _Fit:
    """Run expectation maximisation, each component with some rows of the pooled variance more."""
    sizes = [min(k, x.shape[1]) for k in COMPONENTS]
    distance = torch.cdist(_start(x, sparsity, max(sizes)), x)  # B K n
    nearest = [
        torch.nn.functional.one_hot(distance[:, :k].argmin(1), k).to(x.dtype).mT for k in sizes
    ]
    products = _products(x)
    fit = _maximise(x, torch.cat(nearest, 1), sizes, products)
    for _ in range(ITERATIONS - 1):
        fit = _maximise(x, _shares(_joint(x, fit, products), sizes), sizes, products)
    return fit


def _products(x: Tensor) -> Tensor | None:
    """Return 1, the cells and the products of any two for every row (B, n, 1 + d + d d).

    In these a Gaussian's log-density is linear, and their sums are all that a component is fitted
    to: one matrix product each way. None where the plain way is faster, or memory too dear.
    """
    batch, n, d = x.shape
    if x.is_cuda or d > PRODUCTS_WIDTH or batch * n * d * d > PRODUCTS:
        return None
    outer = (x[..., None] * x[..., None, :]).flatten(2)
    return torch.cat([torch.ones_like(x[..., :1]), x, outer], -1)


def _shares(joint: Tensor, sizes: list[int]) -> Tensor:
    """Return to which share a row belongs to each component of a mixture (B, K, n)."""
    return torch.cat([part.softmax(1) for part in joint.split(sizes, 1)], 1)


def _maximise(x: Tensor, share: Tensor, sizes: list[int], products: Tensor | None = None) -> _Fit:
    """Fit the components to rows (B, n, d) that belong to them with the given shares (B, K, n)."""
    _, n, d = x.shape
    identity = torch.eye(d, dtype=x.dtype, device=x.device)
    if products is None:
        count, total = share.sum(-1), share @ x  # B K, B K d
        weighted = (share[..., None] * x[:, None]).mT @ x[:, None]  # B K d d
    else:
        count, total, weighted = (share @ products).split([1, d, d * d], -1)
        count, weighted = count.squeeze(-1), weighted.unflatten(-1, (d, d))
    count = count + 1e-6
    centres = total / count[..., None]
    scatter = weighted - count[..., None, None] * centres[..., :, None] * centres[..., None, :]
    traces = scatter.diagonal(dim1=-2, dim2=-1).sum(-1)  # B K
    variance = torch.cat(  # B K: inside the components of a mixture
        [part.sum(1, keepdim=True).expand_as(part) for part in traces.split(sizes, 1)], 1
    )
    variance = variance.clamp_min(0.0) / (n * d) + 1e-4
    prior = _prior_rows(d) * variance[..., None, None] * identity
    covariance = (scatter + prior) / (count + _prior_rows(d))[..., None, None]
    factor = torch.linalg.cholesky_ex(covariance + 1e-5 * identity).L
    inverse = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return _Fit(sizes, count, centres, inverse, n)


def _squares(x: Tensor, fit: _Fit) -> Tensor:
    """Return squared Mahalanobis distances (B, K, n)."""
    offset = (fit.inverse @ fit.centres[..., None]).flatten(1)[..., None]  # B K*d 1
    white = torch.baddbmm(offset, fit.inverse.flatten(1, 2), x.mT, beta=-1)  # B K*d n
    return white.square_().unflatten(1, fit.centres.shape[1:]).sum(2)


def _log_det(fit: _Fit) -> Tensor:
    """Return the log-determinants of the inverse factors, less the Gaussian's constant (B, K)."""
    d = fit.centres.shape[-1]
    diagonal = fit.inverse.diagonal(dim1=-2, dim2=-1)
    return diagonal.log().sum(-1) - 0.5 * d * math.log(2 * math.pi)


def _joint(x: Tensor, fit: _Fit, products: Tensor | None = None) -> Tensor:
    """Return log(w_k p_k(x)) as (B, K, n)."""
    level = (fit.log_weights(fit.count, fit.rows) + _log_det(fit))[..., None]  # B K 1
    if products is None:
        return level - 0.5 * _squares(x, fit)
    precision = fit.inverse.mT @ fit.inverse
    slope = (precision @ fit.centres[..., None]).squeeze(-1)  # B K d
    level = level - 0.5 * (slope * fit.centres).sum(-1, keepdim=True)
    return torch.cat([level, slope, -0.5 * precision.flatten(2)], -1) @ products.mT


def _leave_one_out(x: Tensor, fit: _Fit) -> Tensor:
    """Return log(w_k p_k(x)) of each row with its share taken out of every component (B, K, n).

    With share c of component k (count N, prior rows v), the distance is q = (N + v) u^T M^-1 u for
    u = x - mu and the scatter M with the prior. Removal leaves M - a u u^T, a = c N / (N - c), and
    rank-one updates of inverse and determinant give the new distance and volume exactly.
    """
    d = x.shape[-1]
    share = _shares(_joint(x, fit), fit.sizes)
    q, log_det, count = _squares(x, fit), _log_det(fit)[..., None], fit.count[..., None]
    left = (count - share).clamp_min(1e-3)
    total, remaining = count + _prior_rows(d), left + _prior_rows(d)
    lost = (1 - share * count / left * q / total).clamp_min(1e-3)
    distance = (count / left).square() * remaining / total * q / lost
    volume = log_det - 0.5 * lost.log() + 0.5 * d * torch.log(remaining / total)
    return fit.log_weights(left, fit.rows - 1) + volume - 0.5 * distance
