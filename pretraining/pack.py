"""Put networks that were trained on real tables beside the shipped one, as a change of it.

    python pretraining/pack.py --scorer runs/one/network.json runs/two/network.json \
        --out runs/packed/iced.json

Of several networks the mean is taken, weight by weight: having started from the same weights, they
agree in what matters, and differ in what each learned by heart. Densities and samples stay as they
are, and so does the branch without attention: only scores come from the new network. Prints how
near the packed weights are to the mean, by the scores of tables drawn from the prior.

As a change of the weights that its run started from (--base), a network takes a quarter of the
room. --scorer takes such packed ones, too.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch

from tabiced.model import Network
from tabiced.prior import Prior
from tabiced.weights import load_network, own_state, read_card, save_network


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--scorer", type=Path, nargs="+", required=True, help="cards of the trained weights")
    add("--base", type=Path, help="card of the network that stays; default: the shipped one")
    add("--out", type=Path, required=True, help="card to write")
    options = parser.parse_args()
    network, trained = (copy.deepcopy(load_network(options.base)) for _ in range(2))
    network.scorer = trained
    trained.scorer = None
    states = [own_state(scorer_of(load_network(path))) for path in options.scorer]
    mean = {name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]}
    kept = {name: t for name, t in own_state(network).items() if name.startswith("shallow.")}
    trained.load_state_dict(mean | kept)
    runs = [run for path in options.scorer for run in runs_of(read_card(path))]
    replaced = ("architecture", "scoring", "sha256", "scorer")
    facts = {name: fact for name, fact in read_card(options.base).items() if name not in replaced}
    save_network(network, options.out, **facts, scorer={"mean_of": runs})
    packed = load_network(options.out).scorer
    assert packed is not None
    apart = 100 * difference(packed, trained)
    print(f"{options.out}: scores differ by {apart:.2f} % of their spread")


def scorer_of(network: Network) -> Network:
    return network.scorer or network


def runs_of(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is known of the runs behind the network that scores."""
    if "scorer" in card:
        return list(card["scorer"]["mean_of"])
    return [{name: card[name] for name in ("seconds", "step", "tables", "training")}]


def difference(one: Network, other: Network) -> float:
    """Return how far the energies of some drawn tables lie apart, in their standard deviations."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"tables": 4, "context_rows": 300, "query_rows": 200, "columns": 8}
    drawn = Prior("full").draw(**sizes, generator=generator)
    ours, theirs = (n.energy(n.read(drawn.context), drawn.query) for n in (one, other))
    return float((ours - theirs).square().mean().sqrt() / theirs.std())


if __name__ == "__main__":
    main()
