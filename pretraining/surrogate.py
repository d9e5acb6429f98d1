"""Compare priors in minutes on a CPU: what do they teach about the statistics of rows?

    python pretraining/surrogate.py --pack macrodata_dev.npz
    python pretraining/surrogate.py --pack macrodata_dev.npz --odds class_outliers=0 realnvp=0.2
    python pretraining/surrogate.py --pack macrodata_dev.npz --real real_tables.npz.xz --rows 64 480

A small network without attention is trained to turn the standardised statistics of a row (see
`neighbours.py`, `mixtures.py`, `cells.py`) into its energy, on some hundred tables of the prior,
and then scores the real tables of a pack. It is no match for the real network at the prior's own
tables, but it tells in about five minutes whether tables of a prior resemble real ones. With --real
it is trained on tasks of labelled tables instead, to put normal rows above anomalies, with contexts
of so many --rows. Prints mean AUROCs in percent; between seeds they differ by about 0.4.
"""

import argparse
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tabiced.bench.macrodata import tasks
from tabiced.bench.metrics import auroc
from tabiced.collection import is_held_out, read_collection
from tabiced.curriculum import LABELLED, Stage, real_shapes
from tabiced.description import ROW_STATISTICS, Description, Rows
from tabiced.evaluation import pairwise_accuracy
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.loss import LossConfig, make_targets, ranking_loss, regression_loss
from tabiced.prior import Prior, ingredients

SHAPES = [  # columns, context rows
    (3, 500),
    (5, 700),
    (8, 500),
    (12, 800),
    (20, 600),
    (4, 900),
    (6, 300),
    (35, 500),
    (10, 900),
    (64, 500),
]
NARROW, WIDE = 7, 60  # columns: fewer, or more
QUERIES, DRAWN, TABLES_A_STEP, EPOCHS = 96, 16, 16, 12


def standardised(rows: Rows) -> Tensor:
    """Return the statistics of rows, relative to those of the context: B N ROW_STATISTICS."""
    return rows.statistics[..., :ROW_STATISTICS]


def draw(prior: Prior, paper_share: float, tables: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return statistics (tables, QUERIES, ROW_STATISTICS) and target energies (tables, QUERIES)."""
    generator = torch.Generator().manual_seed(seed)
    choose = np.random.default_rng(seed)
    found = []
    for i in range(math.ceil(tables / DRAWN)):
        columns, rows = SHAPES[i % len(SHAPES)]
        chosen = Prior("paper") if choose.random() < paper_share else prior
        drawn = chosen.draw(DRAWN, rows, QUERIES, columns, generator=generator)
        description = Description(drawn.context)
        targets = make_targets(drawn, description)
        found.append((standardised(description(drawn.query)), targets.energy))
    features, energies = zip(*found, strict=True)
    return torch.cat(features), torch.cat(energies)


def draw_real(
    labelled: LabelledTables, rows: tuple[int, int], tables: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return the same of tasks from labelled tables, with 1 and 0 for normal rows and anomalies."""
    generator = torch.Generator().manual_seed(seed)
    choose = random.Random(seed)
    stage = Stage(LABELLED.columns, rows, QUERIES)
    found = []
    for n, d, m in real_shapes(choose, labelled, math.ceil(tables / DRAWN), stage):
        drawn = labelled.draw(DRAWN, n, m, d, generator)
        found.append(standardised(Description(drawn.context)(drawn.query)))
    normal = torch.arange(QUERIES) < normal_queries(QUERIES)
    features = torch.cat(found)
    return features, normal.float().expand(len(features), -1)


def train(features: Tensor, energies: Tensor, seed: int, real: bool) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(ROW_STATISTICS, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1)
    )
    steps = EPOCHS * math.ceil(len(features) / TABLES_A_STEP)
    optimizer = torch.optim.AdamW(network.parameters(), 4e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(features)).split(TABLES_A_STEP):
            energy, target = network(features[part]).squeeze(-1), energies[part]
            loss = ranking_loss(energy, target)
            if not real:
                loss = loss + regression_loss(energy, target, LossConfig())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network


def real_tables(pack: Path) -> Iterator[tuple[str, Tensor, np.ndarray, str]]:
    """Yield setting, statistics of the queries, which are anomalous, and the kind of table."""
    with np.load(pack) as tables:
        for task in tasks(tables):
            data = task.load()
            context, query = (
                torch.from_numpy(np.asarray(rows, float))[None]
                for rows in (data.context, data.query)
            )
            copies = 1 - len(np.unique(data.context, axis=0)) / len(data.context)
            columns = context.shape[2]
            kinds = {"copies": copies > 0.05, "wide": columns > WIDE, "narrow": columns < NARROW}
            kind = next((name for name, is_so in kinds.items() if is_so), "other")
            found = standardised(Description(context)(query))[0]
            yield task.key["setting"], found, data.anomalous, kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--tables", type=int, default=800)
    parser.add_argument("--paper-share", type=float, default=0.3)
    parser.add_argument("--odds", nargs="*", default=[], help="NAME=ODDS of ingredients of `full`")
    parser.add_argument("--real", type=Path, help="collection of labelled tables, for the prior")
    parser.add_argument("--rows", type=int, nargs=2, default=LABELLED.rows, help="of contexts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wanted = {name: float(odds) for name, odds in (o.split("=") for o in options.odds)}
    for members in ingredients().values():
        for member in members:
            if member.name in wanted and member.odds["full"]:
                member.odds = {**member.odds, "full": wanted[member.name]}
    with torch.no_grad():
        if options.real:
            found = read_collection(options.real)
            labelled = LabelledTables({n: t for n, t in found.items() if not is_held_out(n)})
            rows = tuple(options.rows)
            features, energies = draw_real(labelled, rows, options.tables, options.seed)
        else:
            features, energies = draw(
                Prior("full"), options.paper_share, options.tables, options.seed
            )
    held_out = len(features) // 10
    network = train(features[held_out:], energies[held_out:], options.seed, bool(options.real))
    results: dict[str, list[float]] = {}
    with torch.no_grad():
        own = pairwise_accuracy(network(features[:held_out]).squeeze(-1), energies[:held_out])
        for setting, statistics, anomalous, kind in real_tables(options.pack):
            value = 100 * auroc(anomalous, network(statistics).squeeze(-1).numpy())
            for name in ("all", kind):
                results.setdefault(f"{setting}, {name}", []).append(value)
    print(f"tables of the prior itself, pairwise accuracy {own.mean():.3f}")
    for name, values in sorted(results.items()):
        print(f"{name:24s} {np.mean(values):6.2f}   ({len(values)} tables)")


if __name__ == "__main__":
    main()
