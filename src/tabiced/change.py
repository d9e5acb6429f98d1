"""One network told as a change of another: four bits a weight instead of sixteen.

Training goes on from given weights and moves each of them little. What it moved them by needs few
digits: in groups of `GROUP` weights one scale, and each weight one of fifteen steps on it. Fewer
than `SMALL` numbers, and what is no matrix, are told in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 64
SMALL = 4096
STEPS = 7  # to each side of 0

State = Mapping[str, Tensor]


def pack_change(old: State, new: State) -> dict[str, Tensor]:
    """Return tensors that tell how `new` differs from `old`, which has the same names."""
    packed = {}
    for name, tensor in new.items():
        change = tensor.float() - old[name].float()
        if change.ndim < 2 or change.numel() < SMALL:
            packed[name] = change.half()
            continue
        groups = F.pad(change.flatten(), (0, -change.numel() % GROUP)).view(-1, GROUP)
        scale = (groups.abs().amax(1, keepdim=True) / STEPS).half()
        steps = (groups / scale.float().clamp_min(1e-12)).round().clamp(-STEPS, STEPS)
        code = (steps + 8).to(torch.uint8)  # 1 to 15
        packed[f"{name}:codes"] = code[:, ::2] * 16 + code[:, 1::2]
        packed[f"{name}:scale"] = scale[:, 0]
    return packed


def apply_change(old: State, packed: State) -> dict[str, Tensor]:
    """Return the new state that `pack_change` was given, nearly."""
    new = {}
    for name, tensor in old.items():
        if name in packed:
            new[name] = tensor.float() + packed[name].float()
            continue
        codes = packed[f"{name}:codes"]
        steps = torch.stack([codes // 16, codes % 16], -1).flatten(1).float() - 8  # groups GROUP
        change = (steps * packed[f"{name}:scale"].float()[:, None]).flatten()
        new[name] = tensor.float() + change[: tensor.numel()].view(tensor.shape)
    return new
