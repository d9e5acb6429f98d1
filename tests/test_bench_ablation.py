"""Ablations: real tiny trainings once, the rest with a training that only writes random weights."""

import shutil
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tabiced.bench import ablation, density, paper
from tabiced.bench.command import build_parser, main
from tabiced.bench.foundation import open_reasons
from tabiced.bench.metrics import kendall_tau, pairwise_accuracy
from tabiced.bench.ours import bare_network
from tabiced.bench.page import page_text
from tabiced.bench.results import read_csv
from tabiced.pretrain import Trainer, parse
from tabiced.prior import Prior
from tabiced.weights import read_card, save_network
from tests_support import random_network

FIVE = len(density.PAPER_SUITES)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Return a folder in which the quick run was made."""
    folder = tmp_path_factory.mktemp("quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["ablation", "--quick", "--quiet"])
    return folder


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Let tables be small and trainings write random weights; return the variants trained."""
    names: list[str] = []

    def table(suite, index):
        rows = np.random.default_rng(100 * suite.number + index).normal(size=(70, 3))
        truth = -0.5 * np.square(rows[40:]).sum(1) - 5
        return density.Table(rows[:40], rows[40:], truth)

    def write_weights(command, **_):
        run = Path(command[command.index("--run") + 1])
        names.append(run.name)
        save_network(random_network(len(names)), run / "network.json", step=7, tables=70)
        (run / "checkpoint.safetensors").touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(density, "draw", table)
    monkeypatch.setattr(ablation.subprocess, "run", write_weights)
    monkeypatch.chdir(tmp_path)
    return names


def run(*words):
    main(["ablation", "--quiet", "--out", "ablation.csv", "--keep", "kept", *map(str, words)])


def stored(path="ablation.csv"):
    return read_csv(path)


def variants(path="ablation.csv"):
    return {row["variant"] for row in stored(path)}


def test_quick_run_trains_and_scores_some_variants(quick):
    rows = stored(quick / "build/quick/ablation.csv")
    wanted = set(ablation.QUICK["variants"])
    if find_spec("tabicl") is None:
        wanted.remove("tabicl-encoder")
    assert {(row["variant"], row["suite"]) for row in rows} == {
        (name, suite) for name in wanted for suite in density.PAPER_SUITES
    }
    assert not (quick / "benchmarks").exists()
    folder = quick / "build/quick/ablation/2-steps"
    facts = {name: read_card(folder / name / "network.json") for name in wanted}
    assert {card["step"] for card in facts.values()} == {2}
    assert facts["everything"]["training"]["without"] == []
    assert facts["without-flows"]["training"]["without"] == ["flows"]
    assert facts["without-ranking"]["training"]["loss_without"] == ["ranking"]
    if "tabicl-encoder" in wanted:
        assert facts["tabicl-encoder"]["architecture"]["encoder"] == "tabicl"
    assert not list(folder.glob("*/checkpoint.safetensors"))


def test_stored_numbers_are_those_of_the_kept_weights(quick):
    card = quick / "build/quick/ablation/2-steps/without-flows/network.json"
    table = density.draw(density.SUITES["heavy_tails"], 0)
    found = bare_network(None, card).score(table.context, table.query, 0)
    row = next(
        row
        for row in stored(quick / "build/quick/ablation.csv")
        if (row["variant"], row["suite"]) == ("without-flows", "heavy_tails")
    )
    # The stored ones order log-densities, in which float32 energies may tie or part.
    expected = pairwise_accuracy(table.log_density, found)
    assert float(row["pairwise_accuracy"]) == pytest.approx(expected, abs=1e-4)
    expected = kendall_tau(table.log_density, found)
    assert float(row["kendall_tau"]) == pytest.approx(expected, abs=2e-4)


def test_a_stored_run_is_not_repeated(quick, monkeypatch):
    monkeypatch.chdir(quick)
    path = quick / "build/quick/ablation.csv"
    before = path.read_bytes()
    monkeypatch.setattr(ablation.subprocess, "run", lambda *_, **__: pytest.fail("trained again"))
    main(["ablation", "--quick", "--quiet"])
    path.unlink()
    main(["ablation", "--quick", "--quiet"])  # the weights are still there
    assert path.read_bytes() == before


def test_every_variant_is_a_training_that_the_pretraining_knows(tmp_path):
    given = build_parser().parse_args(["ablation", "--minutes", "6", "--compile"])
    trainings = {}
    for variant in ablation.VARIANTS.values():
        command = ablation.pretraining(variant, given, tmp_path)
        assert command[1:3] == ["-m", "tabiced.pretrain"]
        training = parse(command[3:])
        assert (training.minutes, training.steps, training.compile) == (6, 0, True)
        Prior(training.preset, without=training.without)
        trainings[variant.name] = {k: str(v) for k, v in vars(training).items()}
    # One thing differs from the baseline, and no two variants are the same.
    base = trainings.pop(ablation.BASELINE)
    differences = [{k for k in base if t[k] != base[k]} for t in trainings.values()]
    assert all(len(names) == 1 for names in differences)
    assert len({tuple(t.values()) for t in trainings.values()}) == len(trainings)


