"""Invertible affine maps of mixture components: x = e M + b for row vectors e."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tabiced.prior.randomness import Random


def rotations(random: Random, batch: tuple[int, ...], d: int, strength: float | Tensor) -> Tensor:
    """Draw orthogonal matrices (*batch, d, d) as products of plane rotations.

    Each of log2(d) + 1 stages turns disjoint pairs of columns by angles uniform in
    +-pi * strength and interleaves them (a butterfly), so strength 0 gives a permutation and
    strength 1 mixes all columns. Cheaper on a device than a batch of QR factorisations.
    `strength` broadcasts against (*batch, 1, d // 2).
    """
    q = torch.eye(d, device=random.device, dtype=torch.float64).expand(*batch, d, d)
    half = d // 2
    if half == 0:
        return q
    stages = math.ceil(math.log2(d)) + 1
    angles = random.uniform((stages, *batch, 1, half), -math.pi, math.pi) * strength
    for turn in torch.polar(torch.ones_like(angles), angles):
        # a pair of columns is one complex number, and the real view of it interleaves them
        pairs = torch.complex(q[..., :half], q[..., half : 2 * half]) * turn
        q = torch.cat((q[..., 2 * half :], torch.view_as_real(pairs).flatten(-2)), -1)
    return q


class Rotated:
    """Map e to e diag(s) Q^T + b: an ellipsoid with axes Q and radii s; the inverse needs no solve.

    Args:
        q: Orthogonal matrices (T, K or 1, d, d).
        radii: Positive radii (T, K, d).
        centres: Centres (T, K, d).
    """

    def __init__(self, q: Tensor, radii: Tensor, centres: Tensor):
        self.matrix = radii.unsqueeze(-1) * q.transpose(-1, -2)  # (T, K, d, d)
        self.inverse = q / radii.unsqueeze(-2)  # (T, K, d, d)
        self.centres = centres
        self.log_det = radii.log().sum(-1)  # (T, K)

    def whiten(self, x: Tensor) -> Tensor:
        """Return e with x = e M_k + b_k for every component, (T, N, K, d)."""
        t, n, d = x.shape
        k = self.inverse.shape[1]
        inverse = self.inverse.transpose(1, 2).reshape(t, d, k * d)
        offset = (self.centres.unsqueeze(-2) @ self.inverse).reshape(t, 1, k * d)
        return torch.baddbmm(offset, x, inverse, beta=-1).view(t, n, k, d)


class Dense:
    """Map e to e G^T + b, or to e (G G^T)^T + b if `symmetric`, for any invertible G.

    The inverse is a pair of triangular solves with the LU factors of G (twice if symmetric, which
    avoids squaring the condition number of G).
    """

    def __init__(self, g: Tensor, centres: Tensor, symmetric: bool):
        self.factors, self.pivots, _ = torch.linalg.lu_factor_ex(g)
        self.matrix = g @ g.transpose(-1, -2) if symmetric else g.transpose(-1, -2)
        self.centres = centres
        log_det = self.factors.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        self.log_det = 2 * log_det if symmetric else log_det
        self.symmetric = symmetric

    def whiten(self, x: Tensor) -> Tensor:
        """Return e with x = e M_k + b_k for every component, (T, N, K, d)."""
        shifted = x.unsqueeze(1) - self.centres.unsqueeze(2)  # (T, K, N, d)
        e = torch.linalg.lu_solve(self.factors, self.pivots, shifted.transpose(-1, -2))
        if self.symmetric:
            e = torch.linalg.lu_solve(self.factors, self.pivots, e, adjoint=True)
        return e.permute(0, 3, 1, 2)
