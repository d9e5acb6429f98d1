"""The network in bfloat16, for scores on processors that have instructions for it.

Matrix products take less than half the time and kept contexts half the memory. Energies differ in
the third digit, which no ranking notices; log-densities are always computed in float32. Rows are
still computed each by itself, so what is equal in float32 is equal here.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabiced.model import Network, Operations

M = TypeVar("M", bound=nn.Module)

LEAST_WIDTH = 256  # of tokens: below, products are too small to gain from it
ROWS_AT_ONCE = 128  # whose attention weights stay in the processor's cache


@cache
def has_instructions() -> bool:
    """Tell whether this processor multiplies matrices of bfloat16 faster than others."""
    # Versions of PyTorch before this function leave it unknown.
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def is_faster(network: Network, device: str) -> bool:
    """Tell whether `halved` makes a network faster here."""
    wide = network.config.width >= LEAST_WIDTH and network.encoder is None
    return device == "cpu" and wide and has_instructions()


class HalfLinear(nn.Module):
    """A linear layer with weights in bfloat16."""

    def __init__(self, layer: nn.Linear, result: torch.dtype):
        """Copy the weights of a layer; `result` is the type of what it returns."""
        super().__init__()
        self.result = result
        self.weight = layer.weight.detach().bfloat16()
        self.bias = None if layer.bias is None else layer.bias.detach().bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.bfloat16(), self.weight, self.bias).to(self.result)


def attend_half(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with (B, heads, S, width) to keys and values in bfloat16."""
    q = (q * q.shape[3] ** -0.5).bfloat16()
    parts = [_attend_few(part, k, v) for part in q.split(ROWS_AT_ONCE, 2)]
    return torch.cat(parts, 2).float()


def _attend_few(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    # Exponentials of bfloat16 are slower than those of float32 with both conversions.
    return (q @ k.mT).float().softmax(-1).bfloat16() @ v


def attend_half_cells(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend inside rows, all in bfloat16."""
    return _attend_few(q * q.shape[3] ** -0.5, k, v)


def halved(network: Network) -> Network:
    """Return a network with the same energies, nearly: layers in bfloat16, the rest is shared.

    Without gradients.
    """
    # Many layers add to a row's token, few to its cells: only the former needs more digits.
    blocks = [_with_layers(block, _halved_layers(block, torch.float32)) for block in network.blocks]
    row_blocks = [
        _with_layers(block, _halved_layers(block, torch.bfloat16)) for block in network.row_blocks
    ]
    light = _with_layers(
        network,
        {
            "blocks": nn.ModuleList(blocks),
            "row_blocks": nn.ModuleList(row_blocks),
            "mix": HalfLinear(network.mix, torch.float32),
            "cell": _second_halved(network.cell),
            "statistics": _second_halved(network.statistics),
        },
    )
    light.operations = Operations(
        attend=attend_half,
        attend_cells=attend_half_cells,
        cells=torch.bfloat16,
        kept=torch.bfloat16,
    )
    return light


def _with_layers(module: M, layers: dict[str, nn.Module]) -> M:
    """Return a copy of a module that has some other layers and shares the rest."""
    other = copy.copy(module)
    other._modules = {**module._modules, **layers}
    return other


def _halved_layers(block: nn.Module, result: torch.dtype) -> dict[str, nn.Module]:
    return {
        # Between the two layers of the feed-forward part nothing needs more digits, either.
        name: HalfLinear(layer, torch.bfloat16 if name == "up" else result)
        for name, layer in block.named_children()
        if isinstance(layer, nn.Linear)
    }


def _second_halved(layers: nn.Sequential) -> nn.Sequential:
    """Halve the second of two layers: the first sees numbers of which every digit counts."""
    first, bend, second = layers
    assert isinstance(second, nn.Linear)
    return nn.Sequential(first, bend, HalfLinear(second, torch.float32))
