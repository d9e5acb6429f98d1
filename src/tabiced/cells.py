"""Describe every cell relative to the context: a handful of differentiable numbers per value.

A value alone says nothing; what matters is where it stands in its column and whether it agrees
with the rest of its row. `Cells` learns column statistics from the context rows once and then
describes any rows, context or query, with the same functions. Nothing here has parameters,
everything is differentiable in the described values almost everywhere, and no result depends on
the order of rows or columns.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CELL_FEATURES = 16
CELL_SUMMARIES = 7
LATER_SUMMARIES = 3  # which the large network does not see
LINEAR_RANGE = 4.0  # robust deviations up to which `soften` is the identity
SPACING_FLOOR = 1e-3  # in robust scale units: keeps the log-spacing of tied values finite


def soften(x: Tensor) -> Tensor:
    """Keep the bulk as it is and take logarithms of the tails, with a continuous slope.

    Exactly linear inside the range, so that linear dependence between columns survives.
    """
    size = x.abs()
    tail = LINEAR_RANGE + torch.log1p((size - LINEAR_RANGE).clamp_min(0.0))
    return torch.where(size <= LINEAR_RANGE, x, torch.sign(x) * tail)


def inverse_square_root(matrix: Tensor, iterations: int = 26) -> Tensor:
    """Invert the square root of symmetric positive matrices (B, d, d) by coupled Newton steps.

    Matrix products only: batched eigendecompositions are slow on GPUs. In float64 it converges for
    condition numbers up to about 1e7.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    norm = torch.linalg.matrix_norm(matrix, keepdim=True)
    y, z = matrix / norm, identity.expand_as(matrix)
    for _ in range(iterations):
        t = 1.5 * identity - 0.5 * z @ y
        y, z = y @ t, t @ z
    return z / norm.sqrt()


