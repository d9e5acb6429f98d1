"""Compare short pretraining runs by what they reach on real tables.

    python pretraining/trials.py --pack macrodata_dev.npz --out runs/trials -- \
        "--init shipped" "--init shipped --without stuck_outliers" "--init shipped --seed 2"

Each quoted string is a run: options of `tabiced pretrain`, added to those in --common. One after
the other they are trained, scored on the suites of `tabiced.evaluation` and on the pack (mean AUROC
in percent of the bare network, one view), and written to OUT/trials.csv. The pack decides between
priors: a run is always best at the tables it was trained on.
"""

import argparse
import shlex
import time
from pathlib import Path

import numpy as np

from tabiced.bench.macrodata import look
from tabiced.bench.ours import bare_network
from tabiced.evaluation import Suite
from tabiced.pretrain import Trainer, append_row, parse


def trial(options: str, folder: Path, pack: Path, limit: int | None) -> dict[str, object]:
    """Train as told and return what was reached."""
    trainer = Trainer(
        parse(["--run", str(folder), "--evaluation-tables", "0", *shlex.split(options)])
    )
    trainer.run()
    network = trainer.average.eval().requires_grad_(False)
    suites = Suite(network, tables=40).accuracy(network)
    started = time.monotonic()
    with np.load(pack) as tables:
        real = look(bare_network(network, device=str(trainer.device)), tables, limit)
    return {
        "options": options,
        "steps": trainer.step,
        "tables": trainer.tables,
        **{name: round(value, 4) for name, value in suites.items()},
        **{name: round(value, 2) for name, value in real.items()},
        "seconds_on_pack": round(time.monotonic() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and the table")
    parser.add_argument("--common", default="", help="options of all runs")
    parser.add_argument("--limit", type=int, help="tables of the pack, at equal steps; default all")
    parser.add_argument("runs", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "trials.csv"
    for i, run in enumerate(options.runs):
        said = f"{options.common} {run}".strip()
        row = trial(said, options.out / f"run{i}", options.pack, options.limit)
        append_row(path, row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
