"""What several test files share."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

from tabiced.model import Network, NetworkConfig


def random_network(seed: int = 0) -> Network:
    """Return a tiny network whose every weight matters (a fresh one starts with silent layers)."""
    g = torch.Generator().manual_seed(seed)
    network = Network(NetworkConfig.tiny()).eval()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(
                torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (p.ndim == 1)
            )
    return network.requires_grad_(False)


def mixed_table(seed: int = 0, rows: int = 60) -> torch.Tensor:
    """Return two tables with a correlated pair, a binary and a tied column, and missing cells."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2, rows, 5, generator=g, dtype=torch.float64)
    x[..., 1] = 0.9 * x[..., 0] + 0.1 * x[..., 1]
    x[..., 2] = (x[..., 2] > 0.3).double()
    x[..., 3] = (2 * x[..., 3]).round()
    x[0, :7, 4] = torch.nan
    return x


def pretraining_script(name: str) -> ModuleType:
    """Return a script of the folder `pretraining` as a module."""
    path = Path(__file__).parents[1] / "pretraining" / f"{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # they import each other
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
