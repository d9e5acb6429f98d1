"""The network in bfloat16, for scores on processors that have instructions for it.

Matrix products take less than half the time and kept contexts half the memory. Energies differ in
the third digit, which no ranking notices; log-densities are always computed in float32. Rows are
still computed each by itself, so what is equal in float32 is equal here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabiced.model import Block, Network, Operations

HALF = torch.bfloat16
LEAST_WIDTH = 256  # of tokens: below, products are too small to gain from it
ROWS_AT_ONCE = 256  # whose attention weights stay in the processor's cache


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

    def __init__(self, layer: nn.Linear, result: torch.dtype = HALF, gain: Tensor | None = None):
        """Copy a layer; `result` is the type of what it returns, `gain` multiplies its input."""
        super().__init__()
        self.result = result
        weight = layer.weight if gain is None else layer.weight * gain
        self.weight = weight.detach().to(HALF)
        self.bias = None if layer.bias is None else layer.bias.detach().to(HALF)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(HALF), self.weight, self.bias).to(self.result)


class HalfBlock(nn.Module):
    """The weights of a block in bfloat16; gains of its norms are in the layers behind them."""

    def __init__(self, block: Block, stream: torch.dtype):
        """`stream` is the type of the tokens that the block adds to."""
        super().__init__()
        self.heads = block.heads
        self.q = HalfLinear(block.q, gain=block.norm.weight)
        self.kv = HalfLinear(block.kv, gain=block.norm.weight)
        self.out = HalfLinear(block.out, stream)
        self.up = HalfLinear(block.up, gain=block.norm2.weight)
        self.down = HalfLinear(block.down, stream)
        gain = block.q_norm.weight * block.k_norm.weight  # in their product it is all one
        self.gain = (gain * len(gain) ** -0.5).detach()  # width of a head


def _unit(x: Tensor) -> Tensor:
    """Divide by the root mean square, as `Norm` does before its gain; in bfloat16."""
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).float()
    scale = size.square_().div_(x.shape[-1]).add_(1e-6).rsqrt_()
    return (x * scale.to(x.dtype)).to(HALF)


def _queries(block: HalfBlock, x: Tensor, scale: Tensor | None = None) -> Tensor:
    q = _unit(block.q(_unit(x)).unflatten(-1, (block.heads, -1)))
    gain = block.gain if scale is None else block.gain * scale[:, 0]  # heads width
    return q.mul_(gain.to(HALF))


def _keys_values(block: HalfBlock, x: Tensor) -> tuple[Tensor, Tensor]:
    k, v = block.kv(_unit(x)).unflatten(-1, (2 * block.heads, -1)).chunk(2, -2)
    return _unit(k).transpose(1, 2), v.transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with queries (B, S, heads, width): (B, S, heads * width)."""
    parts = []
    for part in q.transpose(1, 2).split(ROWS_AT_ONCE, 2):
        # Exponentials of bfloat16 are slower than those of float32 with both conversions.
        weights = (part @ k.mT).float().softmax(-1).to(HALF)
        parts.append((weights @ v).transpose(1, 2).flatten(2))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _finish(block: HalfBlock, x: Tensor, attended: Tensor) -> Tensor:
    x = block.out(attended).add_(x)
    return block.down(torch.ops.aten.gelu_(block.up(_unit(x)))).add_(x)


def halved(network: Network) -> Network:
    """Return a network with the same energies, nearly: layers in bfloat16, the rest is shared.

    Without gradients.
    """
    light = copy.copy(network)
    light._modules = {
        **network._modules,
        # Many layers add to a row's token, few to its cells: only the former needs more digits.
        "blocks": nn.ModuleList(HalfBlock(b, torch.float32) for b in _blocks(network.blocks)),
        "row_blocks": nn.ModuleList(HalfBlock(b, HALF) for b in _blocks(network.row_blocks)),
        "mix": HalfLinear(network.mix, torch.float32),
        "cell": _second_halved(network.cell),
        "statistics": _second_halved(network.statistics),
    }
    light.operations = Operations(
        _queries, _keys_values, _finish, attend=_attend, attend_cells=_attend, cells=HALF
    )
    return light


def _blocks(blocks: nn.ModuleList) -> Iterator[Block]:
    for block in blocks:
        assert isinstance(block, Block)
        yield block


def _second_halved(layers: nn.Sequential) -> nn.Sequential:
    """Halve the second of two layers: the first sees numbers of which every digit counts."""
    first, bend, second = layers
    assert isinstance(second, nn.Linear)
    return nn.Sequential(first, bend, HalfLinear(second, torch.float32))
