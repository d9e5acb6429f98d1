"""Draw training batches: growing table sizes, tables from the prior, rows described.

Tables are drawn in rounds: a few shapes, several batches of each, shuffled. One big draw costs
hardly more launches than a small one, so the generator takes a small share of the step time. A
round is a function of the generator's state at its start, which is what makes an interrupted run
continue exactly.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor

from tabiced.description import Description, Rows
from tabiced.labelled import LabelledTables, Tasks
from tabiced.loss import Labels, Targets, make_targets
from tabiced.model import NetworkConfig
from tabiced.prior import Prior, Tables


@dataclass(frozen=True)
class Stage:
    """Ranges of table sizes: log-uniform, but uniform for the columns of every third shape."""

    columns: tuple[int, int]
    rows: tuple[int, int]
    queries: int
    tail: float = 0.0  # share of shapes that stretch to TAIL_COLUMNS or TAIL_ROWS


TAIL_COLUMNS, TAIL_ROWS = 128, 5000
LABELLED = Stage((3, 100), (100, 2000), 128)  # of labelled tables; many are shorter
LEAST_TABLES = 20  # real tables that a shape must fit
SMALL_CELLS = 5000  # cells of a small context

STAGES = {
    "small": Stage((2, 30), (64, 400), 128),
    "medium": Stage((2, 50), (100, 1000), 192),
    "large": Stage((2, 64), (200, 2000), 256, tail=0.2),
    "toy": Stage((2, 4), (40, 80), 32),
}

CURRICULA: dict[str, list[tuple[float, str]]] = {
    # (progress at which the stage ends, stage)
    "full": [(0.3, "small"), (0.6, "medium"), (1.0, "large")],
    "large": [(1.0, "large")],
    "toy": [(1.0, "toy")],
}


@dataclass
class Batch:
    """Tables of one shape, described and with targets or, if they are real, with labels."""

    context: Rows
    query: Rows
    column_key: Tensor  # B d
    targets: Targets | Labels
    code_order: Tensor  # max_columns: which codes name the columns

    def tensors(self) -> list[Tensor]:
        """Return all tensors in a fixed order."""
        rows = (
            self.context.cells,
            self.context.statistics,
            self.query.cells,
            self.query.statistics,
        )
        return [*rows, self.column_key, *self.targets.tensors(), self.code_order]

    def clone(self) -> Batch:
        return Batch(
            Rows(self.context.cells.clone(), self.context.statistics.clone()),
            Rows(self.query.cells.clone(), self.query.statistics.clone()),
            self.column_key.clone(),
            self.targets.each(Tensor.clone),
            self.code_order.clone(),
        )


# Held while tables are drawn: recording a CUDA graph meanwhile would fail.
DRAWING = threading.Lock()


@dataclass
class Round:
    """Batches that were drawn together, and what they were drawn from."""

    number: int
    progress: float
    generator: Tensor  # its state at the start
    batches: list[Batch]


class Feed:
    """Endless batches from weighted priors; `state` and `load_state` continue the stream exactly.

    A share of the draws, `real_share`, are tasks from `real` tables.

    On a GPU the next round is drawn by a thread on a stream of its own while this one is trained
    on.
    """

    def __init__(
        self,
        priors: list[tuple[float, Prior]],
        curriculum: str,
        *,
        device: torch.device,
        seed: int,
        config: NetworkConfig,
        describe: type[Description] = Description,
        real: LabelledTables | None = None,
        real_share: float = 0.0,
        row_budget: int = 20_000,
        cell_budget: int = 400_000,
        shapes: int = 4,
        repeats: int = 16,
        shapes_per_stage: int = 20,
        feature_dtype: torch.dtype = torch.float32,
    ):
        self.priors, self.curriculum, self.device = priors, curriculum, device
        self.max_columns, self.describe = config.max_columns, describe
        self.shapes, self.repeats = shapes, repeats
        self.row_budget, self.cell_budget = row_budget, cell_budget
        self.feature_dtype = feature_dtype
        self.shape_lists = {
            name: _shapes(random.Random(f"{seed} {name}"), stage, shapes_per_stage)
            for name, stage in STAGES.items()
        }
        self.real, self.real_share = real, real_share if real else 0.0
        self.real_shapes = (
            real_shapes(random.Random(f"{seed} real"), real, shapes_per_stage) if real else []
        )
        self.generator = torch.Generator(device).manual_seed(seed)
        # Small kernels of high priority: otherwise each would wait for the training's large ones.
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self.thread = ThreadPoolExecutor(1) if self.stream else None
        self.upcoming: Future[Round] | None = None
        self.drawn = 0  # rounds
        self.round = Round(0, 0.0, self.generator.get_state(), [])
        self.taken = 0

    def next(self, progress: float) -> Batch:
        """Return the next batch; `progress` in [0, 1] chooses the stage when a new round begins."""
        if self.taken == len(self.round.batches):
            if self.thread is None:
                self.round = self._round(progress)
            else:
                ready = self.upcoming or self.thread.submit(self._round, progress)
                self.round = ready.result()
                self.upcoming = self.thread.submit(self._round, progress)
            self.taken = 0
        batch = self.round.batches[self.taken]
        if self.stream:
            for tensor in batch.tensors():
                tensor.record_stream(torch.cuda.current_stream(self.device))
        self.taken += 1
        return batch

    def state(self) -> dict[str, Tensor]:
        return {
            "round": torch.tensor(self.round.number),
            "progress": torch.tensor(self.round.progress, dtype=torch.float64),
            "generator": self.round.generator,
            "taken": torch.tensor(self.taken),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"].cpu())
        self.taken, self.drawn = int(state["taken"]), int(state["round"])
        if self.taken:
            self.round = self._round(float(state["progress"]))

    def _round(self, progress: float) -> Round:
        number, generator = self.drawn, self.generator.get_state()
        self.drawn += 1
        with torch.cuda.stream(self.stream):  # none on a CPU
            if self.real:
                self.real.renew(number)
            batches = self._batches(progress)
        return Round(number, progress, generator, batches)

    def _batches(self, progress: float) -> list[Batch]:
        seed = torch.randint(2**62, (), device=self.device, generator=self.generator)
        choose = random.Random(int(seed))
        batches: list[Batch] = []
        for _ in range(self.shapes):
            real = self.real if self.real_share and choose.random() < self.real_share else None
            shapes = self.real_shapes if real else self.shape_lists[self._stage(progress)]
            n, d, m = choose.choice(shapes)
            with DRAWING:
                batches += self._draw(choose, n, d, m, real)
                if self.stream:
                    self.stream.synchronize()
        choose.shuffle(batches)
        return batches

    def _stage(self, progress: float) -> str:
        ends = CURRICULA[self.curriculum]
        return next((name for end, name in ends if progress < end), ends[-1][1])

    def _draw(
        self, choose: random.Random, n: int, d: int, m: int, real: LabelledTables | None
    ) -> Iterator[Batch]:
        size = int(min(self.row_budget / (n + m), self.cell_budget / ((n + m) * (d + 4)), 64))
        size = max(2, size)
        # Launching a draw takes as long for small tables as for large ones: take more at once.
        count = size * self.repeats * (2 if n * d <= SMALL_CELLS else 1)
        tables: Tables | Tasks
        if real:
            tables = real.draw(count, n, m, d, self.generator)
        else:
            weights, priors = zip(*self.priors, strict=True)
            tables = choose.choices(priors, weights)[0].draw(
                tables=count,
                context_rows=n,
                query_rows=m,
                columns=d,
                device=self.device,
                generator=self.generator,
            )
        description = self.describe(tables.context)
        with torch.no_grad():
            query = description(tables.query).to(self.feature_dtype)
        context = description.context.to(self.feature_dtype)
        targets: Targets | Labels
        if isinstance(tables, Tables):
            targets = make_targets(tables, description)
        else:
            targets = Labels(tables.anomalous)
        for start in range(0, count, size):
            part = slice(start, start + size)
            order = list(range(self.max_columns))
            choose.shuffle(order)
            key = description.column_key[part]
            yield Batch(
                context[part],
                query[part],
                key,
                targets.each(itemgetter(part)),
                torch.tensor(order, device=self.device),
            )


def _shapes(choose: random.Random, stage: Stage, count: int) -> list[tuple[int, int, int]]:
    """Draw the (rows, columns, queries) a run uses in a stage.

    A limited list, since each shape is captured as a CUDA graph once; another seed has another
    list.
    """
    shapes = []
    for i in range(count):
        d, n = _log_uniform(choose, *stage.columns), _log_uniform(choose, *stage.rows)
        if i % 3 == 2:  # else wide tables would be rare
            d = choose.randint(*stage.columns)
        if i < stage.tail * count:
            if i % 2:
                d = choose.randint(stage.columns[1], TAIL_COLUMNS)
            else:
                n = _log_uniform(choose, stage.rows[1], TAIL_ROWS)
        shapes.append((n, d, stage.queries))
    return shapes


def real_shapes(
    choose: random.Random, real: LabelledTables, count: int, stage: Stage = LABELLED
) -> list[tuple[int, int, int]]:
    """Draw the (rows, columns, queries) of tasks from real tables, such that several tables fit.

    As many shapes are as wide as tables are, so that these are mostly shown whole.
    """
    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < count:
        n = _log_uniform(choose, *stage.rows)
        d = min(max(real.some_width(choose), stage.columns[0]), stage.columns[1])
        shapes.append((*real.fitted(n, d, LEAST_TABLES), stage.queries))
    return shapes


def _log_uniform(choose: random.Random, low: int, high: int) -> int:
    return round(math.exp(choose.uniform(math.log(low), math.log(high))))
