"""Pretraining by several processes: averaged gradients, one log, and an exact continuation."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tabiced.pretrain import RANK_SEEDS, Trainer, parse
from tabiced.weights import WeightsError

TOY = "--size tiny --curriculum toy --evaluation-tables 0 --row-budget 1000 --log-every 1e9"


def start(folder, *extra):
    """Start two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [
        "-m",
        "--",
        "tabiced.pretrain",
        "--run",
        str(folder),
        *TOY.split(),
        "--device=cpu",
        *map(str, extra),
    ]
    return subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def read_log(folder):
    with (folder / "log.csv").open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_two_processes_take_the_mean_step_of_their_tables(tmp_path):
    output = finish(start(tmp_path / "two", "--steps", 1))
    assert output.count("step=1 ") == 1  # one of them speaks

    def one(folder, seed):
        return Trainer(
            parse(
                [
                    "--run",
                    str(tmp_path / folder),
                    *TOY.split(),
                    "--device=cpu",
                    "--steps=1",
                    f"--seed={seed}",
                ]
            )
        )

    alone, other = one("a", 1), one("b", 1 + RANK_SEEDS)
    batches = [alone.feed.next(0.0), other.feed.next(0.0)]
    alone.optimizer.set_rate(alone.rate_factor())
    gradients = []
    for batch in batches:
        alone.backward(batch)
        gradients.append([g.clone() for g in alone.gradients])
    for mine, first, second in zip(alone.gradients, *gradients, strict=True):
        mine.copy_((first + second) / 2)
    alone.update()
    found = load_file(tmp_path / "two" / "checkpoint.safetensors")
    for name, value in alone.network.state_dict().items():
        torch.testing.assert_close(found[f"network.{name}"], value, atol=2e-6, rtol=1e-4)
    assert read_log(tmp_path / "two")[0]["tables"] == sum(len(b.column_key) for b in batches)
    with pytest.raises(WeightsError, match="2 processes"):
        one("two", 1)


def test_a_killed_run_continues_to_the_same_loss_curve(tmp_path):
    wanted = ("--steps", 16, "--save-steps", 2)
    finish(start(tmp_path / "whole", *wanted))
    killed = start(tmp_path / "parts", *wanted)
    log = tmp_path / "parts" / "log.csv"
    limit = time.monotonic() + 120
    while not (log.exists() and len(log.read_text().splitlines()) > 3):
        assert time.monotonic() < limit and killed.poll() is None
        time.sleep(0.01)
    workers = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    for process in (killed.pid, *map(int, workers)):
        os.kill(process, signal.SIGKILL)
    killed.communicate()
    before = read_log(tmp_path / "parts")
    assert before[-1]["step"] < 16
    finish(start(tmp_path / "parts", *wanted))
    whole, parts = (read_log(tmp_path / name) for name in ("whole", "parts"))
    assert [row["step"] for row in parts] == list(range(2, 17, 2))
    for a, b in zip(whole, parts, strict=True):
        for key in ("step", "tables", "total", "gradient"):
            assert a[key] == b[key]
