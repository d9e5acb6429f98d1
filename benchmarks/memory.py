"""Show how much memory it takes to score many rows: 1,000,000 x 20 against 5,000 on a CPU.

    python benchmarks/memory.py                                        # minutes, a tiny network
    python benchmarks/memory.py --weights shipped --queries 20000      # the real one, fewer rows

Prints the peak of resident memory after each step. What grows with the number of queries is the
input (8 bytes a cell, the caller's own), the energies (8 bytes a row) and nothing else, so the peak
of a run with few queries tells that of one with many.
"""

import argparse
import resource
import sys
import time

import numpy as np
import torch

from tabiced import ICED
from tabiced.bench.speed import mixture
from tabiced.model import Network, NetworkConfig

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--weights", choices=("tiny", "shipped"), default="tiny")
    parser.add_argument("--limit-mb", type=float, default=2048)
    options = parser.parse_args()
    torch.set_num_threads(1)

    began = time.perf_counter()

    def report(what: str) -> None:
        print(f"{what:34s} {peak_mb():7.0f} MB {time.perf_counter() - began:7.0f} s", flush=True)

    report("imports")
    weights = Network(NetworkConfig.tiny()).eval() if options.weights == "tiny" else None
    context, _ = mixture(options.context, options.columns)
    model = ICED(device="cpu", weights=weights).fit(context)
    report(f"fit to {options.context:,} rows")
    model.offset_  # noqa: B018, reads the folds, which predict and p_values need
    report("calibrated")
    query = np.random.default_rng(1).normal(size=(options.queries, options.columns))
    report(f"{options.queries:,} queries drawn ({query.nbytes / 2**20:.0f} MB)")
    for rows in (options.queries // 100, options.queries // 10, options.queries):
        energy = model.score_samples(query[:rows])
        assert energy.shape == (rows,) and np.isfinite(energy).all()
        report(f"{rows:,} rows scored")
    print(f"\npeak {peak_mb():.0f} MB, limit {options.limit_mb:.0f} MB")
    if peak_mb() > options.limit_mb:
        sys.exit("too much memory")


if __name__ == "__main__":
    main()
