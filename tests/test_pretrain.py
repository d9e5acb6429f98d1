"""Pretraining in a toy configuration: it learns, and an interrupted run continues exactly."""

import csv

import pytest
import torch

from tabiced.loss import ranking_loss
from tabiced.optim import Muon, orthogonalise
from tabiced.pretrain import TERMS, Trainer, parse
from tabiced.weights import load_network

TOY = "--size tiny --curriculum toy --evaluation-tables 0 --row-budget 1000 --log-every 1e9"


def trainer(folder, *extra):
    return Trainer(parse(["--run", str(folder), *TOY.split(), "--device", "cpu", *map(str, extra)]))


def read_log(folder):
    with (folder / "log.csv").open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_loss_falls_on_other_tables_and_weights_can_be_used(tmp_path):
    rates = ("--muon-rate", 3e-3, "--adam-rate", 3e-3)
    learner = trainer(tmp_path, "--steps", 60, "--save-steps", 30, *rates)
    others = trainer(tmp_path / "others", "--seed", 9).feed
    batches = [others.next(0.0) for _ in range(12)]

    def losses():
        return torch.stack([learner.backward(batch) for batch in batches]).mean(0)

    before = losses()
    learner.run()
    assert [row["step"] for row in read_log(tmp_path)] == [30, 60]
    fallen = dict(zip(TERMS, (losses() / before).tolist(), strict=False))
    assert fallen["total"] < 0.8
    assert max(fallen["ranking"], fallen["regression"], fallen["context"]) < 0.95
    network = load_network(tmp_path / "network.json")
    assert (
        network.energy(network.read(torch.randn(1, 50, 3)), torch.randn(1, 4, 3)).isfinite().all()
    )


def test_resumed_run_follows_the_same_trajectory(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    uninterrupted = trainer(whole, "--steps", 12, "--save-steps", 1)
    uninterrupted.run()

    class Interrupted(Exception):
        pass

    first = trainer(parts, "--steps", 12, "--save-steps", 1)
    save = first.save

    def save_then_die():
        save()
        if first.step == 5:
            raise Interrupted

    first.save = save_then_die
    with pytest.raises(Interrupted):
        first.run()
    second = trainer(parts, "--steps", 12, "--save-steps", 1)
    assert second.step == 5
    second.run()
    for a, b in zip(read_log(whole), read_log(parts), strict=True):
        for key in ("step", "tables", "total", "gradient"):
            assert a[key] == b[key]
    for p, q in zip(uninterrupted.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(p, q)


def test_kept_weights_are_a_mean_over_the_steps(tmp_path):
    learner = trainer(tmp_path, "--steps", 40, "--average", 4)
    mean = [p.detach().double() for p in learner.network.parameters()]
    for step in range(30):
        learner.train_step(learner.feed.next(0.0))
        learner.step += 1
        share = 1 / max(1.0, min(4.0, step / 5))
        for m, p in zip(mean, learner.network.parameters(), strict=True):
            m += share * (p.detach().double() - m)
    learner.save()
    saved = load_network(tmp_path / "network.json")
    moved = 0.0
    for m, p, q, now in zip(
        mean,
        learner.average.parameters(),
        saved.parameters(),
        learner.network.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(p.detach().double(), m, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(q, p.detach(), atol=1e-3, rtol=1e-2)  # stored in 16 bits
        moved = max(moved, float((now - p).detach().abs().max()))
    assert moved > 1e-3


def test_start_from_given_weights(tmp_path):
    trainer(tmp_path / "a", "--steps", 1).run()
    second = trainer(tmp_path / "b", "--steps", 1, "--init", tmp_path / "a" / "network.json")
    start = load_network(tmp_path / "a" / "network.json")
    for p, q in zip(second.network.parameters(), start.parameters(), strict=True):
        assert torch.equal(p, q)


def test_branch_without_attention_is_trained_apart(tmp_path):
    trainer(tmp_path / "a", "--steps", 1).run()
    card = tmp_path / "a" / "network.json"
    plain, both = (
        trainer(tmp_path / str(len(more)), "--init", card, *more) for more in ((), ("--shallow",))
    )
    batch = plain.feed.next(0.0)
    for learner in (plain, both):
        learner.backward(batch)
    without = dict(plain.network.named_parameters())
    for name, p in both.network.named_parameters():
        if name.startswith("shallow."):
            assert p.grad.abs().sum() > 0
        else:
            assert torch.equal(p, without[name]) and torch.equal(p.grad, without[name].grad)


def test_branch_without_attention_learns_and_is_kept(tmp_path):
    rates = ("--muon-rate", 3e-3, "--adam-rate", 3e-3)
    learner = trainer(tmp_path, "--steps", 60, "--shallow", *rates)
    batches = [trainer(tmp_path / "others", "--seed", 9).feed.next(0.0) for _ in range(6)]

    def loss():
        found = [(learner.network.shallow(b.query), b.targets.energy) for b in batches]
        return torch.stack([ranking_loss(*pair) for pair in found]).mean()

    before = loss()
    learner.run()
    assert loss() < 0.9 * before
    network = load_network(tmp_path / "network.json")
    assert network.config.shallow
    context, query = network.read(torch.randn(1, 50, 3)), torch.randn(1, 4, 3)
    rows = context.description(query)
    both = network.judge(context, query)
    torch.testing.assert_close(both[..., 0], network.energy(context, query))
    torch.testing.assert_close(both[..., 1], network.shallow(rows))


def test_orthogonalise_brings_singular_values_near_one():
    matrices = torch.randn(3, 20, 50, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.6 and values.max() < 1.3


def test_stacked_muon_equals_one_matrix_at_a_time():
    g = torch.Generator().manual_seed(0)
    shapes = [(8, 12), (12, 8), (8, 12)]
    start = [torch.randn(s, generator=g) for s in shapes]
    gradients = [torch.randn(s, generator=g) for s in shapes]

    def after(groups):
        result = []
        for group in groups:
            parameters = [torch.nn.Parameter(start[i].clone()) for i in group]
            muon = Muon(parameters)
            for _ in range(2):
                for p, i in zip(parameters, group, strict=True):
                    p.grad = gradients[i].clone()
                muon.step(torch.tensor(0.1))
            result += [p.detach() for p in parameters]
        return result

    for a, b in zip(after([[0, 1, 2]]), after([[0], [1], [2]]), strict=True):
        torch.testing.assert_close(a, b)
