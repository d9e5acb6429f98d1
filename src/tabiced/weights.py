"""Read and write network weights: 16-bit safetensors in a few files, described by a JSON card.

The card names the architecture, the files with their SHA-256 and whatever the training wants to
tell. Nothing is downloaded and nothing is unpickled; a file whose checksum differs is refused. The
network that scores, where there is one, is told as a change of the network for densities.
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
from tabiced.change import apply_change, pack_change
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


def own_state(network: Network) -> dict[str, torch.Tensor]:
    """Return the state of a network without that of its scorer."""
    state = network.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("scorer.")}


def save_network(network: Network, card: Path, **facts: Any) -> None:
    """Write the weights beside `card` (a .json path) in 16-bit parts, then the card itself.

    `facts` are told on the card; those of the network that scores under its name, `scorer`.
    """
    half = {name: t.detach().to("cpu", torch.float16) for name, t in own_state(network).items()}
    files = _write_parts(half, card, "")
    if network.scorer is not None:
        new = {name: tensor.detach().cpu() for name, tensor in own_state(network.scorer).items()}
        change = _write_parts(pack_change(half, new), card, "-scorer")
        facts["scorer"] = {**facts.get("scorer", {}), "sha256": change}
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


def _write_parts(state: dict[str, torch.Tensor], card: Path, kind: str) -> dict[str, str]:
    """Write tensors to files of limited size; return the SHA-256 of each by its name."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        if parts[-1] and size + tensor.nbytes > FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    files = {}
    for i, part in enumerate(parts):
        content = save(part)
        path = card.with_name(f"{card.stem}{kind}-{i + 1}.safetensors")
        write_atomically(path, content)
        files[path.name] = hashlib.sha256(content).hexdigest()
    return files


def read_card(path: Path | str | None = None) -> dict[str, Any]:
    """Return the card of the shipped weights, or of those at `path`."""
    path = SHIPPED if path is None else Path(path)
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise WeightsError(f"No weights at {path}: the file does not exist.") from None
    except ValueError as error:
        raise WeightsError(f"{path} is not a weights card (JSON expected): {error}") from None


def checksums(card: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every file that a card names."""
    return {**card.get("sha256", {}), **card.get("scorer", {}).get("sha256", {})}


def load_network(path: Path | str | None = None) -> Network:
    """Load a network for scoring: float32 on the CPU, in evaluation mode.

    `path` is the JSON card of some weights; without it the shipped weights are loaded, once.
    """
    return _load(SHIPPED if path is None else Path(path).resolve())


@lru_cache(maxsize=2)
def _load(path: Path) -> Network:
    card = read_card(path)
    state = _read_parts(card.get("sha256", {}), path)
    change = _read_parts(card.get("scorer", {}).get("sha256", {}), path)
    try:
        network = _network_of(card, state)
        if change:
            network.scorer = _network_of(card, apply_change(state, change))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path.name} does not fit this version of tabiced: {error}") from None
    return network.eval().requires_grad_(False)


def _read_parts(files: dict[str, str], card: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for name, digest in files.items():
        try:
            content = (card.parent / name).read_bytes()
        except FileNotFoundError:
            raise WeightsError(f"{card.name} names {name}, which is not beside it.") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise WeightsError(
                f"{name} is damaged: its SHA-256 differs from the one in {card.name}."
            )
        state |= load(content)
    return state


def _network_of(card: dict[str, Any], state: dict[str, torch.Tensor]) -> Network:
    network = Network(NetworkConfig(**card["architecture"]))
    network.scoring = Scoring(**card.get("scoring", {}))
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return network
