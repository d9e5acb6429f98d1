"""Measure rows per second on Ray: one worker against two, each on a single thread.

    python benchmarks/ray_speed.py                                # some minutes on two cores
    python benchmarks/ray_speed.py --page docs/large_scale.md     # and write the numbers there
    python benchmarks/ray_speed.py --rows 512 --contexts 100 --repeats 1 --tiny    # a toy run

First what a row costs a core, in this process, over the size of the context: rows per second of
processor time, so that other work on the machine matters little. Then `score_parquet` with one
worker and with two, in turns, in one run. Rates of the clock are those of the last three quarters:
starting Ray and loading torch takes some seconds, whatever the number of rows. Beside them stand
rows per second of the workers' own processor time, which tell whether workers slow each other down;
where other work has the cores, the ratio of the clock says little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tabiced import ICED
from tabiced.bench.results import write_section
from tabiced.bench.speed import mixture
from tabiced.model import Network, NetworkConfig
from tabiced.ray import connect, score_parquet

COLUMNS, SAMPLE, BILLION = 20, 1024, 1e9


class Timed(ICED):
    """An estimator whose copies write down the processor time they need."""

    def score_samples(self, X: Any) -> np.ndarray:
        start = time.process_time()
        energy = super().score_samples(X)
        with (self.notes / str(os.getpid())).open("a") as file:
            file.write(f"{len(energy)} {time.process_time() - start}\n")
        return energy


def fit(rows: int, notes: Path, tiny: bool) -> Timed:
    weights = Network(NetworkConfig.tiny()).eval() if tiny else None
    model = Timed(device="cpu", max_context_rows=rows, weights=weights)
    model.notes = notes
    return model.fit(mixture(rows, COLUMNS)[0])


def one_core(sizes: list[int], notes: Path, tiny: bool) -> dict[int, float]:
    """Return rows per second of processor time for each size of the context."""
    query, found = np.random.default_rng(1).normal(size=(SAMPLE, COLUMNS)), {}
    for rows in sizes:
        model = fit(rows, notes, tiny)
        times = []
        for _ in range(3):
            start = time.process_time()
            model.score_samples(query)
            times.append(time.process_time() - start)
        found[rows] = SAMPLE / float(np.median(times))
        print(f"context of {rows:5d} rows: {found[rows]:8.1f} rows per core and second", flush=True)
    return found


def on_ray(model: Timed, source: Path, rows: int, workers: int) -> tuple[float, float]:
    """Return rows per second by the clock, and by the workers' processor time."""
    for page in model.notes.iterdir():
        page.unlink()
    marks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        score_parquet(
            source,
            model,
            Path(folder) / "out",
            concurrency=workers,
            part_rows=rows // 16,
            report=lambda done, _: marks.append((time.perf_counter(), done)),
        )
    # All workers have started by then. A slope, since at any mark the other worker is half through
    # a part: last minus first would count that in favour of more workers.
    when, done = np.array(marks[len(marks) // 4 :]).T
    clock = np.polyfit(when - when[0], done, 1)[0]
    pages = (page for page in model.notes.iterdir() if page.name != str(os.getpid()))
    noted = np.concatenate([np.loadtxt(page, ndmin=2) for page in pages])
    return float(clock), noted[:, 0].sum() / noted[:, 1].sum()


def compare(
    context: int, rows: int, repeats: int, notes: Path, tiny: bool
) -> dict[int, tuple[float, float]]:
    """Return the median rates of one worker and of two."""
    model = fit(context, notes, tiny)
    columns = np.random.default_rng(2).normal(size=(COLUMNS, rows))
    rates: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({f"x{j}": x for j, x in enumerate(columns)}), source)
        for _ in range(repeats):
            for workers, found in rates.items():
                found.append(on_ray(model, source, rows, workers))
                print(f"{workers} worker(s): {found[-1][0]:8.1f} rows/s by the clock", flush=True)
    return {workers: tuple(np.median(found, 0).tolist()) for workers, found in rates.items()}


def summarise(cost: dict[int, float], rates: dict[int, tuple[float, float]], context: int) -> str:
    """Lay out the numbers as Markdown."""
    lines = [
        f"| context rows | rows per core and second ({COLUMNS} columns) | core-hours, 10^9 rows |",
        "|---|---|---|",
    ]
    for rows, rate in cost.items():
        lines.append(f"| {rows} | {rate:.0f} | {BILLION / rate / 3600:,.0f} |")
    lines += ["", "| workers | rows/s by the clock | rows/s of processor time |", "|---|---|---|"]
    lines += [f"| {n} | {clock:.0f} | {core:.0f} |" for n, (clock, core) in rates.items()]
    lines += [
        "",
        f"Two workers against one, context of {context} rows: {rates[2][0] / rates[1][0]:.2f} "
        f"times the rows by the clock; {os.cpu_count()} CPU cores, one thread a worker, "
        f"load average {os.getloadavg()[1]:.1f} over the last five minutes.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192, help="rows scored by each run on Ray")
    parser.add_argument("--contexts", type=int, nargs="+", default=[500, 1000, 5000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", type=Path, help="Markdown file with the marked section")
    parser.add_argument("--tiny", action="store_true", help="a tiny untrained network")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder)
        cost = one_core(options.contexts, notes, options.tiny)
        connect()
        context = options.contexts[0]
        rates = compare(context, options.rows, options.repeats, notes, options.tiny)
    text = summarise(cost, rates, context)
    print(f"\n{text}")
    if options.page:
        write_section(options.page, text)


if __name__ == "__main__":
    main()
