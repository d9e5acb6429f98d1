"""Read and write network weights: 16-bit safetensors in a few files, described by a JSON card.

The card names the architecture, the files with their SHA-256 and whatever the training wants to
tell. Nothing is downloaded and nothing is unpickled; a file whose checksum differs is refused.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from tabiced.atomic import whole_file
from tabiced.model import Network, NetworkConfig
from tabiced.scoring import Scoring

SHIPPED = Path(__file__).parent / "weights" / "iced.json"
FILE_BYTES = 14 * 2**20


class WeightsError(RuntimeError):
    """The weights are absent, damaged or do not fit this version."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_bytes(content)


def save_network(network: Network, card: Path, **facts: Any) -> None:
    """Write the weights beside `card` (a .json path) in 16-bit parts, then the card itself."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in network.state_dict().items():
        half = tensor.detach().to("cpu", torch.float16).contiguous()
        if parts[-1] and size + half.nbytes > FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = half
        size += half.nbytes
    files = {}
    for i, part in enumerate(parts):
        content = save(part)
        path = card.with_name(f"{card.stem}-{i + 1}.safetensors")
        write_atomically(path, content)
        files[path.name] = hashlib.sha256(content).hexdigest()
    text = json.dumps(
        {
            "architecture": network.config.to_dict(),
            "scoring": network.scoring.to_dict(),
            **facts,
            "sha256": files,
        },
        indent=2,
    )
    write_atomically(card, text.encode() + b"\n")


def read_card(path: Path | str | None = None) -> dict[str, Any]:
    """Return the card of the shipped weights, or of those at `path`."""
    path = SHIPPED if path is None else Path(path)
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise WeightsError(f"No weights at {path}: the file does not exist.") from None
    except ValueError as error:
        raise WeightsError(f"{path} is not a weights card (JSON expected): {error}") from None


def load_network(path: Path | str | None = None) -> Network:
    """Load a network for scoring: float32 on the CPU, in evaluation mode.

    `path` is the JSON card of some weights; without it the shipped weights are loaded, once.
    """
    return _load(SHIPPED if path is None else Path(path).resolve())


@lru_cache(maxsize=2)
def _load(path: Path) -> Network:
    card = read_card(path)
    state: dict[str, torch.Tensor] = {}
    for name, digest in card.get("sha256", {}).items():
        try:
            content = (path.parent / name).read_bytes()
        except FileNotFoundError:
            raise WeightsError(f"{path.name} names {name}, which is not beside it.") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise WeightsError(
                f"{name} is damaged: its SHA-256 differs from the one in {path.name}."
            )
        state |= load(content)
    try:
        network = Network(NetworkConfig(**card["architecture"]))
        network.scoring = Scoring(**card.get("scoring", {}))
        network.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path.name} does not fit this version of tabiced: {error}") from None
    return network.eval().requires_grad_(False)
