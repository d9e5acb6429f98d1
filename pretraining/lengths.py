"""Tell how well networks find anomalies of held-out real tables, by the length of the context.

    python pretraining/lengths.py --collection real_tables.npz.xz --tables 60 \
        --weights runs/early/network.json runs/late/network.json

Prints the AUROC in percent of each network by itself, with clean and with contaminated contexts.
Settings and lengths have tasks of their own, so only networks are to be compared. Without --weights
it is the shipped one; of weights with a network for scores, that one is measured.
"""

import argparse
from pathlib import Path

from tabiced.collection import is_held_out, read_collection
from tabiced.evaluation import RealSuite
from tabiced.labelled import LabelledTables
from tabiced.weights import load_network

SHAPES = ((120, 6), (300, 9), (600, 9), (900, 9))  # context rows, columns


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--weights", type=Path, nargs="*", default=[None], help="cards")
    parser.add_argument("--tables", type=int, default=60, help="tasks of each length and setting")
    options = parser.parse_args()
    loaded = {str(path or "shipped"): load_network(path) for path in options.weights}
    networks = {name: network.scorer or network for name, network in loaded.items()}
    found = read_collection(options.collection)
    tables = LabelledTables({name: pair for name, pair in found.items() if is_held_out(name)})
    for shape in SHAPES:
        suite = RealSuite(next(iter(networks.values())), tables, options.tables, shapes=(shape,))
        for name, network in networks.items():
            told = " / ".join(f"{100 * value:.1f}" for value in suite.accuracy(network).values())
            print(f"{shape[0]} rows, {shape[1]} columns: {told}  {name}", flush=True)


if __name__ == "__main__":
    main()
