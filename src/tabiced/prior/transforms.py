"""Invertible maps of the measured columns: their interface, and the plain affine ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class Transform:
    """An invertible map of rows (T, N, d), one per table of a group.

    `calibrate` sees the clean context once, before any `forward`, and fixes whatever the map takes
    from the data (a range, a spread); from then on the map is a constant of the table.
    """

    def calibrate(self, x: Tensor) -> None:
        """Fix data-dependent constants from clean context rows."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return x with y = forward(x), and log |det dx/dy| as (T, N)."""
        raise NotImplementedError


class Chain(Transform):
    """Apply transforms one after the other."""

    def __init__(self, parts: Sequence[Transform]):
        self.parts = list(parts)

    def calibrate_forward(self, x: Tensor, context_rows: int) -> Tensor:
        """Calibrate every part on the first rows as they arrive there, and map all rows."""
        for part in self.parts:
            part.calibrate(x[:, :context_rows])
            x = part.forward(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part.forward(x)
        return x

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        total = y.new_zeros(y.shape[:2])
        for part in reversed(self.parts):
            y, log_det = part.inverse(y)
            total = total + log_det
        return y, total


class Affine(Transform):
    """y = x * scale + shift per column; scale > 0 and shift broadcast against (T, 1, d)."""

    scale: Tensor
    shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        log_det = -self.scale.log().expand(y.shape[0], 1, y.shape[2]).sum(-1)  # (T, 1)
        return (y - self.shift) / self.scale, log_det


class MinMax(Affine):
    """Scale every column to (-1, 1) on the context; queries may fall outside."""

    def calibrate(self, x: Tensor) -> None:
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        self.scale = 2 / (high - low).clamp_min(1e-12)
        self.shift = -1 - low * self.scale


class Standardise(Affine):
    """Bring every column to median 0 and median absolute value 2/3, whatever its tails."""

    def calibrate(self, x: Tensor) -> None:
        centre = x.median(1, keepdim=True).values
        spread = (x - centre).abs().median(1, keepdim=True).values.clamp_min(1e-9)
        self.scale = 1 / (1.5 * spread)
        self.shift = -centre * self.scale


class FixedAffine(Affine):
    """Scale and shift columns by given amounts."""

    def __init__(self, scale: Tensor, shift: Tensor):
        self.scale, self.shift = scale, shift
