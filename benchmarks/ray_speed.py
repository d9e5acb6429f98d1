"""Measure rows per second on Ray: one worker against two, each on a single thread.

    python benchmarks/ray_speed.py                                # some minutes on two cores
    python benchmarks/ray_speed.py --page docs/large_scale.md     # and write the numbers there
    python benchmarks/ray_speed.py --rows 512 --contexts 100 --repeats 1 --tiny    # a toy run

First what a row costs a core, in this process, over the size of the context: rows per second of
processor time, so that other work on the machine matters little. Then `score_parquet` with one
worker and with two, in turns, in one run. Rates of the clock are those of the last three quarters:
starting Ray and loading torch takes some seconds, whatever the number of rows. Beside them stand
rows per second of the workers' own processor time, which tell whether workers slow each other down;
where other work has the cores, the ratio of the clock says little. In turns with these, half of the
rows in one and in two plain processes: what the machine's cores and memory allow without Ray.
"""

from __future__ import annotations

import argparse
import multiprocessing
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


def _score_plainly(model: Timed, query: np.ndarray, barrier: Any, ends: Any) -> None:
    torch.set_num_threads(1)
    model.score_samples(query[:1])  # reads the context
    barrier.wait()
    start = time.monotonic()
    model.score_samples(query)
    ends.put((start, time.monotonic()))


def in_processes(model: Timed, query: np.ndarray, workers: int) -> float:
    """Return rows per second by the clock of plain processes that share the rows, without Ray."""
    spawn = multiprocessing.get_context("spawn")
    barrier, ends = spawn.Barrier(workers), spawn.Queue()
    processes = [
        spawn.Process(target=_score_plainly, args=(model, part, barrier, ends))
        for part in np.array_split(query, workers)
    ]
    for process in processes:
        process.start()
    marks = [ends.get() for _ in processes]
    for process in processes:
        process.join()
    starts, stops = zip(*marks, strict=True)
    return len(query) / (max(stops) - min(starts))


def compare(
    context: int, rows: int, repeats: int, notes: Path, tiny: bool
) -> dict[int, tuple[float, float, float]]:
    """Return the median rates of one worker and of two: on Ray, of processor time, without Ray."""
    model = fit(context, notes, tiny)
    columns = np.random.default_rng(2).normal(size=(COLUMNS, rows))
    rates: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({f"x{j}": x for j, x in enumerate(columns)}), source)
        for _ in range(repeats):
            for workers, found in rates.items():
                plain = in_processes(model, columns.T[: rows // 2], workers)
                found.append((*on_ray(model, source, rows, workers), plain))
                print(
                    f"{workers} worker(s): {found[-1][0]:8.1f} rows/s by the clock, "
                    f"{plain:8.1f} without Ray",
                    flush=True,
                )
    return {workers: tuple(np.median(found, 0).tolist()) for workers, found in rates.items()}


def summarise(
    cost: dict[int, float], rates: dict[int, tuple[float, float, float]], context: int
) -> str:
    """Lay out the numbers as Markdown."""
    lines = [
        f"| context rows | rows per core and second ({COLUMNS} columns) | core-hours, 10^9 rows |",
        "|---|---|---|",
    ]
    for rows, rate in cost.items():
        lines.append(f"| {rows} | {rate:.0f} | {BILLION / rate / 3600:,.0f} |")
    lines += [
        "",
        "| workers | rows/s by the clock | rows/s of processor time | the same without Ray |",
        "|---|---|---|---|",
    ]
    lines += [f"| {n} | {a:.0f} | {b:.0f} | {c:.0f} |" for n, (a, b, c) in rates.items()]
    ray, _, plain = (two / one for one, two in zip(rates[1], rates[2], strict=True))
    lines += [
        "",
        f"Two workers against one, context of {context} rows: {ray:.2f} times the rows by the "
        f"clock; two plain processes, which is what the cores allow: {plain:.2f} times. "
        f"{os.cpu_count()} CPU cores, one thread a worker, load average {os.getloadavg()[1]:.1f} "
        "over the last five minutes.",
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