class Marginals:
    """Describe values by the order statistics of their column in the context.

    Tables over the sorted context values (mid-rank distribution function, log-spacings of near
    values) are interpolated linearly, so the description has a gradient between context values.
    """

    def __init__(self, values: Tensor):
        """Sort the context `values` (B, n, d), NaN = missing."""
        columns = values.transpose(1, 2).contiguous()  # B d n
        columns = columns.masked_fill(columns.isnan().all(-1, keepdim=True), 0.0)
        self.count = (~columns.isnan()).sum(-1, keepdim=True)  # B d 1
        self.sorted = columns.nan_to_num(nan=math.inf).sort(-1).values
        left = torch.searchsorted(self.sorted, self.sorted)
        right = torch.searchsorted(self.sorted, self.sorted, right=True)
        right = torch.minimum(right, self.count)
        left = torch.minimum(left, self.count - 1)
        starts = torch.cat([torch.ones_like(left[..., :1]), (left[..., 1:] != left[..., :-1])], -1)
        self.distinct = starts.sum(-1, keepdim=True)  # B d 1
        self.tie = (right - left) / self.count
        self.rank = (left + right) / (2 * self.count)
        self.reach = [self.count.sqrt().ceil().long().clamp_min(2), (self.count // 6).clamp_min(2)]
        self.spacing = [self._log_spacing(left, right, k) for k in self.reach]

    def _log_spacing(self, left: Tensor, right: Tensor, k: Tensor) -> Tensor:
        """Log of (width of the interval of k values to both sides) / (share of values inside)."""
        first = (left - k).clamp_min(0)
        last = torch.minimum(right + k, self.count) - 1
        width = self._at(self.sorted, last) - self._at(self.sorted, first)
        return torch.log(width.nan_to_num(0.0) + SPACING_FLOOR) - torch.log(
            (last - first + 1) / self.count
        )

    def _at(self, table: Tensor, index: Tensor) -> Tensor:
        return torch.gather(table, 2, torch.minimum(index.clamp_min(0), self.count - 1))

    def places(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many context values are smaller, and how many are not larger: (B, d, N)."""
        x = values.detach().transpose(1, 2).contiguous()
        return torch.searchsorted(self.sorted, x), torch.searchsorted(self.sorted, x, right=True)

    def __call__(
        self, values: Tensor, places: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return distribution function, two log-spacings and tie share of (B, N, d) values.

        `places` are those of the values, if they are known.
        """
        x = values.transpose(1, 2).contiguous()  # B d N
        left, right = places or self.places(values)
        tied = right > left
        above = torch.minimum(left, self.count - 1)
        below = torch.where(tied, above, (left - 1).clamp_min(0))
        low, high = self._at(self.sorted, below), self._at(self.sorted, above)
        gap = high - low
        share = torch.where(
            gap > 0, (x - low) / torch.where(gap > 0, gap, 1.0), torch.zeros_like(x)
        )
        share = share.clamp(0, 1)

        def between(table: Tensor) -> Tensor:
            start = self._at(table, below)
            return start + share * (self._at(table, above) - start)

        beneath = (self.sorted[..., :1] - x).clamp_min(0.0)
        beyond = (x - self._at(self.sorted, self.count - 1)).clamp_min(0.0)
        rank = between(self.rank)
        rank = rank / (1 + beneath)
        rank = 1 - (1 - rank) / (1 + beyond)
        outside = beneath + beyond
        # An outside value needs its distance to the edge on top of the edge's own spacing.
        spacings = [
            torch.logaddexp(between(table), torch.log(outside + 1e-12) - torch.log(k / self.count))
            for table, k in zip(self.spacing, self.reach, strict=True)
        ]
        tie = torch.where(tied, self._at(self.tie, above), torch.zeros_like(x))
        rank, near, far, tie = (t.transpose(1, 2) for t in (rank, *spacings, tie))
        return rank, near, far, tie

    def tails(self, places: tuple[Tensor, Tensor], own: int) -> Tensor:
        """Return log(2 min(P(X <= x), P(X >= x), 1/2)) of values (B, N, d), by counting.

        `own` of the context values are a value's own and are not counted: 1 for context rows.
        """
        smaller, not_larger = places
        below = torch.minimum(not_larger, self.count)
        above = (self.count - smaller).clamp_min(0)
        share = (torch.minimum(below, above) - own + 0.5) / (self.count - own + 1)
        return torch.log((2 * share).clamp(1e-6, 1.0)).transpose(1, 2)


class Cells:
    """Column statistics of a context (B, n, d) and the description of any rows by them.

    Context rows and new rows of the same law are described alike: a new row is counted among those
    that share its values, and a context row is whitened as if it had not been there (its leverage
    taken out). Else the network would learn to tell them apart.
    """

    def __init__(self, context: Tensor):
        self.columns = context.shape[-1]
        self._fit_scale(context)
        standard, z = self._scaled(context)
        self.marginals = Marginals(z.masked_fill(context.isnan(), math.nan))
        self._fit_dependence(standard)
        self.whitened_marginals = Marginals(self.whiten(standard) * self.correction)

    def _fit_scale(self, context: Tensor) -> None:
        """Take median and interquartile range; wider quantiles where half the column is tied."""
        ordered = context.sort(1).values  # NaN last
        count = (~context.isnan()).sum(1, keepdim=True)

        def quantile(p: float) -> Tensor:
            return torch.gather(ordered, 1, (p * (count - 1).clamp_min(0)).round().long())

        low, high = quantile(0.0), quantile(1.0)
        full = (high - low).nan_to_num(0.0)
        iqr = (quantile(0.75) - quantile(0.25)).nan_to_num(0.0)
        wide = (quantile(0.98) - quantile(0.02)).nan_to_num(0.0) / 3
        scale = torch.where(iqr > 1e-6 * full, iqr, torch.where(wide > 1e-6 * full, wide, full))
        self.center = quantile(0.5).nan_to_num(0.0)  # B 1 d
        self.scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        self.low = ((low - self.center) / self.scale).nan_to_num(0.0).float()
        self.high = ((high - self.center) / self.scale).nan_to_num(0.0).float()
        softened = soften(((context - self.center) / self.scale).nan_to_num(0.0).float())
        exact = softened.double()  # so that the order of rows cannot be seen in the last digits
        self.mean = exact.mean(1, keepdim=True).float()
        self.deviation = exact.std(1, keepdim=True, unbiased=False).clamp_min(1e-3).float()

    def _scaled(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return softened, standardised values (missing = 0) and plain robust z-scores, in float32.

        Centring happens in the input's own precision: a large offset must not eat the digits.
        """
        z = ((rows - self.center) / self.scale).clamp(-1e6, 1e6).nan_to_num(0.0).float()
        standard = (soften(z) - self.mean) / self.deviation
        return torch.where(rows.isnan(), torch.zeros_like(z), standard), z

    def _fit_dependence(self, standard: Tensor) -> None:
        """Estimate a robust, shrunk covariance and from it the whitening map and the precision.

        One reweighting step of the multivariate t (5 degrees of freedom) keeps outliers in the
        context from shaping the whitening. Shrinkage grows with columns per row.
        """
        n, d = standard.shape[1:]
        x = standard.double()
        shrink = 1e-4 + 0.05 * min(1.0, d / n)
        identity = torch.eye(d, dtype=x.dtype, device=x.device)

        def shrunk(weighted: Tensor, total: Tensor) -> Tensor:
            return (1 - shrink) * weighted / total + shrink * identity

        first = shrunk(x.mT @ x, x.new_tensor(float(n)))
        factor = torch.linalg.cholesky(first)
        distance = torch.linalg.solve_triangular(factor, x.mT, upper=False).square().sum(1)  # B n
        weight = ((5 + d) / (5 + distance))[..., None]  # B n 1
        total = weight.sum(1, keepdim=True)
        location = (weight * x).sum(1, keepdim=True) / total
        x = x - location
        covariance = shrunk(x.mT @ (weight * x), total)
        whitener = inverse_square_root(covariance)
        precision = whitener @ whitener
        diagonal = torch.diagonal(precision, dim1=-2, dim2=-1)[:, None]  # B 1 d
        variance = torch.diagonal(covariance, dim1=-2, dim2=-1)[:, None]
        self.location = location.float()
        self.whitener = whitener.float()
        leverage = weight / total * (x @ whitener).square().sum(-1, keepdim=True)  # B n 1
        self.correction = (1 - leverage.clamp_max(0.9)).rsqrt().float()
        self.residual_map = (precision / diagonal.sqrt()).float()
        self.unexplained = (-0.5 * torch.log(diagonal * variance)).float()  # log share of sd, B 1 d
        # Log-density level of a Gaussian with this covariance in units of the robust scales.
        half_logdet = torch.linalg.cholesky(covariance).diagonal(dim1=-2, dim2=-1).log().sum(-1)
        gaussian = -half_logdet - 0.5 * d * math.log(2 * math.pi * math.e)
        self.gaussian_level = gaussian.float() - self.deviation.log().sum((1, 2))  # B
        # A number per column that neither column order nor units can change: gives columns their
        # names.
        skew = x.pow(3).mean(1, keepdim=True).clamp(-50, 50)
        self.column_key = (torch.log(diagonal) + 0.37 * skew).float()[:, 0]  # B d

    def whiten(self, standard: Tensor) -> Tensor:
        """Turn standardised rows (B, N, d) into uncorrelated unit-variance coordinates."""
        return (standard - self.location) @ self.whitener

    def __call__(
        self, rows: Tensor, in_context: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Describe rows (B, N, d), NaN = missing; `in_context` if they are the context rows.

        Returns the cell features (B, N, d, CELL_FEATURES), the standardised and the whitened rows
        (B, N, d), and per-row summaries of the cells (B, N, CELL_SUMMARIES + LATER_SUMMARIES).
        """
        missing = rows.isnan()
        standard, z = self._scaled(rows)
        places = self.marginals.places(z)
        rank, near, far, tie = self.marginals(z, places)
        residual = (standard - self.location) @ self.residual_map
        white = self.whiten(standard)
        if in_context:
            residual, white = residual * self.correction, white * self.correction
        else:
            tie = tie + 1 / self.marginals.count.mT
        white_rank, white_near, white_far, _ = self.whitened_marginals(white)
        distinct = torch.log(self.marginals.distinct) / math.log(
            max(2, self.marginals.sorted.shape[-1])
        )
        low, span = self.low, (self.high - self.low).clamp_min(1e-6)
        column = [0.5 * self.unexplained, 2 * distinct.mT - 1, torch.log(span).clamp(-2, 10) - 1.0]
        observed = [
            0.5 * soften(z),
            torch.asinh(4 * z) * 0.5,
            (rank - 0.5) * 3.4,
            2 * tie.sqrt(),
            0.5 * (near - 1.5).clamp(-8, 12),
            0.5 * (far - 1.5).clamp(-8, 12),
            3 * (((z - low) / span).clamp(-1, 2) - 0.5),
            0.5 * soften(residual),
            0.5 * soften(white),
            (white_rank - 0.5) * 3.4,
            0.5 * (white_near - 1.5).clamp(-8, 12),
            0.5 * (white_far - 1.5).clamp(-8, 12),
        ]
        blank = torch.zeros_like(z)
        features = [torch.where(missing, blank, f) for f in observed]
        features += [c.expand_as(z) for c in column] + [missing.float()]
        present = (~missing).float()
        total = present.sum(-1).clamp_min(1)

        def mean(values: Tensor) -> Tensor:
            return (values * present).sum(-1) / total

        surprise = -torch.log(torch.minimum(rank, 1 - rank).clamp_min(1e-5))
        summaries = [
            mean(near),
            mean(white_near),
            mean(surprise),
            0.5 * torch.log(mean(standard.square()) + 1e-4),
            0.5 * torch.log(mean(white.square()) + 1e-4),
            torch.log((residual.abs() * present).amax(-1) + 1e-2),
        ]
        summaries.append(missing.float().mean(-1))
        tails = self.marginals.tails(places, own=1 if in_context else 0) * present
        summaries += [(surprise * present).amax(-1), tails.sum(-1) / total, tails.amin(-1)]
        return torch.stack(features, -1), standard, white, torch.stack(summaries, -1)
