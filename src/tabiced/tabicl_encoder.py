"""Cells and rows as in the paper: the feature extractor of TabICLv2 (needs the extra `tabicl`).

    config = checkpoint_config(path, NetworkConfig())  # or, from scratch, tabicl_config(...)
    network = Network(config)  # tokens of 512 numbers: 4 class tokens of 128
    load_checkpoint(network, path)

The modules and their weights are those of the package `tabicl`: induced attention along every
column, whose inducing points see the context alone, then attention over the cells of each row.
They are called in one way for training, cached scoring and gradients: the context leaves keys and
values of its inducing points in the network's memory, and later rows attend to those.

Values are brought to (-1, 1) by the lowest and the highest value of the column in the context, as
in the paper; later rows are scaled alike and may lie outside. A missing cell becomes the column's
mean over the context: the extractor knows no missing values.
"""

from __future__ import annotations

import inspect
import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabiced._extras import extra
from tabiced.cells import Cells
from tabiced.description import Description, Rows
from tabiced.model import CELLS_AT_ONCE, Memory, Network, NetworkConfig
from tabiced.weights import WeightsError

with extra("tabicl"):
    from tabicl._model import TabICL
    from tabicl._model.kv_cache import KVCache, KVCacheEntry

# The published architecture of TabICLv2. The width of a cell and the number of class tokens are
# fields of NetworkConfig.
SETTINGS: dict[str, Any] = {
    "max_classes": 10,
    "col_num_blocks": 3,
    "col_nhead": 8,
    "col_num_inds": 128,
    "col_feature_group": "same",
    "col_feature_group_size": 3,
    "col_target_aware": True,
    "col_ssmax": "qassmax-mlp-elementwise",
    "row_num_blocks": 3,
    "row_nhead": 8,
    "row_rope_base": 100_000,
    "row_rope_interleaved": False,
    "ff_factor": 2,
    "activation": "gelu",
    "norm_first": True,
    "bias_free_ln": False,
}
TINY: dict[str, Any] = {
    "col_num_blocks": 2,
    "col_nhead": 2,
    "col_num_inds": 8,
    "row_num_blocks": 2,
    "row_nhead": 2,
}

USED = ("col_embedder.", "row_interactor.")
UNUSED = ("icl_predictor.", "quantile_dist.")  # TabICL's own layers over rows, and its output

FARTHEST = 1e6  # times half the range of a column: keeps absurd values finite


def tabicl_config(sizes: NetworkConfig, **settings: Any) -> NetworkConfig:
    """Return `sizes` with this encoder; `settings` are those of TabICL that differ."""
    return replace(sizes, encoder="tabicl", encoder_settings=SETTINGS | settings)


class Values(Description):
    """A context whose rows the encoder sees as they are; only units and names of columns matter."""

    def __init__(self, context: Tensor):
        with torch.autocast(context.device.type, enabled=False), torch.no_grad():
            self.cells = Cells(context)
            self.context = self(context)

    def __call__(self, query: Tensor) -> Rows:
        return Rows(query[..., None], query.new_zeros(*query.shape[:2], 0))