def test_terms_of_the_loss_can_be_left_out(tmp_path):
    words = ["--run", str(tmp_path), *ablation.TOY, "--device", "cpu"]
    whole = Trainer(parse(words)).loss
    for term, other in (("ranking", "regression"), ("regression", "ranking")):
        loss = Trainer(parse([*words, "--loss-without", term])).loss
        assert getattr(loss, term) == 0
        assert getattr(loss, other) == getattr(whole, other) > 0
        assert loss.level == whole.level


def test_only_what_is_missing_is_trained_and_scored(trained):
    run("--variants", "everything", "--tables", 2)
    first = stored()
    run("--variants", "everything", "without-flows", "--tables", 2)
    assert trained == ["everything", "without-flows"]
    assert [row for row in stored() if row["variant"] == "everything"] == first
    assert len(stored()) == 2 * FIVE and {row["tables"] for row in stored()} == {"2"}
    run("--variants", "everything", "--tables", 3)  # more tables: scored anew, not trained
    assert {row["tables"] for row in stored() if row["variant"] == "everything"} == {"3"}
    assert trained == ["everything", "without-flows"]
    run("--variants", "everything", "--tables", 3, "--minutes", 2)
    assert trained == ["everything", "without-flows", "everything"]
    assert {row["budget"] for row in stored()} == {"6-minutes", "2-minutes"}


def test_what_is_stored_needs_no_weights(trained):
    run("--variants", "everything", "--tables", 2)
    shutil.rmtree("kept")
    run("--variants", "everything", "--tables", 2)
    assert trained == ["everything"] and not Path("kept").exists()


def test_training_and_scoring_can_be_done_apart(trained):
    run("--variants", "everything", "--tables", 0)
    assert not Path("ablation.csv").exists() and trained == ["everything"]
    assert not list(Path("kept").rglob("checkpoint.safetensors"))
    run("--variants", "everything", "--tables", 2)
    assert len(stored()) == FIVE and trained == ["everything"]


def test_means_over_changed_tables_are_dropped(trained, monkeypatch, capsys):
    run("--variants", "everything", "--tables", 2)
    before, draw = stored(), density.draw

    def changed(suite, index):
        table = draw(suite, index)
        if suite.number != density.SUITES["flows"].number:
            return table
        return density.Table(table.context, table.query, -table.log_density)

    monkeypatch.setattr(density, "draw", changed)
    run("--variants", "everything", "--tables", 2)
    assert "dropped 1 results" in capsys.readouterr().err
    for old, new in zip(before, stored(), strict=True):
        if old["suite"] != "flows":
            assert old == new
        else:
            both = float(old["kendall_tau"]) + float(new["kendall_tau"])
            assert both == pytest.approx(0, abs=1e-6)
    assert trained == ["everything"]


def test_a_failed_training_stops_no_other_and_is_taken_up_again(trained, monkeypatch):
    work, broken = ablation.subprocess.run, True

    def fail_on_flows(command, **options):
        if broken and "flows" in command:
            return subprocess.CompletedProcess(command, 1)
        return work(command, **options)

    monkeypatch.setattr(ablation.subprocess, "run", fail_on_flows)
    words = ("--variants", "without-flows", "without-gaussian", "--tables", 1)
    with pytest.raises(SystemExit, match="without-flows"):
        run(*words)
    assert variants() == {"without-gaussian"}
    broken = False
    run(*words)
    assert trained == ["without-gaussian", "without-flows"]
    assert variants() == {"without-gaussian", "without-flows"}


def test_a_failed_scoring_stops_no_other(trained, monkeypatch, capsys):
    score = ablation.score

    def fail_on_flows(folder, options):
        if folder.name == "without-flows":
            raise RuntimeError("out of memory")
        return score(folder, options)

    monkeypatch.setattr(ablation, "score", fail_on_flows)
    with pytest.raises(SystemExit, match="without-flows"):
        run("--variants", "without-flows", "without-gaussian", "--tables", 1)
    assert variants() == {"without-gaussian"}
    assert "without-flows: scoring failed: out of memory" in capsys.readouterr().err


def test_variants_trained_side_by_side_are_trained_at_the_same_time(trained, monkeypatch):
    work, together = ablation.subprocess.run, threading.Barrier(2, timeout=30)

    def wait_for_the_other(command, **options):
        together.wait()  # breaks if they come one after the other
        return work(command, **options)

    monkeypatch.setattr(ablation.subprocess, "run", wait_for_the_other)
    names = ["everything", "without-flows", "without-repeats", "without-gaussian"]
    run("--variants", *names, "--beside", 2, "--tables", 1, "--minutes", 24)
    assert [set(trained[:2]), set(trained[2:])] == [set(names[:2]), set(names[2:])]
    assert variants() == set(names)
    for row in stored():
        folder = Path("kept/12-minutes-shared", row["variant"])
        assert row["budget"] == "12-minutes-shared"
        assert row["weights"] == bare_network(None, folder / "network.json").weights
    text = page_text(Path(), "shipped")
    assert "### Trained for 12 minutes of a shared device" in text
    words = "tabiced bench ablation --minutes 24 --device cpu --beside 2 --variants "
    assert words + " ".join(names) in text


