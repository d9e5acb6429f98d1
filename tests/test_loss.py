"""The objective against slow, obvious versions in float64."""

import math

import pytest
import torch

from tabiced.bench import metrics
from tabiced.description import Description
from tabiced.evaluation import pairwise_accuracy
from tabiced.loss import (
    LossConfig,
    Targets,
    level_loss,
    make_targets,
    ranking_loss,
    regression_loss,
    total_loss,
)
from tabiced.prior import Tables


def energies(seed=0):
    g = torch.Generator().manual_seed(seed)
    energy = 4 * torch.randn(3, 20, generator=g, dtype=torch.float64)
    target = 6 * torch.randn(3, 20, generator=g, dtype=torch.float64)
    return energy, target


@pytest.mark.parametrize("config", [LossConfig(), LossConfig.paper()])
def test_regression_matches_a_loop(config):
    energy, target = energies()
    low, high = config.band

    def penalty(difference):
        size = abs(difference)
        if config.huber is None or size <= config.huber:
            return size**2
        return 2 * config.huber * (size - config.huber / 2)

    tables = []
    for e_row, y_row in zip(energy.tolist(), target.tolist(), strict=True):
        fit, inside, tail = 0.0, 0, 0.0
        for e, y in zip(e_row, y_row, strict=True):
            if low <= y <= high:
                inside += 1
                fit += penalty(e - y)
            elif y < low and e > low:
                tail += penalty(e - (low - config.margin))
            elif y > high and e < high:
                tail += penalty(high + config.margin - e)
        tables.append(fit / max(inside, 1) + tail / len(e_row))
    assert float(regression_loss(energy, target, config)) == pytest.approx(sum(tables) / 3)


def test_paper_penalty_of_low_targets_predicted_inside_the_band():
    config = LossConfig.paper()
    loss = regression_loss(torch.tensor([[2.0, -30.0]]), torch.tensor([[-50.0, -40.0]]), config)
    assert float(loss) == pytest.approx((2 + 11) ** 2 / 2)


def test_ranking_matches_a_loop():
    energy, target = energies(1)
    target[0, 3] = target[0, 4]  # a tie is no pair
    tables = []
    for e, y in zip(energy.tolist(), target.tolist(), strict=True):
        terms = [
            math.log1p(math.exp(-(e[j] - e[k])))
            for j in range(20)
            for k in range(20)
            if y[j] > y[k]
        ]
        tables.append(sum(terms) / len(terms))
    assert float(ranking_loss(energy, target)) == pytest.approx(sum(tables) / 3)


def test_anchors_become_minus_one_and_one():
    context = torch.randn(1, 101, 2, generator=torch.Generator().manual_seed(0))
    anchors = torch.linspace(-20.0, 0.0, 101)[None]
    log_density = torch.tensor([[-18.0, -2.0, -10.0]])
    categorical = torch.zeros(1, 2, dtype=torch.bool)
    tables = Tables(context, context, log_density, log_density + 8, anchors, categorical)
    targets = make_targets(tables, Description(context))
    torch.testing.assert_close(targets.context, torch.tensor([[0.0, 2.0, 1.0]]))
    torch.testing.assert_close(targets.energy, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_true_level_gives_back_the_percentiles():
    from tests_support import random_network

    context = 30 * torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(0))
    anchors = torch.randn(2, 200, generator=torch.Generator().manual_seed(1)) - 12
    categorical = torch.tensor([[False, True, False]] * 2)
    description = Description(context)
    few = anchors[:, :5]
    targets = make_targets(Tables(context, context, few, few, anchors, categorical), description)
    found = random_network().percentiles(description, targets.level, categorical)
    expected = anchors.sort(-1).values[:, [20, 179]]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_each_term_can_be_switched_off():
    energy, target = energies(2)
    targets = Targets(target, target + 1, torch.zeros(3, 2, dtype=torch.float64), 4)
    level = torch.ones(3, 2, dtype=torch.float64)

    def terms(**weights):
        return total_loss(energy, energy, level, targets, LossConfig(**weights))

    for name in ("regression", "ranking", "level"):
        parts, off = terms(context=0.0), terms(context=0.0, **{name: 0.0})
        weight = getattr(LossConfig(), name)
        assert float(off["total"]) == pytest.approx(float(parts["total"] - weight * parts[name]))
    both, ranking = terms(), terms(regression=0.0)
    assert float(both["total"] - terms(context=0.0)["total"]) == pytest.approx(
        float(LossConfig().context * both["context"])
    )
    assert float(ranking["context"]) == pytest.approx(float(ranking_loss(energy, targets.context)))
    assert float(level_loss(targets.level, targets)) == 0.0


def test_pairwise_accuracy_matches_a_loop_and_the_benchmarks():
    score, truth = torch.tensor([1.0, 1.0, 3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0, 3.0])
    agree = []
    for i in range(4):
        for j in range(i):
            product = float((score[i] - score[j]) * (truth[i] - truth[j]))
            agree.append(0.5 if product == 0 else float(product > 0))
    found = float(pairwise_accuracy(score, truth))
    assert found == pytest.approx(sum(agree) / 6)
    assert found == pytest.approx(metrics.pairwise_accuracy(truth.numpy(), score.numpy()))
