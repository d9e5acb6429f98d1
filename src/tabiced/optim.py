"""Muon for the matrices of the attention blocks, AdamW for everything else, as one optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


@torch.no_grad()
def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Move the singular values of a stack of wide matrices (S, r, c) to about 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.float()


class Muon:
    """Momentum, orthogonalised; matrices of equal shape are stacked and treated at once."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.01
    ):
        by_shape: dict[tuple[int, ...], list[Tensor]] = {}
        for p in parameters:
            by_shape.setdefault(tuple(sorted(p.shape)), []).append(p)
        self.groups = list(by_shape.values())
        self.momentum, self.weight_decay = momentum, weight_decay
        self.buffers = [
            torch.zeros(len(ps), *sorted(ps[0].shape), device=ps[0].device) for ps in self.groups
        ]

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        for parameters, buffer in zip(self.groups, self.buffers, strict=True):
            tall = [p.shape[0] > p.shape[1] for p in parameters]
            gradients: list[Tensor] = [p.grad for p in parameters]  # type: ignore[misc]
            wide = [g.mT if t else g for g, t in zip(gradients, tall, strict=True)]
            gradient = torch.stack(wide)
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(buffer, self.momentum))
            # The root mean square of an update then matches AdamW's.
            update = update * (-0.2 * math.sqrt(max(update.shape[1:])) * rate)
            steps = [u.mT if t else u for u, t in zip(update, tall, strict=True)]
            torch._foreach_mul_(parameters, 1 - rate * self.weight_decay)
            torch._foreach_add_(parameters, steps)


class Optimizer:
    """Update a network's parameters: Muon on block matrices, AdamW on the rest.

    Rates live in tensors and nothing waits for the device, so a step can be captured as a CUDA
    graph.
    """

    def __init__(self, network: nn.Module, muon_rate: float, adam_rate: float):
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, p in network.named_parameters():
            inside = "blocks." in name or name.startswith("mix.")
            (matrices if inside and p.ndim == 2 else others).append(p)
        device = others[0].device
        self.rates = (muon_rate, adam_rate)
        self.muon_rate, self.adam_rate = (torch.tensor(r, device=device) for r in self.rates)
        self.muon = Muon(matrices)
        gpu = device.type == "cuda"
        self.adam = torch.optim.AdamW(
            others, self.adam_rate, (0.9, 0.98), weight_decay=0.0, fused=gpu, capturable=gpu
        )

    def set_rate(self, factor: float) -> None:
        """Let the following steps run at `factor` times the full rates."""
        self.muon_rate.fill_(self.rates[0] * factor)
        self.adam_rate.fill_(self.rates[1] * factor)

    def step(self) -> None:
        self.muon.step(self.muon_rate)
        self.adam.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return the whole state as named tensors."""
        state = {f"muon.{i}": b for i, b in enumerate(self.muon.buffers)}
        for i, slots in self.adam.state_dict()["state"].items():
            state |= {f"adam.{i}.{key}": torch.as_tensor(value) for key, value in slots.items()}
        return state

    def load_tensors(self, state: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        for i, buffer in enumerate(self.muon.buffers):
            buffer.copy_(state[f"muon.{i}"])
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in state.items():
            if name.startswith("adam."):
                _, index, key = name.split(".")
                slots.setdefault(int(index), {})[key] = value
        groups = self.adam.state_dict()["param_groups"]
        self.adam.load_state_dict({"state": slots, "param_groups": groups})
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate  # loading copies it
