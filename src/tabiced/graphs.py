"""Replay training work as CUDA graphs.

A training step launches thousands of small kernels; started one by one from Python they keep the
GPU waiting two thirds of the time. A graph is recorded once per table shape and then started with
one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tabiced.curriculum import DRAWING, Batch


class Graphed:
    """Run a function without arguments: eagerly first, then recorded, then replayed."""

    def __init__(self, function: Callable[[], Tensor], pool: Any = None):
        self.function, self.pool = function, pool
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Tensor | None = None

    def __call__(self) -> Tensor:
        self.calls += 1
        if self.calls == 1:  # lets libraries and compilers set themselves up before recording
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                result = self.function()
            torch.cuda.current_stream().wait_stream(side)
            return result
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with (
                DRAWING,
                torch.cuda.graph(self.graph, self.pool, capture_error_mode="thread_local"),
            ):
                self.result = self.function()
        self.graph.replay()
        assert self.result is not None
        return self.result.clone()


class GraphedBackward:
    """Run a function of a batch through one graph per shape; all share a memory pool."""

    def __init__(self, function: Callable[[Batch], Tensor]):
        self.function = function
        self.pool = torch.cuda.graph_pool_handle()
        self.recorded: dict[tuple[torch.Size, ...], tuple[Batch, Graphed]] = {}

    def __call__(self, batch: Batch) -> Tensor:
        key = tuple(tensor.shape for tensor in batch.tensors())
        if key not in self.recorded:
            static = batch.clone()
            self.recorded[key] = static, Graphed(lambda: self.function(static), self.pool)
        static, graphed = self.recorded[key]
        for target, source in zip(static.tensors(), batch.tensors(), strict=True):
            target.copy_(source)
        return graphed()
