"""Put a network that was trained on real tables beside the shipped one, as a change of it.

    python pretraining/pack.py --scorer runs/real/network.json --out runs/packed/iced.json

Densities and samples stay as they are: only scores come from the new network. Prints how near the
packed weights are to the trained ones, by the scores of a table drawn from the prior.
"""

import argparse
import copy
from pathlib import Path

import torch

from tabiced.prior import Prior
from tabiced.weights import load_network, read_card, save_network


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scorer", type=Path, required=True, help="card of the trained weights")
    parser.add_argument("--out", type=Path, required=True, help="card to write")
    options = parser.parse_args()
    trained, network = load_network(options.scorer), copy.deepcopy(load_network())
    network.scorer = trained
    kept = ("architecture", "scoring", "sha256", "scorer")
    facts = {name: fact for name, fact in read_card().items() if name not in kept}
    save_network(network, options.out, **facts)
    packed = load_network(options.out).scorer
    assert packed is not None
    generator = torch.Generator().manual_seed(0)
    drawn = Prior("full").draw(
        tables=4, context_rows=300, query_rows=200, columns=8, generator=generator
    )
    ours, theirs = (n.energy(n.read(drawn.context), drawn.query) for n in (packed, trained))
    error = (ours - theirs).square().mean().sqrt() / theirs.std()
    print(f"{options.out}: scores differ by {100 * float(error):.2f} % of their spread")


if __name__ == "__main__":
    main()
