"""The network: cells -> rows -> context -> energy.

    context = network.read(X)            # (B, n, d): statistics, keys and values, computed once
    energy = network.energy(context, Q)  # (B, m, d) -> (B, m): row by row, differentiable in Q

Training, cached scoring and gradients all go through `Description`, `encode`
and `energy_of`. With `encoder="tabicl"` the first two steps are those of `tabicl_encoder.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabiced.cells import CELL_FEATURES
from tabiced.description import ROW_FEATURES, Description, Rows
from tabiced.scoring import Scoring
from tabiced.shallow import Shallow

CELLS_AT_ONCE = 2**17
CELLS_IN_CACHE = 2**12  # of float32, what a processor works on without waiting for memory
FEW = 192  # queries up to which PyTorch's attention on CPUs works in blocks too small to be fast

# What `Network.judge` returns of a row, in this order.
JUDGEMENTS = ("energy", "branch")

# What later rows need of a context: first what the encoder keeps of its columns (nothing for
# `cells`), then keys and values of each layer, B heads n width/heads.
Memory = list[tuple[Tensor, ...]]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the network. The defaults are the shipped one's."""

    cell_width: int = 128
    class_tokens: int = 4
    row_layers: int = 3
    row_heads: int = 2
    layers: int = 12
    heads: int = 4
    feed_forward: int = 1024
    head_width: int = 1024
    max_columns: int = 128
    encoder: str = "cells"  # or "tabicl", which needs the extra of that name
    encoder_settings: dict[str, Any] = field(default_factory=dict, hash=False)
    shallow: bool = False  # whether there is a branch without attention

    @property
    def width(self) -> int:
        return self.cell_width * self.class_tokens

    @classmethod
    def tiny(cls) -> NetworkConfig:
        """Return a size that trains on a CPU in seconds, for tests."""
        return cls(16, 4, 2, 2, 2, 2, 64, 64, 128)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Norm(nn.Module):
    """Root-mean-square normalisation with a learned gain."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda or torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), 1e-6)
        # The same in three passes over x: PyTorch has no kernel for it on CPUs and takes six.
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * size.square_().div_(x.shape[-1]).add_(1e-6).rsqrt_()).mul_(self.weight)


class Block(nn.Module):
    """Weights of one attention and feed-forward layer; the functions below say what they do."""

    def __init__(self, width: int, heads: int, feed_forward: int):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = Norm(width), Norm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.q_norm, self.k_norm = Norm(width // heads), Norm(width // heads)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, feed_forward), nn.Linear(feed_forward, width)
        for last in (self.out.weight, self.down.weight, self.down.bias):
            nn.init.zeros_(last)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # B S width -> B heads S width/heads


def queries(block: Block, x: Tensor, scale: Tensor | None = None) -> Tensor:
    q = block.q_norm(_split(block.q(block.norm(x)), block.heads))
    return q if scale is None else q * scale.to(q.dtype)


def keys_values(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    k, v = block.kv(block.norm(x)).chunk(2, -1)
    return block.k_norm(_split(k, block.heads)), _split(v, block.heads)


def finish(block: Block, x: Tensor, attended: Tensor) -> Tensor:
    x = _add(block.out(attended.transpose(1, 2).flatten(2)), x)
    return _add(block.down(_gelu(block.up(block.norm2(x)))), x)


def _add(new: Tensor, x: Tensor) -> Tensor:
    """Return the sum, in place of `new` where no gradient needs it: fresh memory is slow."""
    return new + x if torch.is_grad_enabled() or new.dtype != x.dtype else new.add_(x)


def _gelu(new: Tensor) -> Tensor:
    """Return GELU, in place where no gradient needs the argument."""
    return F.gelu(new) if torch.is_grad_enabled() else torch.ops.aten.gelu_(new)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with (B, heads, S, width); GPU kernels take at most 65,535 tables at once."""
    if q.shape[2] < FEW and not (q.is_cuda or torch.is_grad_enabled()):
        return ((q * q.shape[3] ** -0.5) @ k.mT).softmax(-1) @ v
    limit = 65_535
    if q.shape[0] <= limit:
        return F.scaled_dot_product_attention(q, k, v)
    parts = zip(q.split(limit), k.split(limit), v.split(limit), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*part) for part in parts])