class TabICLEncoder(nn.Module):
    """Turn rows of plain values into tokens with TabICL's column embedding and row interaction."""

    def __init__(self, config: NetworkConfig):
        super().__init__()
        whole = TabICL(
            embed_dim=config.cell_width,
            row_num_cls=config.class_tokens,
            icl_num_blocks=1,  # not kept
            icl_nhead=1,
            zero_init=False,
            **SETTINGS | config.encoder_settings,
        )
        self.col_embedder, self.row_interactor = whole.col_embedder, whole.row_interactor

    def forward(self, rows: Tensor, places: Tensor, memory: Memory) -> Tensor:
        """Turn rows (B, N, d), NaN = missing, into tokens (B, N, width).

        `places` (B, d) tells the order of the columns. If `memory` is empty, the rows are the
        context and fill it.
        """
        in_context = not memory
        if in_context:
            memory.append(_column_statistics(rows))
        scaled = _scale(rows, *memory[0]).gather(2, places.argsort(-1)[:, None].expand_as(rows))
        groups = self.col_embedder.feature_grouping(scaled)  # B N g 3
        batch, n, g, _ = groups.shape
        columns = groups.transpose(1, 2).flatten(0, 1)  # B*g N 3
        blocks = len(self.col_embedder.tf_col.blocks)
        known = [] if in_context else memory[1 : 1 + blocks]
        cells, found = [], []
        for part in _parts(len(columns), n):
            x, entries = self._columns(columns[part], [(k[part], v[part]) for k, v in known])
            cells.append(x)
            found.append(entries)
        if in_context:
            for entry in zip(*found, strict=True):
                keys, values = zip(*entry, strict=True)
                memory.append((torch.cat(keys), torch.cat(values)))
        by_row = torch.cat(cells).unflatten(0, (batch, g)).transpose(1, 2).flatten(0, 1)  # B*N g w
        tokens = [self._rows(by_row[part]) for part in _parts(len(by_row), g)]
        return torch.cat(tokens).unflatten(0, (batch, n))  # B N width

    def _columns(
        self, groups: Tensor, known: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Embed columns (C, N, 3) as cells (C, N, w) by what is `known` of the context.

        If nothing is, these are the context's columns. Returns what is known afterwards.
        """
        embedder = self.col_embedder
        with torch.autocast(groups.device.type, enabled=False):  # 16 bits are too few for a value
            x = F.linear(groups, embedder.in_linear.weight, embedder.in_linear.bias)
            if embedder.target_aware and not known:
                # The extractor wants a label for each row of the context: the paper's is zero.
                one = groups.new_zeros(1) if embedder.max_classes else groups.new_zeros(1, 1)
                x = x + embedder.y_encoder(one)
        cache = KVCache({i: KVCacheEntry(*entry) for i, entry in enumerate(known)})
        for i, block in enumerate(embedder.tf_col.blocks):
            x = block.induced_attention_with_cache(
                x, cache, i, x.shape[1], use_cache=bool(known), store_cache=not known
            )
        return x, [(entry.key, entry.value) for entry in cache.kv.values()]

    def _rows(self, cells: Tensor) -> Tensor:
        """Attend over the cells of each row (R, g, w) and concatenate its class tokens."""
        classes = self.row_interactor.cls_tokens.to(cells.dtype).expand(len(cells), -1, -1)
        return self.row_interactor._aggregate_embeddings(torch.cat([classes, cells], 1))


def _parts(count: int, cells_each: int) -> list[slice]:
    """Split columns or rows; without gradients a long context must not need much memory."""
    step = count if torch.is_grad_enabled() else max(1, CELLS_AT_ONCE // cells_each)
    return [slice(start, start + step) for start in range(0, count, step)]


@torch.no_grad()
def _column_statistics(context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return lowest value, range and mean (B, 1, d) of the columns of a context (B, n, d)."""
    missing = context.isnan()
    low = context.masked_fill(missing, math.inf).amin(1, keepdim=True)
    high = context.masked_fill(missing, -math.inf).amax(1, keepdim=True)
    span = torch.where(high > low, high - low, 1.0)
    present = (~missing).sum(1, keepdim=True).clamp_min(1)
    # In double precision the order of rows cannot be seen in the last digits.
    mean = context.masked_fill(missing, 0.0).double().sum(1, keepdim=True) / present
    low = low.masked_fill(low.isinf(), 0.0)  # nothing is known of the column
    return low, span, mean.to(low.dtype)


def _scale(rows: Tensor, low: Tensor, span: Tensor, mean: Tensor) -> Tensor:
    filled = torch.where(rows.isnan(), mean, rows)
    return (2 * (filled - low) / span - 1).clamp(-FARTHEST, FARTHEST).float()


def checkpoint_config(path: Path | str, sizes: NetworkConfig) -> NetworkConfig:
    """Return `sizes` with the encoder that a TabICLv2 checkpoint holds."""
    settings, _ = _read(Path(path))
    sizes = replace(
        sizes, cell_width=settings.pop("embed_dim"), class_tokens=settings.pop("row_num_cls")
    )
    return tabicl_config(sizes, **settings)


def load_checkpoint(network: Network, path: Path | str) -> str:
    """Start the network's encoder from a TabICLv2 checkpoint; tell in one line what was used.

    Every tensor of the encoder must be in the file, and every tensor in the file must be known.
    """
    path = Path(path)
    _, state = _read(path)
    unknown = [name for name in state if not name.startswith(USED + UNUSED)]
    used = {name: tensor for name, tensor in state.items() if name.startswith(USED)}
    assert network.encoder is not None
    expected = network.encoder.state_dict()
    unknown += sorted(used.keys() - expected.keys())
    missing = sorted(expected.keys() - used.keys())
    for what, names in (("lacks", missing), ("holds unknown tensors like", unknown)):
        if names:
            raise WeightsError(
                f"{path.name} does not fit this TabICL encoder: it {what} {names[0]}"
            )
    try:
        network.encoder.load_state_dict(used)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise WeightsError(f"{path.name} does not fit this TabICL encoder: {reason}") from None
    rest = len(state) - len(used)
    return f"Encoder from {path.name}: {len(used)} tensors; {rest} of TabICL's predictor not used."


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and the tensors of a checkpoint, which is data and never executed."""
    wrong = f"{path} is not a TabICLv2 checkpoint"
    if not path.exists():
        raise WeightsError(f"No TabICLv2 checkpoint at {path}: the file does not exist.")
    if not zipfile.is_zipfile(path):
        raise WeightsError(f"{wrong}: it is not a file that torch.save writes.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a file from elsewhere can fail in any way
        raise WeightsError(f"{wrong}: it cannot be read as tensors and settings.") from None
    if not isinstance(content, dict) or not {"config", "state_dict"} <= content.keys():
        raise WeightsError(f"{wrong}: it has no 'config' and 'state_dict'.")
    known = inspect.signature(TabICL).parameters
    config: dict[str, Any] = content["config"]
    foreign = sorted(config.keys() - known.keys())
    if foreign:
        raise WeightsError(f"{wrong} that this version knows: it has the setting {foreign[0]!r}.")
    wanted = ("embed_dim", "row_num_cls", "col_affine", *SETTINGS)
    settings = {name: config.get(name, known[name].default) for name in wanted}
    if settings.pop("col_affine"):
        raise WeightsError(f"{wrong}: it is one of the first TabICL (col_affine).")
    return settings, content["state_dict"]
