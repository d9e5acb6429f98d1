"""The project's own methods: the estimator with any options, and the bare network."""

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tabiced.bench.methods import Method
from tabiced.model import Network

QUERY_CHUNK = 4096  # rows scored at once by the bare network


def parse_options(items: list[str]) -> dict[str, Any]:
    """Read `name=value` words: integers, floats, True, False, None, else text.

    >>> parse_options(["n_views=4", "trim=0.1", "views=raw"])
    {'n_views': 4, 'trim': 0.1, 'views': 'raw'}
    """
    return {name: _literal(value) for name, _, value in (item.partition("=") for item in items)}


def _literal(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def estimator(
    options: Mapping[str, Any] | None = None,
    weights: Path | str | None = None,
    device: str = "cpu",
    scoring: bool = True,
) -> Method:
    """Measure `ICED(**options).fit(context)`: `score_samples`, or `log_density`.

    Say `scoring=False` where it is the latter.
    """
    given = dict(options or {})

    def fitted(context: np.ndarray, seed: int) -> Any:
        from tabiced.estimator import ICED

        place = {"device": device} if weights is None else {"device": device, "weights": weights}
        return ICED(**{"random_state": seed, **place, **given}).fit(context)

    def score(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return fitted(context, seed).score_samples(query)

    def log_density(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return fitted(context, seed).log_density(query)

    said = " ".join(f"{name}={value}" for name, value in sorted(given.items()))
    return Method("ours", score, log_density, options=said, weights=version(weights, scoring))


def bare_network(
    network: Network | None = None,
    weights: Path | str | None = None,
    device: str = "cpu",
) -> Method:
    """Measure the network alone, one view of the table as it is: the quick look while training.

    Give a network, or the file to load it from (None: the shipped weights).
    """
    identity = ""
    if network is None:
        from tabiced.weights import load_network

        network, identity = load_network(weights), version(weights, scoring=False)
        network = copy.deepcopy(network)  # loaded weights are shared: others keep their device
    dense = network.to(device)
    scoring = dense.scorer or dense

    @torch.no_grad()
    def judge(
        model: Network, context: np.ndarray, query: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if context.shape[1] > model.config.max_columns:
            raise ValueError(f"the bare network takes {model.config.max_columns} columns at most")
        read = model.read(_batch(context, device))
        parts = [
            model.energy(read, _batch(query[i : i + QUERY_CHUNK], device))[0]
            for i in range(0, len(query), QUERY_CHUNK)
        ]
        return torch.cat(parts).double(), read.percentiles[0].double()

    def score(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return judge(scoring, context, query)[0].cpu().numpy()

    def log_density(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        energy, (low, high) = judge(dense, context, query)
        return (low + (energy + 1) / 2 * (high - low)).cpu().numpy()

    return Method("network", score, log_density, weights=identity)


def _batch(rows: np.ndarray, device: str) -> torch.Tensor:
    return torch.as_tensor(rows, dtype=torch.float32, device=device)[None]  # (1, n, d)


def version(weights: Path | str | None = None, scoring: bool = True) -> str:
    """Return twelve digits for the weights and their scoring: results of others are kept apart.

    Densities and samples are the network's alone: their results do not depend on the `scoring`,
    and neither on the network for it.
    """
    from tabiced.weights import read_card

    card = read_card(weights)
    told = sorted(card["sha256"].values())
    told += sorted(card.get("scorer", {}).get("sha256", {}).values()) if scoring else []
    parts = sorted(card.get("scoring", {}).items()) if scoring else []
    told += [f"{name} {value}" for name, value in parts if value]
    return hashlib.sha256("".join(told).encode()).hexdigest()[:12]
