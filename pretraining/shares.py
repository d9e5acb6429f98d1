"""Choose what a score is made of, for new weights, on real tables.

    python pretraining/shares.py --weights runs/tenth/network.json --store runs/parts \
        --pack macrodata_dev.npz --collection real_tables.npz.xz --mixtures 1000 --jobs 2

All parts of the scores are computed once for every task of the pack and for tasks of the
collection's held-out tables, and kept in the folder --store; these tables also as ADBench's
protocol draws small ones up, so that rows come again. Then random shares, values of sharpness and
of repeats are tried on them, those of the shipped card among them. What is chosen among many on few
tables looks better than it is: each mixture is chosen on half of the tables and told with its
AUROC on the other half, ten times, beside what the shipped card has there.
"""

import argparse
import copy
import math
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from tabiced.bench import adbench
from tabiced.bench.macrodata import SETTINGS, tasks
from tabiced.bench.metrics import auroc
from tabiced.bench.parts import read_parts
from tabiced.bench.tasks import Data
from tabiced.collection import is_held_out, read_collection
from tabiced.labelled import LEAST_NORMAL, LabelledTables, normal_queries
from tabiced.scoring import Scoring
from tabiced.weights import load_network

TASKS = 1  # of a held-out table
QUERIES, ROWS = 300, 400  # of a task from the collection, at most
SMALL, RATES = (80, 700), (0.04, 0.3)  # rows, and share of anomalies, of tables that are drawn up
HALVES = 10


@dataclass
class Parts:
    """The parts of the scores of a task's queries."""

    table: str
    setting: str
    parts: dict[str, np.ndarray]
    gain: np.ndarray  # by copies, for repeats of 1
    anomalous: np.ndarray

    def auroc(self, scoring: Scoring) -> float:
        score = scoring.blend(self.parts) + scoring.repeats * self.gain
        return 100 * auroc(self.anomalous, score)


def held_out(path: Path) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield normal rows and anomalies of the first tasks of the held-out tables of a collection."""
    for name, pair in read_collection(path).items():
        if is_held_out(name) and int(name.split("#")[1]) < TASKS:
            yield name, pair


def held_out_tasks(path: Path) -> Iterator[tuple[str, str, Data]]:
    """Yield table, setting and data of tasks from the held-out tables of a collection."""
    for name, pair in held_out(path):
        tables = LabelledTables({name: pair})
        rows = min(ROWS, len(pair[0]) * 2 // 3, len(pair[0]) - LEAST_NORMAL)
        for setting in SETTINGS:
            # A seed of its own, or all contexts would have the same share of anomalies.
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            dirty = setting == "contaminated"
            drawn = tables.draw(1, rows, QUERIES, pair[0].shape[1], generator, dirty)
            anomalous = np.arange(QUERIES) >= normal_queries(QUERIES)
            data = Data(drawn.context[0].numpy(), drawn.query[0].numpy(), anomalous)
            yield name, setting, data


def drawn_up_tasks(path: Path) -> Iterator[tuple[str, str, Data]]:
    """Yield the same for samples of these tables that are drawn up as ADBench's small ones are."""
    for name, (normal, anomalies) in held_out(path):
        draw = np.random.default_rng(zlib.crc32(name.encode()))
        rate = draw.uniform(*RATES)
        most = min(SMALL[1], len(normal) / (1 - rate), len(anomalies) / rate)
        rows = math.exp(draw.uniform(math.log(SMALL[0]), math.log(max(most, SMALL[0]))))
        odd = min(len(anomalies), round(rate * rows))
        usual = min(len(normal), round(rows) - odd)
        X = np.concatenate([normal[:usual], anomalies[:odd]]).astype(float)
        y = np.repeat([0, 1], [usual, odd])
        for setting, theirs in zip(SETTINGS, adbench.SETTINGS, strict=True):
            yield name, setting, adbench.scaled(X, y, *adbench.split(y, 0, theirs))


def store(folder: Path, name: str, setting: str, data: Data, weights: str | None) -> None:
    """Compute the parts of one task, unless they are there."""
    path = folder / f"{name.replace('/', '~')}~{setting}.npz"
    if path.exists():
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = copy.copy(load_network(weights))  # the loaded one is everybody's
    network.scoring = replace(load_network(None).scoring, repeats=1.0)
    read = read_parts(data, 0, network)
    if read is not None:
        _, parts, gain = read
        np.savez_compressed(path, gain=gain, anomalous=data.anomalous, **parts)


