"""Timing: one row a size and method, resumed, printed as a table."""

import json
import sys
import time
from argparse import Namespace

import numpy as np
import pytest
import torch

from tabiced.bench import command, speed
from tabiced.bench.command import main
from tabiced.bench.methods import Method
from tabiced.bench.results import number


def test_times_are_medians_and_are_not_measured_twice(tmp_path):
    calls = []

    def slow_once(context, query, seed):
        calls.append(context.shape)
        time.sleep(0.5 if len(calls) == 1 else 0.01)
        return query[:, 0]

    path = tmp_path / "speed.csv"
    for _ in range(2):
        speed.measure([(30, 3)], [Method("x", slow_once)], speed.open_results(path), repeats=2)
    assert calls == [(30, 3)] * 3
    row = speed.open_results(path).rows()[0]
    assert 0.01 <= number(row["fastest"]) <= number(row["seconds"]) <= number(row["slowest"]) < 0.4


def test_the_machine_is_told_with_the_device_that_options_name(tmp_path, monkeypatch):
    methods = [Method("x", None), Method("x", None, options="n_views=4 device=cuda:1", weights="w")]
    results = speed.open_results(tmp_path / "speed.csv")
    times = dict.fromkeys(speed.VALUES, 1.0)
    for method in methods:
        results.add({"rows": 30, "columns": 3, **method.key, **times})
    monkeypatch.setattr(command, "describe_machine", lambda device: f"a machine, {device}")
    failed = Method("failed", None)
    options = Namespace(out=results.path, device="cpu")
    command.finish(options, [*methods, failed], results, ["done"])
    noted = json.loads((tmp_path / "speed.machines.json").read_text())
    assert noted == {"x": "a machine, cpu", "x n_views=4 device=cuda:1 w": "a machine, cuda:1"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell the peak")
def test_memory_is_the_peak_of_the_call(tmp_path):
    def greedy(context, query, seed):
        held = np.ones(60_000_000 // 8)
        return query[:, 0] + held[0]

    results = speed.open_results(tmp_path / "speed.csv")
    methods = [Method("greedy", greedy), Method("modest", lambda context, query, seed: query[:, 0])]
    speed.measure([(30, 3)], methods, results, repeats=1)
    greedy_row, modest_row = sorted(results.rows(), key=lambda row: row["method"])
    assert number(greedy_row["megabytes"]) == pytest.approx(60, abs=8)
    assert number(modest_row["megabytes"]) < 8


def test_failures_are_not_timed_and_sizes_must_make_sense(tmp_path, capsys):
    def failing(context, query, seed):
        raise ValueError("too small")

    results = speed.open_results(tmp_path / "speed.csv")
    speed.measure([(30, 3)], [Method("x", failing)], results)
    assert results.rows() == [] and "x failed: too small" in capsys.readouterr().err
    for wrong in (["--rows", "1"], ["--columns", "0"], ["--repeats", "two"]):
        with pytest.raises(SystemExit):
            main(["speed", *wrong])
        assert "is not a whole number from" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="choose from ours, KDE"):
        main(["speed", "--methods", "nope", "--out", str(tmp_path / "speed.csv")])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_what_needs_one_is_told_to_have_failed(tmp_path, capsys):
    out = ["--out", str(tmp_path / "speed.csv")]
    main(["speed", "--quick", "--methods", "ours", "--options", "device=cuda", *out])
    assert "ours failed" in capsys.readouterr().err
    assert speed.open_results(tmp_path / "speed.csv").rows() == []
