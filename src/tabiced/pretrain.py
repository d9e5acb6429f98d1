"""Pretrain the network on tables drawn from the prior.

    # seconds on a CPU
    python -m tabiced.pretrain --run runs/toy --size tiny --curriculum toy --steps 200
    # one GPU
    python -m tabiced.pretrain --run runs/gpu --minutes 25 --compile
    # several GPUs: each draws its own tables
    torchrun --nproc-per-node 8 -m -- tabiced.pretrain --run runs/gpus --minutes 25 --compile
    # the paper's encoder, from a TabICLv2 checkpoint on disk (needs the extra `tabicl`)
    python -m tabiced.pretrain --run runs/paper --encoder tabicl --init-encoder PATH
    # on from the shipped weights, with tasks from real tables (see pretraining/collect.py)
    python -m tabiced.pretrain --run runs/real --init shipped --real real_tables.npz.xz --compile

The run's folder holds `checkpoint.safetensors` (everything needed to continue: start the same
command again), `log.csv`, and `network.json` with its parts: 16-bit weights that `load_network`
reads. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import copy
import csv
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from tabiced.causal import MadeTables
from tabiced.collection import is_held_out, read_collection
from tabiced.curriculum import CURRICULA, Batch, Feed
from tabiced.distributed import Group
from tabiced.evaluation import RealSuite, Suite
from tabiced.graphs import Graphed, GraphedBackward
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.loss import Labels, LossConfig, Targets, total_loss, typical_loss
from tabiced.model import (
    Network,
    NetworkConfig,
    Operations,
    attend,
    finish,
    keys_values,
    queries,
)
from tabiced.optim import Optimizer
from tabiced.prior import Prior
from tabiced.weights import (
    WeightsError,
    load_network,
    own_state,
    save_network,
    write_atomically,
)


def fast_operations(short: bool, compiled: bool) -> Operations:
    """Return the block functions for training, with our short attention and compiled if wanted."""
    operations = Operations()
    if short:
        from tabiced.short_attention import LONGEST, short_attention

        def attend_cells(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return (short_attention if k.shape[2] <= LONGEST else attend)(q, k, v)

        operations.attend_cells = attend_cells
    if compiled:
        torch._dynamo.config.recompile_limit = 64
        operations.queries = torch.compile(queries, dynamic=True)
        operations.keys_values = torch.compile(keys_values, dynamic=True)
        operations.finish = torch.compile(finish, dynamic=True)
    return operations


def first_network(options: argparse.Namespace) -> Network:
    """Return the network a run starts from: given weights, or new ones of the wanted kind."""
    if options.init_encoder and (options.init or options.encoder != "tabicl"):
        raise WeightsError("--init-encoder goes with --encoder tabicl and without --init.")
    if options.init:
        start = load_network(None if options.init == "shipped" else options.init)
        if options.real and start.scorer is not None:
            start = start.scorer
        shallow = bool(start.config.shallow or options.shallow)
        network = Network(dataclasses.replace(start.config, shallow=shallow))
        network.load_state_dict({**network.state_dict(), **own_state(start)})
        return network
    tiny = options.size == "tiny"
    config = NetworkConfig.tiny() if tiny else NetworkConfig()
    config = dataclasses.replace(config, shallow=options.shallow)
    if options.encoder == "cells":
        return Network(config)
    from tabiced import tabicl_encoder

    if not options.init_encoder:
        return Network(tabicl_encoder.tabicl_config(config, **tabicl_encoder.TINY if tiny else {}))
    network = Network(tabicl_encoder.checkpoint_config(options.init_encoder, config))
    print(tabicl_encoder.load_checkpoint(network, options.init_encoder), flush=True)
    return network


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Add a row to a CSV file; a new file starts with the names."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


RANK_SEEDS = 1_000_003  # between the seeds of two processes
REAL_LOSSES = ("typical", "scale", "marking")
LOSSES = ("regression", "ranking", "level", "context", *REAL_LOSSES, "total")
TERMS = (*LOSSES, "gradient", "skipped")


class Trainer:
    """One run: network, optimiser, feed and clock, saved and resumed as a whole."""

    def __init__(self, options: argparse.Namespace):
        self.options = o = options
        self.group = Group()
        self.device = self.group.device(o.device)
        self.folder = Path(o.run)
        torch.manual_seed(o.seed)
        self.network = first_network(o).to(self.device).train()
        self.optimizer = Optimizer(self.network, o.muon_rate, o.adam_rate)
        self.bfloat = self.device.type == "cuda"
        plain = self.network.encoder is not None  # it sees values, for which 16 bits are too few
        collected = read_collection(o.real) if o.real else {}
        trained, held_out = (
            {name: table for name, table in collected.items() if is_held_out(name) == kept}
            for kept in (False, True)
        )
        spare = (os.cpu_count() or 1) // self.group.size - 3  # beside training and drawing
        self.made = MadeTables(o.made, o.seed, max(1, spare)) if o.made else None
        self.labelled = (
            LabelledTables(trained, self.device, self.made, o.made_share)
            if trained or self.made
            else None
        )
        self.held_out = LabelledTables(held_out, self.device) if held_out else None
        self.feed = Feed(
            [
                (1 - o.paper_share, Prior(o.preset, without=o.without)),
                (o.paper_share, Prior("paper", without=o.without)),
            ],
            o.curriculum,
            device=self.device,
            seed=o.seed + RANK_SEEDS * self.group.rank,
            config=self.network.config,
            describe=self.network.describe,
            real=self.labelled,
            real_share=o.real_share,
            row_budget=o.row_budget,
            cell_budget=o.cell_budget,
            feature_dtype=torch.bfloat16 if self.bfloat and not plain else torch.float32,
        )
        loss = LossConfig.paper() if o.loss == "paper" else LossConfig()
        left_out: dict[str, Any] = dict.fromkeys(o.loss_without, 0.0)
        self.loss = dataclasses.replace(loss, **left_out)
        self.step, self.tables, self.seconds = 0, 0, 0.0
        # Steps swing with the few shapes and priors of a round; what is kept is their mean.
        self.average = copy.deepcopy(self.network)
        self.average_rate = torch.ones((), device=self.device)
        self.gradients = []
        for p in self.network.parameters():
            p.grad = torch.zeros_like(p)
            self.gradients.append(p.grad)
        self.backward: Callable[[Batch], torch.Tensor] = self._backward
        self.update: Callable[[], torch.Tensor] = self._update
        if self.device.type == "cuda":
            # cuDNN attention fails in the backward pass of these shapes.
            torch.backends.cuda.enable_cudnn_sdp(False)
        # TabICL's modules copy numbers to the device in mid-pass, which no graph can record.
        graphs = self.device.type == "cuda" and not o.eager and not plain
        if graphs:
            self.backward, self.update = GraphedBackward(self._backward), Graphed(self._update)
        self.network.operations = fast_operations(graphs, o.compile)
        self.checkpoint = self.folder / "checkpoint.safetensors"
        if self.checkpoint.exists():
            self.restore()

    @property
    def progress(self) -> float:
        """How much of the run is done, by steps if their number is given, else by training time."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (60 * self.options.minutes)

    def rate_factor(self) -> float:
        """Warm up linearly, hold, and decay linearly over the last `decay` of the run."""
        o = self.options
        warm = min(1.0, (self.progress + 1e-4) / max(o.warmup, 1e-9))
        return max(0.01, min(warm, (1 - self.progress) / max(o.decay, 1e-9), 1.0))

    def train_step(self, batch: Batch) -> torch.Tensor:
        """Train on one batch; return the terms named in TERMS."""
        self.optimizer.set_rate(self.rate_factor())
        self.average_rate.fill_(1 / max(1.0, min(self.options.average, self.step / 5)))
        losses = self.backward(batch)
        self.group.average([*self.gradients, losses])
        return torch.cat([losses, self.update()])

    def _backward(self, batch: Batch) -> torch.Tensor:
        torch._foreach_zero_(self.gradients)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat):
            names = self.network.column_names(batch.column_key, batch.code_order)
        if isinstance(batch.targets, Labels):
            terms = self._typical_terms(batch, batch.targets, names)
        else:
            terms = self._density_terms(batch, batch.targets, names)
        terms["total"].backward()
        unknown = torch.full((), torch.nan, device=self.device)
        return torch.stack([terms[name].detach() if name in terms else unknown for name in LOSSES])

    def _density_terms(
        self, batch: Batch, targets: Targets, names: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        network, judged = self.network, targets.context.shape[1]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat):
            context, energy, level = network.judge_all(batch.context, batch.query, names, judged)
        terms = total_loss(energy, context, level, targets, self.loss)
        if network.shallow is not None:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat):
                energy = network.shallow(batch.query)
                context = network.shallow(batch.context.take(slice(judged)))
            apart = total_loss(energy, context, level.detach(), targets, self.loss)
            terms["total"] = terms["total"] + apart["total"]
        return terms

    def _typical_terms(
        self, batch: Batch, labels: Labels, names: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        judged = labels.context.shape[1]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat):
            context, typical, _ = self.network.judge_all(batch.context, batch.query, names, judged)
        normal = normal_queries(typical.shape[1])
        return typical_loss(typical[:, :normal], typical[:, normal:], context, labels, self.loss)

    def _update(self) -> torch.Tensor:
        norm = torch.nn.utils.get_total_norm(self.gradients)
        healthy = norm.isfinite()
        torch._foreach_mul_(self.gradients, (1 / (norm + 1e-6)).clamp_max(1.0))
        for gradient in self.gradients:  # a broken table must not break the run
            gradient.copy_(torch.where(healthy, gradient, 0.0))
        self.optimizer.step()
        with torch.no_grad():
            means: list[torch.Tensor] = list(self.average.parameters())
            now: list[torch.Tensor] = list(self.network.parameters())
            gaps = list(torch._foreach_sub(now, means))
            torch._foreach_mul_(gaps, self.average_rate)
            torch._foreach_add_(means, gaps)
        return torch.stack([norm.nan_to_num(0.0, 0.0, 0.0), 1.0 - healthy.float()])

    def run(self) -> None:
        """Train to the end, logging, evaluating and saving every `log_every` seconds or steps."""
        o = self.options
        self.folder.mkdir(parents=True, exist_ok=True)
        leads = self.group.leads
        wanted = o.evaluation_tables if leads else 0
        suites: list[Suite | RealSuite] = [Suite(self.network, tables=wanted)] if wanted else []
        if wanted and self.held_out:
            suites.append(RealSuite(self.network, self.held_out, each=wanted))
        sums = torch.zeros(len(TERMS), device=self.device)
        counts = torch.zeros_like(sums)
        mark, clock = (self.step, self.tables, time.monotonic()), time.monotonic()
        next_log = self.seconds + o.log_every
        while self.progress < 1:
            batch = self.feed.next(self.progress)
            terms = self.train_step(batch)
            self.step += 1
            self.tables += self.group.total(len(batch.column_key))
            sums += terms.nan_to_num()
            counts += ~terms.isnan()
            now = time.monotonic()
            self.seconds, clock = self.group.leaders(self.seconds + now - clock), now
            ended = self.progress >= 1
            by_step = bool(o.save_steps) and self.step % o.save_steps == 0
            if ended or by_step or self.seconds >= next_log:
                elapsed = max(time.monotonic() - mark[2], 1e-9)
                row: dict[str, float] = {
                    "minutes": round(self.seconds / 60, 3),
                    "step": self.step,
                    "tables": self.tables,
                    "tables_per_second": round((self.tables - mark[1]) / elapsed, 1),
                    "steps_per_second": round((self.step - mark[0]) / elapsed, 2),
                    "rate": round(self.rate_factor(), 4),
                }
                means = dict(zip(TERMS, (sums / counts).tolist(), strict=True))
                told = [k for k in TERMS if self.labelled or k not in REAL_LOSSES]
                row |= {k: round(means[k], 4) for k in told}  # nan: no such batch
                for suite in suites:
                    row |= {k: round(v, 4) for k, v in suite.accuracy(self.average).items()}
                if leads:
                    self.log(row)
                self.save()
                sums, counts = torch.zeros_like(sums), torch.zeros_like(counts)
                next_log = self.seconds + o.log_every
                clock = time.monotonic()  # evaluation and saving are not training time
                mark = (self.step, self.tables, clock)
        if self.made:
            self.made.close()

    def log(self, row: dict[str, float]) -> None:
        append_row(self.folder / "log.csv", row)
        print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)

    def save(self) -> None:
        """Write the checkpoint and the 16-bit weights, each atomically."""
        feeds = self.group.gather(self.feed.state())
        if not self.group.leads:
            return
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        tensors |= {f"optimizer.{k}": v for k, v in self.optimizer.tensors().items()}
        tensors |= {f"feed.{k}": v for k, v in feeds.items()}
        tensors = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
        clock = {"step": self.step, "tables": self.tables, "seconds": self.seconds}
        write_atomically(self.checkpoint, save(tensors, {"clock": json.dumps(clock)}))
        training = {k: v for k, v in vars(self.options).items() if k not in ("run", "device")}
        save_network(self.average, self.folder / "network.json", training=training, **clock)

    def restore(self) -> None:
        with safe_open(self.checkpoint, "pt") as file:
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
            clock = json.loads(file.metadata()["clock"])

        def part(prefix: str) -> dict[str, torch.Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        self.average.load_state_dict(part("average."))
        self.optimizer.load_tensors(part("optimizer."))
        processes = len({name.split(".")[1] for name in tensors if name.startswith("feed.")})
        if processes != self.group.size:
            raise WeightsError(
                f"{self.folder} was trained by {processes} processes: continue it with as many."
            )
        self.feed.load_state(part(f"feed.{self.group.rank}."))
        self.step, self.tables, self.seconds = clock["step"], clock["tables"], clock["seconds"]
        if self.group.leads:
            self._forget_later_rows()

    def _forget_later_rows(self) -> None:
        """Take out of the log what an interrupted run wrote after its last checkpoint."""
        path = self.folder / "log.csv"
        if not path.exists():
            return
        first, *lines = path.read_text().splitlines(keepends=True)
        column = first.strip().split(",").index("step")
        kept = [line for line in lines if int(line.split(",")[column]) <= self.step]
        write_atomically(path, "".join([first, *kept]).encode())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tabiced pretrain", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--run", required=True, help="folder of the run; an existing checkpoint there is continued")
    add("--minutes", type=float, default=10.0, help="training time")
    add("--steps", type=int, default=0, help="train this many steps instead of a time")
    add("--preset", default="full", help="prior: full or paper")
    add("--paper-share", type=float, default=0.25, help="share of draws from the paper's prior")
    add("--real", default="", help="collection of real tables, for a network that scores")
    add("--real-share", type=float, default=0.5, help="share of draws from these")
    add(
        "--made",
        type=int,
        default=0,
        help="made-up tables beside the real ones, renewed all the time",
    )
    add("--made-share", type=float, default=0.4, help="share of the draws from tables they take")
    add("--without", nargs="*", default=(), help="ingredients of the prior to leave out")
    add("--curriculum", default="full", choices=sorted(CURRICULA))
    add("--loss", default="default", choices=("default", "paper"))
    add(
        "--loss-without",
        nargs="*",
        default=(),
        choices=("regression", "ranking"),
        help="terms of the loss to leave out",
    )
    add("--size", default="shipped", choices=("shipped", "tiny"))
    add("--init", default="", help="start from these weights: 'shipped' or the path of a card")
    add(
        "--encoder",
        default="cells",
        choices=("cells", "tabicl"),
        help="of a new network: our description of cells and rows, or the paper's extractor",
    )
    add("--init-encoder", default="", help="start the tabicl encoder from this TabICLv2 checkpoint")
    add("--shallow", action="store_true", help="add a branch without attention, trained apart")
    add("--muon-rate", type=float, default=1.5e-3)
    add("--adam-rate", type=float, default=1e-3)
    add("--warmup", type=float, default=0.02, help="share of the run")
    add(
        "--decay",
        type=float,
        default=0.5,
        help="share of the run over which the rate falls to zero",
    )
    add("--average", type=float, default=1000, help="steps over which the kept weights average")
    add("--row-budget", type=int, default=20_000, help="rows in a step")
    add("--cell-budget", type=int, default=400_000, help="cells in a step")
    add("--evaluation-tables", type=int, default=16, help="held-out tables per suite; 0: none")
    add("--log-every", type=float, default=60.0, help="seconds between log lines and checkpoints")
    add("--save-steps", type=int, default=0, help="also log and save every so many steps")
    add(
        "--eager",
        action="store_true",
        help="no CUDA graphs and no kernels of our own (always so with the tabicl encoder)",
    )
    add("--compile", action="store_true", help="compile the blocks (about a minute on a GPU)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.made < 0:
        parser.error(f"--made {options.made}: there are no fewer tables than none.")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    trainer = Trainer(parse(arguments))
    trainer.run()
    trainer.group.leave()


if __name__ == "__main__":
    main()
