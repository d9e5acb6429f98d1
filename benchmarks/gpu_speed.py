"""Measure rows per second and the time to sample on a GPU.

    python benchmarks/gpu_speed.py
    python benchmarks/gpu_speed.py --page docs/large_scale.md     # and write the numbers there
    python benchmarks/gpu_speed.py --device cpu --rows 512 --contexts 100    # minutes: it samples

Rows of 20 columns are scored against contexts of several sizes, by the clock, the median of three
runs after a first one that does not count. Then 500 rows are drawn in 200 steps.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tabiced import ICED
from tabiced.bench.results import write_section
from tabiced.bench.speed import mixture
from tabiced.generate import Metropolis, sample_rows

COLUMNS, SAMPLED, STEPS, BILLION = 20, 500, 200, 1e9


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median time of some calls; one more comes first, and is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def rows_per_second(sizes: list[int], rows: int, device: str) -> dict[int, float]:
    query, found = np.random.default_rng(1).normal(size=(rows, COLUMNS)), {}
    for size in sizes:
        model = ICED(device=device, max_context_rows=size).fit(mixture(size, COLUMNS)[0])
        found[size] = rows / seconds(lambda model=model: model.score_samples(query))
        print(f"context of {size:5d} rows: {found[size]:10.0f} rows per second", flush=True)
    return found


def summarise(rates: dict[int, float], sampling: float, device: str) -> str:
    """Lay out the numbers as Markdown."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    lines = [
        f"| context rows | rows per second, {name} ({COLUMNS} columns) | hours, 10^9 rows |",
        "|---|---|---|",
    ]
    for size, rate in rates.items():
        lines.append(f"| {size:,} | {rate:,.0f} | {BILLION / rate / 3600:,.1f} |")
    lines += [
        "",
        f"Drawing {SAMPLED} new rows of {COLUMNS} columns in {STEPS} steps from {min(rates):,} "
        f"reference rows takes {sampling:.1f} s there.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2**17, help="rows scored by each run")
    parser.add_argument("--contexts", type=int, nargs="+", default=[500, 1000, 5000])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--page", type=Path, help="Markdown file with the marked section")
    options = parser.parse_args()
    rates = rows_per_second(options.contexts, options.rows, options.device)
    model = ICED(device=options.device).fit(mixture(min(options.contexts), COLUMNS)[0])
    chains = Metropolis(steps=STEPS)
    sampling = seconds(lambda: sample_rows(model, SAMPLED, sampler=chains), repeats=1)
    text = summarise(rates, sampling, options.device)
    print(f"\n{text}")
    if options.page:
        write_section(options.page, text, "measured on a GPU")


if __name__ == "__main__":
    main()
