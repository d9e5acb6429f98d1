"""Time and memory from a context and queries to scores, over numbers of rows and columns.

python -m tabiced.bench speed --methods ours KDE GMM-BIC kNN
python -m tabiced.bench speed --methods ours --options device=cuda
"""

import ctypes
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from tabiced.bench.methods import Method
from tabiced.bench.results import Results
from tabiced.bench.tasks import METHOD_KEY, attempt

ROWS, COLUMNS, QUERIES, REPEATS = (250, 1000, 4000), (5, 20, 50), 256, 3
KEY = ("rows", "columns", *METHOD_KEY)
VALUES = ("seconds", "fastest", "slowest", "megabytes")


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def mixture(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a context and queries from a mixture of five correlated Gaussians."""
    draw = np.random.default_rng(seed)
    means, maps = draw.normal(size=(5, columns)), draw.normal(size=(5, columns, columns))

    def sample(n: int) -> np.ndarray:
        component = draw.integers(5, size=n)
        noise = draw.normal(size=(n, columns)) / np.sqrt(columns)
        return means[component] + np.einsum("nij,nj->ni", maps[component], noise)

    return sample(rows), sample(QUERIES)


def measure(
    grid: Iterable[tuple[int, int]],
    methods: Sequence[Method],
    results: Results,
    repeats: int = REPEATS,
    force: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Time every method on every size: the median of some repeats after one that does not count.

    Memory is that of the first repeat, so that weights which stay in memory are not in it.
    """
    for rows, columns in grid:
        context, query = mixture(rows, columns)
        for method in methods:
            key = {"rows": rows, "columns": columns, **method.key}
            if not force and key in results:
                continue
            if attempt(method.name, method.score, context, query, 0) is None:
                continue  # how long a failure takes is of no interest
            times, memory, megabytes = [], _peak_memory(method), math.nan
            for _ in range(repeats):
                start = time.perf_counter()
                attempt(method.name, method.score, context, query, 0)
                times.append(time.perf_counter() - start)
                megabytes = memory.megabytes() if len(times) == 1 else megabytes
            ends = {"fastest": min(times), "slowest": max(times), "megabytes": megabytes}
            results.add({**key, "seconds": statistics.median(times), **ends})
            if report:
                place = f"{method.name:10s} {rows} x {columns}"
                report(f"{place}: {statistics.median(times):.3f} s, {megabytes:.0f} MB")


class PeakMemory:
    """The most memory that is resident from now on, less what is now. Linux alone tells."""

    def __init__(self) -> None:
        gc.collect()
        _return_freed_memory()  # or what is taken next would not be seen
        try:
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        except OSError:
            self.before = math.nan
        else:
            self.before = _status("VmRSS")

    def megabytes(self) -> float:
        """Return the difference so far, NaN where the system does not tell."""
        return self.before if math.isnan(self.before) else _status("VmHWM") - self.before


class PeakGPUMemory:
    """The same of a GPU's memory."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def megabytes(self) -> float:
        return (torch.cuda.max_memory_allocated() - self.before) / 1e6


def _peak_memory(method: Method) -> PeakMemory | PeakGPUMemory:
    return PeakGPUMemory() if method.device().startswith("cuda") else PeakMemory()


def _return_freed_memory() -> None:
    """Give what was freed back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _status(name: str) -> float:
    """Return a line of the process's status, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024 / 1e6
