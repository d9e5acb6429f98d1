"""Keep a fitted estimator in one safetensors file: reference rows as tensors, the rest as JSON.

No pickle, no weights, no cache: the file is about as large as the reference rows. It remembers the
checksums of the weights and is refused by others, so that a loaded estimator scores as it did.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import tabiced
from tabiced.columns import ColumnPlan, Filled, Ignored, Levels, Measured, Plan
from tabiced.contexts import Reader, View
from tabiced.model import Network
from tabiced.reference import Reference
from tabiced.scoring import Scoring
from tabiced.weights import WeightsError, checksums, read_card, write_atomically

if TYPE_CHECKING:
    from tabiced.estimator import ICED

Estimator = TypeVar("Estimator", bound="ICED")

KINDS = {kind.__name__: kind for kind in (Filled, Ignored, Levels, Measured)}


def save_estimator(model: ICED, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file."""
    if isinstance(model.weights, Network):
        raise ValueError(
            "An estimator with a network as weights cannot be saved: save the network with "
            "tabiced.weights.save_network and pass the path of its card."
        )
    plan, reference = model.plan_, model.reference_
    weights = None if model.weights is None else os.fspath(model.weights)
    seed = model.random_state if isinstance(model.random_state, int) else None
    names = getattr(model, "feature_names_in_", None)
    tensors: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {
        "version": tabiced.__version__,
        "weights": checksums(read_card(weights)),
        "parameters": {**model.get_params(), "weights": weights, "random_state": seed},
        "feature_names": None if names is None else list(names),
        "columns": [{"plan": type(p).__name__, **asdict(p)} for p in plan.columns],
        "labels": plan.labels,
        "names": plan.names,
    }
    if reference is not None:
        reader = reference.reader
        facts["tile"] = reader.tile
        facts["is_measured"] = reference.is_measured
        facts["scoring"] = reference.scoring.to_dict()
        tensors = {name: getattr(reference, name) for name in ("matrix", "first", "group", "fold")}
        for i, view in enumerate(reader.views):
            tensors[f"view.{i}"] = view.columns
            if view.order is not None:
                tensors[f"order.{i}"] = view.order.numpy()
    content = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_atomically(Path(path), save(content, {"tabiced": json.dumps(facts)}))


def load_estimator(kind: type[Estimator], path: str | os.PathLike[str]) -> Estimator:
    """Read an estimator that `save_estimator` has written."""
    facts, tensors = _read(Path(path))
    model = kind(**facts["parameters"])
    if checksums(read_card(facts["parameters"]["weights"])) != facts["weights"]:
        raise WeightsError(
            f"{path} was saved with other weights (by tabiced {facts['version']}) and would score "
            "differently now: fit it again, or pass the weights it was fitted with."
        )
    columns = tuple(_column(dict(column)) for column in facts["columns"])
    names = facts["names"]
    plan = Plan(columns, tuple(facts["labels"]), None if names is None else tuple(names))
    model.device_ = model._choose_device()
    model.plan_, model.reference_, model.n_features_in_ = plan, None, len(columns)
    model.template_ = None  # `sample` asks for one where it matters
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if "matrix" in tensors:
        count = sum(name.startswith("view.") for name in tensors)
        orders = [tensors.get(f"order.{i}") for i in range(count)]
        views = [
            View(tensors[f"view.{i}"], None if order is None else torch.from_numpy(order))
            for i, order in enumerate(orders)
        ]
        memory = int(model.memory_mb * 2**20)
        reader = Reader(model.weights, model.device_, views, plan.counted, facts["tile"], memory)
        kept = {name: tensors[name] for name in ("matrix", "first", "group", "fold")}
        model.reference_ = Reference.__new__(Reference)
        model.reference_.__setstate__(
            {
                **kept,
                "is_measured": facts["is_measured"],
                "reader": reader,
                "scoring": Scoring(**facts["scoring"]),
            }
        )
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with safe_open(path, "np") as file:
            facts = json.loads((file.metadata() or {})["tabiced"])
            return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not an estimator saved by tabiced.") from error


def _column(fields: dict[str, Any]) -> ColumnPlan:
    kind: Any = KINDS[fields.pop("plan")]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