@dataclass
class Operations:
    """The functions of a block, replaceable by faster ones."""

    queries: Callable[..., Any] = queries
    keys_values: Callable[..., Any] = keys_values
    finish: Callable[..., Any] = finish
    attend: Callable[..., Tensor] = attend
    attend_cells: Callable[..., Tensor] = attend
    cells: torch.dtype | None = None  # of cells on their way to a row's token, if not float32


@dataclass
class Context:
    """A context that has been read: everything later queries need."""

    description: Description
    memory: Memory
    names: Tensor  # B d ...: what tells a column from the others
    find_percentiles: Callable[[], Tensor]

    @cached_property
    def percentiles(self) -> Tensor:
        """Return the 10th and 90th percentile (B, 2) of the context's log-density, in nats."""
        return self.find_percentiles()

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for entry in self.memory for tensor in entry)


class Network(nn.Module):
    """In-context density estimator: energies of query rows given context rows."""

    def __init__(self, config: NetworkConfig | None = None):
        super().__init__()
        self.config = c = config or NetworkConfig()
        width = c.width
        self.operations = Operations()
        self.scoring = Scoring()  # which the weights' card may change
        self.describe: type[Description] = Description
        self.encoder: nn.Module | None = None  # in place of what `_add_cells` adds
        self.codes: Tensor
        if c.encoder == "cells":
            self._add_cells(c)
        elif c.encoder == "tabicl":
            self._add_tabicl(c)
        else:
            raise ValueError(f"There is no encoder {c.encoder!r}: choose 'cells' or 'tabicl'.")
        self.blocks = nn.ModuleList(Block(width, c.heads, c.feed_forward) for _ in range(c.layers))
        # How much sharper attention gets as the context grows, per layer and head.
        self.sharpen = nn.Parameter(torch.zeros(c.layers, c.heads))
        self.energy_norm, self.level_norm = Norm(width), Norm(width)
        self.energy_head = nn.Sequential(
            nn.Linear(width, c.head_width), nn.GELU(), nn.Linear(c.head_width, 1)
        )
        self.level_head = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 2))
        if c.shallow and c.encoder != "cells":
            raise ValueError("The branch without attention needs the encoder 'cells'.")
        self.shallow = Shallow() if c.shallow else None
        # Its energies are scores: it learned from real tables which rows people call unusual.
        self.scorer: Network | None = None

    def _add_cells(self, c: NetworkConfig) -> None:
        self.cell = nn.Sequential(
            nn.Linear(CELL_FEATURES, c.cell_width), nn.GELU(), nn.Linear(c.cell_width, c.cell_width)
        )
        generator = torch.Generator().manual_seed(0)
        codes = torch.randn(c.max_columns, c.cell_width, generator=generator)
        self.register_buffer("codes", codes)
        self.name: nn.Module = nn.Linear(c.cell_width, c.cell_width, bias=False)
        self.classes = nn.Parameter(0.1 * torch.randn(c.class_tokens, c.cell_width))
        self.row_blocks = nn.ModuleList(
            Block(c.cell_width, c.row_heads, 2 * c.cell_width) for _ in range(c.row_layers)
        )
        self.row_norm = Norm(c.cell_width)
        self.mix = nn.Linear(c.width, c.width)
        self.statistics = nn.Sequential(
            nn.Linear(ROW_FEATURES, c.width), nn.GELU(), nn.Linear(c.width, c.width)
        )

    def _add_tabicl(self, c: NetworkConfig) -> None:
        from tabiced.tabicl_encoder import TabICLEncoder, Values

        self.describe, self.encoder = Values, TabICLEncoder(c)
        # Columns are told apart by their place in the row, which is what `column_names` returns.
        self.register_buffer("codes", torch.arange(c.max_columns), persistent=False)
        self.name = nn.Identity()

    # ---- the two halves of the forward path, on described rows

    def encode(self, rows: Rows, names: Tensor) -> tuple[Memory, Tensor]:
        """Run the context up to the last layer; return what to remember, and its rows there.

        Energies need keys and values alone: `level_of` goes on from here if the level is wanted.
        """
        memory: Memory = []
        x = self._tokens(rows, names, memory)
        for i in range(len(self.blocks)):
            memory.append(self._remember(i, x))
            if i + 1 < len(self.blocks):
                x = self._layer(i, x, memory[-1])
        return memory, x

    def level_of(self, x: Tensor, memory: Memory) -> Tensor:
        """Finish what `encode` returned; return the level (B, 2).

        The level is the middle and the log half-width of the interval between the 10th and the
        90th percentile of the context's log-density, relative to a Gaussian with the context's
        covariance.
        """
        return self._level(self._layer(len(self.blocks) - 1, x, memory[-1]))

    def energy_of(self, rows: Rows, names: Tensor, memory: Memory) -> Tensor:
        """Run query rows through all layers against the context's memory: energies (B, m)."""
        return self._energy(self._layers(self._tokens(rows, names, memory), memory))

    def judge_all(
        self, context: Rows, query: Rows, names: Tensor, judged: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Do `encode` and `energy_of` in one go, for training: half the kernels, twice as large.

        Returns the energies of the first `judged` context rows, those of the queries, the level.
        """
        n = context.cells.shape[1]
        x = self._together(context, query, names)
        energy = self._energy(torch.cat([x[:, :judged], x[:, n:]], 1))
        return energy[:, :judged], energy[:, judged:], self._level(x[:, :n])

    def energy_all(self, context: Rows, query: Rows, names: Tensor) -> Tensor:
        """Return the energies of the queries (B, m) alone, as `judge_all` does."""
        return self._energy(self._together(context, query, names)[:, context.cells.shape[1] :])

    def _together(self, context: Rows, query: Rows, names: Tensor) -> Tensor:
        """Run context and queries through all layers: (B, n + m, width)."""
        memory: Memory = []
        tokens = [self._tokens(rows, names, memory) for rows in (context, query)]
        return self._layers(torch.cat(tokens, 1), memory, context.cells.shape[1])

    def _layers(self, x: Tensor, memory: Memory, context_rows: int = 0) -> Tensor:
        """Run tokens (B, N, width) through all layers, each row attending to the context alone.

        The context is what `memory` holds, or else the first `context_rows` of x, whose keys and
        values are then added to `memory`.
        """
        for i in range(len(self.blocks)):
            if context_rows:
                memory.append(self._remember(i, x[:, :context_rows]))
            x = self._layer(i, x, memory[-1 if context_rows else i - len(self.blocks)])
        return x

    def _layer(self, i: int, x: Tensor, context: tuple[Tensor, ...]) -> Tensor:
        k, v = context
        q = self.operations.queries(self.blocks[i], x, self._sharpness(i, k.shape[2]))
        return self.operations.finish(self.blocks[i], x, self.operations.attend(q, k, v))

    def _remember(self, i: int, x: Tensor) -> tuple[Tensor, ...]:
        k, v = self.operations.keys_values(self.blocks[i], x)
        # Values that are a view would keep the raw keys in memory, and are slower to attend to.
        return (k, v) if torch.is_grad_enabled() else (k.contiguous(), v.contiguous())

    def _energy(self, x: Tensor) -> Tensor:
        return self.energy_head(self.energy_norm(x)).squeeze(-1).float()

    def _level(self, x: Tensor) -> Tensor:
        return self.level_head(self.level_norm(x).mean(1)).float()

    def column_names(self, column_key: Tensor, order: Tensor | None = None) -> Tensor:
        """Give each column (B, d) a code by the rank of its key: column order does not matter.

        `order` (max_columns,) permutes the codes: another, equally good way to tell columns apart.
        """
        rank = column_key.argsort(-1).argsort(-1)
        if order is not None:
            rank = order.to(rank.device)[rank]
        return self.name(self.codes[rank])  # B d cell_width

    def _sharpness(self, layer: int, rows: int) -> Tensor:
        return (1 + self.sharpen[layer] * (math.log(rows) - math.log(600)))[:, None, None]

    def _tokens(self, rows: Rows, names: Tensor, memory: Memory) -> Tensor:
        """Attend over each row's cells, concatenate its class tokens: (B, N, width).

        Without gradients to keep, a few rows at a time: a long context must not need much memory.
        An encoder that learns columns by attention keeps what it needs of the context in `memory`.
        """
        if self.encoder is not None:
            return self.encoder(rows.cells[..., 0], names, memory)
        batch, n, d, _ = rows.cells.shape
        size = (self.operations.cells or rows.cells.dtype).itemsize
        at_once = CELLS_AT_ONCE if rows.cells.is_cuda else CELLS_IN_CACHE * 4 // size
        step = max(1, at_once // (batch * (d + self.config.class_tokens)))
        if torch.is_grad_enabled() or n <= step:
            return self._tokens_at_once(rows, names)
        parts = [slice(start, start + step) for start in range(0, n, step)]
        return torch.cat([self._tokens_at_once(rows.take(part), names) for part in parts], 1)

    def _tokens_at_once(self, rows: Rows, names: Tensor) -> Tensor:
        batch, n = rows.cells.shape[:2]
        x = self.cell(rows.cells) + names[:, None]
        classes = self.classes.to(x.dtype).expand(batch, n, -1, -1)
        x = torch.cat([classes, x.to(classes.dtype)], 2).flatten(0, 1)  # B*N c+d cell_width
        x = x.to(self.operations.cells or x.dtype)
        for i, block in enumerate(self.row_blocks):
            k, v = self.operations.keys_values(block, x)
            if i == len(self.row_blocks) - 1:  # only the class tokens are read afterwards
                x = x[:, : self.config.class_tokens].contiguous()
            attended = self.operations.attend_cells(self.operations.queries(block, x), k, v)
            x = self.operations.finish(block, x, attended)
        token = self.mix(self.row_norm(x.to(classes.dtype)).reshape(batch, n, -1))
        return token + self.statistics(rows.statistics[..., :ROW_FEATURES].to(token.dtype))

    # ---- from values to energies

    def read(
        self,
        context: Tensor,
        categorical: Tensor | None = None,
        order: Tensor | None = None,
        shown: int | None = None,
    ) -> Context:
        """Read context rows (B, n, d), NaN = missing.

        `categorical` (d,) marks columns whose values are counted, not measured; it matters for the
        percentiles alone. `order` is passed on to `column_names`. All rows are described by all,
        but the layers see only the first `shown`.
        """
        description = self.describe(context)
        names = self.column_names(description.column_key, order)
        memory, last = self.encode(description.context.take(slice(shown)), names)

        def percentiles() -> Tensor:
            return self.percentiles(description, self.level_of(last, memory), categorical)

        return Context(description, memory, names, percentiles)

    def energy(self, context: Context, query: Tensor) -> Tensor:
        """Return the energies (B, m) of query rows (B, m, d), NaN = missing, each row by itself."""
        return self.energy_of(context.description(query), context.names, context.memory)

    def judge(self, context: Context, query: Tensor) -> Tensor:
        """Return the judgements (B, m, len(JUDGEMENTS)) of query rows.

        The energy by all layers and by the branch without attention; without a branch, by the
        layers again.
        """
        rows = context.description(query)
        x = self._layers(self._tokens(rows, context.names, context.memory), context.memory)
        energy = self._energy(x)
        shallow = energy if self.shallow is None else self.shallow(rows)
        return torch.stack([energy, shallow], -1)

    def percentiles(
        self, description: Description, level: Tensor, categorical: Tensor | None = None
    ) -> Tensor:
        """Turn the level head's output into percentiles (B, 2), nats in the columns' units."""
        cells = description.cells
        scale = cells.scale[:, 0].log().float()  # B d
        if categorical is not None:
            scale = scale.masked_fill(categorical.to(scale.device), 0.0)
        middle = cells.gaussian_level + level[:, 0] * cells.columns - scale.sum(-1)
        half = level[:, 1].exp()
        return torch.stack([middle - half, middle + half], -1)
