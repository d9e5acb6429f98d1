"""Time a training step by its parts, with datasets per second and model FLOP utilisation.

python benchmarks/step_speed.py --compile                      # on a GPU
python benchmarks/step_speed.py --size tiny --shapes 100,4     # toy run on a CPU
"""

import argparse
import random
import time

import torch

from tabiced.model import NetworkConfig
from tabiced.pretrain import Trainer, parse

PEAK = 790e12  # bf16 matrix product seen on an H200 on random data


def step_flops(c: NetworkConfig, tables: int, n: int, m: int, d: int) -> float:
    """Count multiply-adds of matrix products and attention, twice each, forward and backward."""
    rows, cells = tables * (n + m), tables * (n + m) * (d + c.class_tokens)
    block = 2 * (4 * c.cell_width**2 + 2 * c.cell_width * 2 * c.cell_width)
    row_part = cells * (c.row_layers - 1) * block + cells * 4 * c.cell_width**2
    row_part += cells * (d + c.class_tokens) * 4 * c.cell_width * (c.row_layers - 1)
    context = (
        rows * c.layers * (2 * (4 * c.width**2 + 2 * c.width * c.feed_forward) + 4 * n * c.width)
    )
    return 3.0 * (row_part + context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["200,6", "500,14", "1000,26", "2000,50"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--size", default="shipped")
    parser.add_argument("--preset", default="full")
    parser.add_argument("--row-budget", default="20000", help="rows a step, as in pretraining")
    parser.add_argument("--cell-budget", default="400000", help="cells a step, as in pretraining")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--profile", action="store_true", help="list the slowest kernels of 3 steps and a draw"
    )
    o = parser.parse_args()
    arguments = [
        "--run",
        "/nonexistent",
        "--minutes",
        "1",
        "--size",
        o.size,
        "--evaluation-tables",
        "0",
        "--row-budget",
        o.row_budget,
        "--cell-budget",
        o.cell_budget,
    ]
    trainer = Trainer(
        parse([*arguments, "--preset", o.preset, *(["--compile"] if o.compile else [])])
    )
    device = trainer.device

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for shape in o.shapes:
        n, d = map(int, shape.split(","))
        m = 256 if n >= 1000 else 192 if n >= 400 else 128
        start = clock()
        batches = list(trainer.feed._draw(random.Random(0), n, d, m))
        first_draw = clock() - start
        start = clock()
        batches = list(trainer.feed._draw(random.Random(1), n, d, m))
        draw = (clock() - start) / len(batches)
        tables = len(batches[0].column_key)
        start = clock()
        trainer.feed.priors[0][1].draw(
            tables * len(batches), n, m, d, device, trainer.feed.generator
        )
        generate = (clock() - start) / len(batches)
        start = clock()
        trainer.train_step(batches[0])
        trainer.train_step(batches[1])  # captures the graph
        trainer.train_step(batches[2])
        warm = clock() - start
        parts = []
        for i in range(o.steps):
            start = clock()
            trainer.train_step(batches[i % len(batches)])
            parts.append(clock() - start)
        step = sorted(parts)[len(parts) // 2]
        flops = step_flops(trainer.network.config, tables, n, m, d)
        print(
            f"n={n} d={d} m={m} tables={tables} generate={generate * 1e3:.1f}ms "
            f"generate+describe={draw * 1e3:.1f}ms (first {first_draw:.1f}s) "
            f"step={step * 1e3:.1f}ms (warm-up {warm:.1f}s) "
            f"generator share={generate / (draw + step):.2f} "
            f"datasets/s={tables / (draw + step):.0f} MFU={flops / step / PEAK:.3f}",
            flush=True,
        )
        if o.profile:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if device.type == "cuda":
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            with torch.profiler.profile(activities=activities) as profile:
                for batch in batches[:3]:
                    trainer.train_step(batch)
                list(trainer.feed._draw(random.Random(2), n, d, m))
                clock()
            key = "cuda_time_total" if device.type == "cuda" else "cpu_time_total"
            print(profile.key_averages().table(sort_by=key, row_limit=28, max_name_column_width=60))


if __name__ == "__main__":
    main()
