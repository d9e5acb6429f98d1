"""Time the generator of training tables on the training shapes.

    python benchmarks/prior_speed.py                    # the GPU if there is one, else the CPU
    python benchmarks/prior_speed.py --tables 64 --repeats 2 --device cpu

Prints, per shape, milliseconds per draw (median and worst of the repeats, which meet different
structures), datasets per second and the peak of device memory.
"""

import argparse
import time

import torch

from tabiced.prior import Prior

# (context rows, query rows, columns): the curriculum's stages and its tails
SHAPES = (
    (128, 128, 4),
    (300, 256, 8),
    (500, 256, 16),
    (1000, 256, 26),
    (2000, 256, 50),
    (2000, 256, 64),
    (5000, 256, 64),
    (2000, 256, 128),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="full", choices=("full", "paper"))
    parser.add_argument("--tables", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()

    device = torch.device(options.device)
    cuda = device.type == "cuda"
    prior = Prior(options.preset)
    generator = torch.Generator(device).manual_seed(0)
    prior.draw(options.tables, 100, 64, 8, device, generator)  # load kernels

    name = torch.cuda.get_device_name(device) if cuda else "CPU"
    print(f"{name}, torch {torch.__version__}, preset {options.preset}, {options.tables} tables")
    titles = ("rows", "queries", "columns", "ms", "worst ms", "tables/s", "peak MB")
    print(" ".join(f"{title:>8}" for title in titles))
    for context_rows, query_rows, columns in SHAPES:
        seconds = []
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        for _ in range(options.repeats):
            started = time.perf_counter()
            prior.draw(options.tables, context_rows, query_rows, columns, device, generator)
            if cuda:
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - started)
        seconds.sort()
        median, worst = seconds[len(seconds) // 2], seconds[-1]
        megabytes = torch.cuda.max_memory_allocated(device) / 2**20 if cuda else float("nan")
        rate = options.tables * len(seconds) / sum(seconds)
        print(
            f"{context_rows:8d} {query_rows:8d} {columns:8d} {1e3 * median:8.1f} "
            f"{1e3 * worst:8.1f} {rate:8.0f} {megabytes:8.0f}"
        )


if __name__ == "__main__":
    main()
