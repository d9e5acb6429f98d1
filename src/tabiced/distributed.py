"""Several processes that train one network: each draws its own tables, gradients are averaged.

    torchrun --nproc-per-node 8 -m -- tabiced.pretrain --run runs/big --minutes 60 --compile

`torchrun` tells each process its rank; without it there is one process and nothing to exchange.
Gradients are averaged between two recorded graphs, where DistributedDataParallel's hooks could not
reach.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor


class Group:
    """The processes of a run, of which this one is number `rank`."""

    def __init__(self) -> None:
        """Join the others, if `torchrun` started this process."""
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        if self.size > 1 and not dist.is_initialized():
            gpus = torch.cuda.is_available()
            dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")

    @property
    def leads(self) -> bool:
        """Whether this process logs, evaluates and saves for all."""
        return self.rank == 0

    def device(self, wanted: str) -> torch.device:
        """Return the device for this process: with several, each has a GPU of its own."""
        if self.size > 1 and wanted == "cuda":
            torch.cuda.set_device(self.local_rank)
            return torch.device("cuda", self.local_rank)
        return torch.device(wanted)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors of one kind by their means over the processes, in one exchange."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def total(self, number: int) -> int:
        """Return the sum of everyone's number."""
        if self.size == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value)
        return int(value)

    def leaders(self, number: float) -> float:
        """Return the number of the process that leads: clocks differ, decisions must not."""
        if self.size == 1:
            return number
        value = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(value, 0)
        return float(value)

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return everyone's tensors as RANK.NAME; names, shapes and types must be the same."""
        if self.size == 1:
            return {f"0.{name}": tensor for name, tensor in tensors.items()}
        found: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            here = tensor.cpu().contiguous()
            parts = [torch.empty_like(here) for _ in range(self.size)]
            dist.all_gather(parts, here)
            found |= {f"{rank}.{name}": part for rank, part in enumerate(parts)}
        return found

    def leave(self) -> None:
        """End the process, once all are done: a connection cut early aborts its other end."""
        if self.size > 1 and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # threads of gloo's may outlive the group, and at a normal end abort it
