"""Describe every row by its distances to the context rows.

Nearest-neighbour distances and kernel sums are what classical estimators know; the network starts
from them and learns the corrections. Context rows are described as if they were not in the
context. Exact copies of a row are counted but are no neighbours: copies tell how a table was
sampled, not how dense it is, unless the table is discrete, and the network can see that.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

NEIGHBOURS = (1, 5, 20)
BANDWIDTHS = (1.0, 0.35)  # multiples of Scott's rule
SHARES = (0.05, 0.15)  # of the context: outliers that gather are fewer, so these see past them
LOCAL_STATISTICS = 2 * (len(NEIGHBOURS) + len(BANDWIDTHS)) + 1
STATISTICS = LOCAL_STATISTICS + 2 * (len(SHARES) + 1)
SPARSITY = len(NEIGHBOURS) + len(BANDWIDTHS) + 2  # which: log-distance to the 20th, whitened
SOFTENING = 0.03  # squared distance per column at which a near row ceases to matter in the mean
# Entries of the distance matrix held at once. On a CPU, larger pieces of memory are fetched anew
# from the system every time, page by page, which costs more than the arithmetic.
CHUNK_ENTRIES = {"cpu": 2**22, "cuda": 2**27}
MANY = 1000  # numbers from which on it is faster to set the smallest apart before they are sorted
COPY_TOLERANCE = 1e-6  # squared distance per column, relative to the rows' own size
FAR = 1e4


class Neighbours:
    """Distances from rows to the context, in standardised and in whitened coordinates."""

    def __init__(self, standard: Tensor, white: Tensor):
        """Remember the context rows (B, n, d) in both coordinate systems."""
        self.spaces = (standard, white)

    def __call__(self, standard: Tensor, white: Tensor, leave_one_out: bool = False) -> Tensor:
        """Describe rows (B, N, d), given in both coordinate systems, by STATISTICS numbers each.

        With `leave_one_out` the rows are the context rows themselves, in the same order.
        """
        batch, n, _ = self.spaces[0].shape
        step = max(1, CHUNK_ENTRIES[standard.device.type] // (batch * n))
        parts = []
        for start in range(0, standard.shape[1], step):
            own = start if leave_one_out else None
            chunks = [rows[:, start : start + step] for rows in (standard, white)]
            measured = [_measure(*pair, own) for pair in zip(chunks, self.spaces, strict=True)]
            (local, broad, copies), (white_local, white_broad, _) = measured
            copies = torch.log1p(copies)[..., None] / math.log(n + 1)
            parts.append(torch.cat([local, white_local, copies, broad, white_broad], -1))
        return torch.cat(parts, 1)


def smallest(x: Tensor, count: int) -> Tensor:
    """Return the smallest numbers of each row in ascending order."""
    if x.is_cuda or x.requires_grad:
        return x.topk(count, dim=-1, largest=False).values
    # numpy sorts all of them several times faster than PyTorch finds some on a CPU.
    numbers = x.numpy()
    if numbers.shape[-1] > MANY:
        numbers = np.partition(numbers, count - 1, -1)[..., :count]
    return torch.from_numpy(np.sort(numbers, -1)[..., :count])


def _measure(rows: Tensor, space: Tensor, own: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Describe rows by their distances to all rows of the context.

    Returns log neighbour distances and log kernel sums (B, N, 5); log-distances to the nearest
    SHARES of the context and the mean log-distance to all of it (B, N, 3); and the number of exact
    copies (B, N). `own` is the position of the first row in the context when the rows are context
    rows.
    """
    n, d = space.shape[1:]
    size = rows.square().sum(-1, keepdim=True) + space.square().sum(-1)[:, None]  # B N n
    squared = torch.baddbmm(size, rows, space.mT, alpha=-2).clamp_min_(0.0).div_(d)
    copy = squared.detach() <= COPY_TOLERANCE * (1 + size.detach() / d)
    copies = copy.sum(-1)
    total = torch.log(squared + SOFTENING).sum(-1)
    others = n
    if own is not None:
        index = torch.arange(rows.shape[1], device=rows.device)
        itself = squared[:, index, index + own]
        total = total - torch.log(itself + SOFTENING)
        copy[:, index, index + own] = True
        copies = (copies - 1).clamp_min(0)
        others = max(1, n - 1)
    squared = squared.masked_fill(copy, FAR**2)
    wanted = [min(k, others) for k in NEIGHBOURS]
    wanted += [max(1, min(round(share * n), others)) for share in SHARES]
    nearest = smallest(squared, max(wanted))
    distances = [0.5 * torch.log(nearest[..., k - 1] + 1e-6) for k in wanted]
    scott = n ** (-1 / (d + 4))
    least = nearest[..., :1]
    kernels, gap = [], squared - least
    for multiple in BANDWIDTHS:
        steep = -0.5 * d / (scott * multiple) ** 2
        # Terms this far below the largest change no digit, and CPUs are slow to exponentiate them.
        total_kernel = (gap * steep).clamp_min(-80).exp_().sum(-1)
        kernels.append((torch.log(total_kernel) + steep * least[..., 0]) / d)
    local = len(NEIGHBOURS)
    return (
        torch.stack(distances[:local] + kernels, -1),
        torch.stack([*distances[local:], 0.5 * total / others], -1),
        copies,
    )
