"""Write the shipped network for densities as one small file, to start trainings from elsewhere.

    python pretraining/slim.py --out init.tar.xz
    tar xf init.tar.xz                                  # init/network.json and its parts
    tabiced pretrain --init init/network.json ...

Matrices keep six significant bits in place of eleven, and the network that scores is left out.
Prints the size and by how much energies of tables drawn from the prior differ.
"""

import argparse
import copy
import subprocess
import tempfile
from pathlib import Path

import torch
from pack import difference

from tabiced.atomic import whole_file
from tabiced.model import Network
from tabiced.weights import load_network, save_network

BITS = 6


def coarse(values: torch.Tensor) -> torch.Tensor:
    """Round to BITS significant bits."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2**BITS).round() / 2**BITS, exponent)


def slim(network: Network) -> Network:
    """Return the network for densities alone, with coarse matrices."""
    small = copy.deepcopy(network)
    small.scorer = None
    with torch.no_grad():
        for parameter in small.parameters():
            if parameter.ndim > 1:
                parameter.copy_(coarse(parameter))
    return small


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, .tar.xz")
    options = parser.parse_args()
    network = load_network()
    small = slim(network)
    with tempfile.TemporaryDirectory() as folder:
        save_network(small, Path(folder, "init", "network.json"))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(options.out) as part:
            subprocess.run(["tar", "cJf", str(part), "-C", folder, "init"], check=True)
    size = options.out.stat().st_size / 2**20
    apart = 100 * difference(small, network)
    print(f"{options.out}: {size:.1f} MiB, energies differ by {apart:.2f} % of their spread")


if __name__ == "__main__":
    main()