def stored(folder: Path) -> list[Parts]:
    found = []
    for path in sorted(folder.glob("*.npz")):
        table, setting = path.stem.rsplit("~", 1)
        with np.load(path) as file:
            kept = {name: file[name] for name in file.files}
        gain, anomalous = kept.pop("gain"), kept.pop("anomalous")
        found.append(Parts(table.split("#")[0], setting, kept, gain, anomalous.astype(bool)))
    return found


def mixtures(count: int) -> list[Scoring]:
    """Return the shipped scoring and random ones."""
    shipped, draw = load_network(None).scoring, np.random.default_rng(0)
    out = [shipped]
    while len(out) < count:
        shares = dict(zip(shipped.shares, draw.dirichlet(np.full(6, 0.7)).tolist(), strict=True))
        changed = replace(
            shipped,
            sharpness=float(draw.choice([0.5, 1, 2, 3])),
            repeats=float(draw.choice([0.2, 0.4, 0.6, 0.8])),
        )
        out.append(changed.with_shares(shares))
    return out


def measure(found: list[Parts], tried: list[Scoring], jobs: int) -> dict[str, np.ndarray]:
    """Return AUROCs (tables, mixtures) by setting: the mean over the tasks of a table."""
    values = Parallel(jobs)(delayed(lambda p: [p.auroc(s) for s in tried])(p) for p in found)
    tables = sorted({p.table for p in found})
    out = {}
    for setting in SETTINGS:
        own = [
            [v for p, v in zip(found, values, strict=True) if (p.table, p.setting) == (t, setting)]
            for t in tables
        ]
        out[setting] = np.array([np.mean(v, 0) for v in own])
    return out


def told(scoring: Scoring) -> str:
    shares = " : ".join(f"{100 * share:.0f}" for share in scoring.shares.values())
    return f"{shares}, sharpness {scoring.sharpness:g}, repeats {scoring.repeats:g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--weights", help="card of the weights; default: the shipped ones")
    add("--store", type=Path, required=True, help="folder for the parts of these weights")
    add("--pack", type=Path, required=True)
    add("--collection", type=Path)
    add("--mixtures", type=int, default=1000)
    add("--jobs", type=int, default=2)
    o = parser.parse_args()
    with np.load(o.pack) as pack:
        todo = [
            (f"{t.key['bench']}/{t.key['dataset']}", str(t.key["setting"]), t.load())
            for t in tasks(pack)
        ]
    groups = {"pack": todo}
    if o.collection:
        groups["collection"] = list(held_out_tasks(o.collection))
        groups["drawn up"] = list(drawn_up_tasks(o.collection))
    tried, results = mixtures(o.mixtures), {}
    for group, several in groups.items():
        folder = o.store / group
        folder.mkdir(parents=True, exist_ok=True)
        Parallel(o.jobs, verbose=1)(delayed(store)(folder, *t, o.weights) for t in several)
        results[group] = measure(stored(folder), tried, o.jobs)

    def means(place: int) -> str:
        return "; ".join(
            f"{group} " + " / ".join(f"{by[s][:, place].mean():.2f}" for s in SETTINGS)
            for group, by in results.items()
        )

    print(f"network : branch : tails : components : pairs : distances\nshipped card: {means(0)}")
    total = np.mean([by[s].mean(0) for by in results.values() for s in SETTINGS], 0)
    for place in np.argsort(-total)[:10]:
        print(f"{told(tried[place])}: {means(place)}")
    draw, gains = np.random.default_rng(1), []
    for _ in range(HALVES):
        chosen, asked = [], []
        for by in results.values():
            first = draw.random(len(by["clean"])) < 0.5
            chosen += [by[s][first].mean(0) for s in SETTINGS]
            asked += [by[s][~first].mean(0) for s in SETTINGS]
        best = int(np.mean(chosen, 0).argmax())
        gains.append([part[best] - part[0] for part in asked])
    names = [f"{group} {s}" for group in results for s in SETTINGS]
    gain = ", ".join(f"{n} {g:+.2f}" for n, g in zip(names, np.mean(gains, 0), strict=True))
    print(f"chosen on one half, over the shipped card on the other: {gain}")


if __name__ == "__main__":
    main()