@pytest.mark.parametrize("beside", [0, 2])
def test_shares_of_the_device_are_even_or_nothing_is_trained(trained, beside):
    words = ("--variants", "everything", "without-flows", "without-repeats", "--tables", 1)
    with pytest.raises(SystemExit, match=f"3 variants cannot be trained {beside} at a time"):
        run(*words, "--beside", beside)
    assert trained == [] and not Path("ablation.csv").exists()


def test_without_tabicl_its_encoder_is_reported(trained, monkeypatch, capsys):
    for name in [*sys.modules]:
        if name.startswith("tabicl.") or name == "tabiced.tabicl_encoder":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tabicl", None)
    run("--variants", "everything", "tabicl-encoder", "--tables", 1)
    assert "tabicl-encoder cannot run: package not installed (tabicl)" in capsys.readouterr().out
    assert variants() == {"everything"} and trained == ["everything"]
    text = page_text(Path(), "shipped")
    assert text.count("did not run") == 1
    assert "TabICL's encoder, from scratch did not run: package not installed (tabicl)." in text


@pytest.mark.skipif(find_spec("tabicl") is None, reason="needs tabicl")
def test_a_reason_is_forgotten_where_the_encoder_can_be_trained(trained):
    reasons = open_reasons(Path())
    key = {"benchmark": "ablation", "method": "tabicl-encoder"}
    reasons.add({**key, "reason": "package not installed (tabicl)"})
    run("--variants", "tabicl-encoder", "--tables", 1)
    assert trained == ["tabicl-encoder"] and not stored("unavailable.csv")


def made_up_rows(folder):
    """Store rows of some variants, of which one was measured on fewer tables."""
    results = ablation.open_results(folder / "ablation.csv")
    rest = {"check": 0.0, "weights": "abc", "trained_tables": 9, "machine": "one made-up machine"}
    for name, accuracy, steps, tables in (
        ("everything", 0.7612, 1234, 50),
        ("without-flows", 0.7579, 1235, 50),
        ("without-repeats", 0.7733, 1236, 50),
        ("without-gaussian", 0.1111, 1237, 10),
    ):
        for i, suite in enumerate(density.PAPER_SUITES):
            value = accuracy + 0.01 * i
            key = {"variant": name, "budget": "6-minutes", "suite": suite, "tables": tables}
            found = {"pairwise_accuracy": value, "kendall_tau": 2 * value - 1, "steps": steps}
            options = {"options": "--minutes 6 --device cuda --compile"}
            results.add({**key, **found, **options, **rest})


def test_the_page_shows_stored_ablations_beside_the_papers(tmp_path):
    assert "Ablations" not in page_text(tmp_path, "shipped")
    made_up_rows(tmp_path)
    text = page_text(tmp_path, "shipped").split("## Ablations")[1].split("\n## ")[0]
    assert "tabiced bench ablation --minutes 6 --device cuda --compile\n" in text
    assert "### Trained for 6 minutes" in text
    assert "one made-up machine" in text and "50 tables" in text
    levels = "0.7612 | 0.7712 | 0.7812 | 0.7912 | 0.8012 | 0.7812"  # the last is the mean
    assert f"| everything | {levels} | 1,234 |" in text
    assert "| everything | 0.5224 | " in text  # tau
    quoted = paper.ablation("pairwise_accuracy")
    assert f"| *without flows, paper* | *{quoted['w/o flow']['gaussian']:.4f}* |" in text
    assert f"| without flows | {' | '.join(['-0.0033'] * 6)} |" in text
    assert f"| without repeats | {' | '.join(['+0.0121'] * 6)} |" in text
    change = quoted["w/o flow"]["gaussian"] - quoted["full prior"]["gaussian"]
    assert f"| *without flows, paper* | *{change:+.4f}* |" in text
    assert "0.1111" not in text  # of fewer tables


def test_quoted_values_are_the_papers():
    accuracy, tau = paper.ablation("pairwise_accuracy"), paper.ablation("kendall_tau")
    names = {variant.quoted for variant in ablation.VARIANTS.values()} - {""}
    assert names | {"full loss"} == set(accuracy) == set(tau)
    assert list(accuracy["w/o cat"].values()) == [0.7562, 0.7367, 0.7371, 0.7415, 0.7010]
    assert list(tau["w/o MSE"].values()) == [0.5083, 0.4605, 0.4680, 0.4199, 0.3940]
    for means in (accuracy, tau):
        assert means["full prior"] == means["full loss"]
