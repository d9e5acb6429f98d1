"""More threads than processors: in containers, PyTorch does not see how many it may use."""

from __future__ import annotations

import warnings

import joblib  # type: ignore[import-untyped]
import torch


def warn_of_idle_threads() -> None:
    """Warn where PyTorch has more threads than this process may use processors.

    Threads wait for each other after every operation, so those without a processor hold up all
    others: scores take many times as long. PyTorch counts the machine's processors, also where a
    container may only use two of them.
    """
    threads, usable = torch.get_num_threads(), joblib.cpu_count()
    if threads > usable:
        warnings.warn(
            f"PyTorch runs {threads} threads, but this process may only use {usable} of the "
            "machine's processors, which makes it slow. Call "
            f"torch.set_num_threads({usable}), or set OMP_NUM_THREADS={usable} before you start.",
            stacklevel=3,
        )
