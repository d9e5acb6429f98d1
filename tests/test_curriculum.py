"""Batches of real and made-up tables: an interrupted stream goes on as if it had not been."""

import random

import numpy as np
import torch

from tabiced.curriculum import LABELLED, Feed, real_shapes
from tabiced.labelled import LabelledTables
from tabiced.model import NetworkConfig
from tabiced.prior import Prior


class Pool:
    """Made-up tables that differ from round to round."""

    def pool(self, number):
        draw = np.random.default_rng(number)
        return {number: {f"made-{number}": (draw.normal(size=(200, 4)), draw.normal(size=(40, 4)))}}


def feed():
    return Feed(
        [(1.0, Prior("paper"))],
        "toy",
        device=torch.device("cpu"),
        seed=3,
        config=NetworkConfig.tiny(),
        real=LabelledTables({}, made=Pool()),
        real_share=0.7,
        row_budget=400,
        cell_budget=4000,
        shapes=1,
        repeats=1,
    )


def test_a_continued_stream_has_the_same_rounds():
    first = feed()
    batches, states = [], []
    for _ in range(12):
        batches.append(first.next(0.0))
        states.append(first.state())
    assert states[-1]["round"] >= 4
    for stopped in (2, 7):
        second = feed()
        second.load_state(states[stopped])
        for expected in batches[stopped + 1 :]:
            for a, b in zip(expected.tensors(), second.next(0.0).tensors(), strict=True):
                assert torch.equal(a, b)


def test_rounds_have_other_made_up_tables():
    stream = feed()
    seen = set()
    for _ in range(12):
        stream.next(0.0)
        seen.add(float(stream.real.cells.sum()))
    assert len(seen) == stream.round.number + 1 > 3


def test_shapes_of_labelled_tasks_are_as_wide_as_tables():
    draw = np.random.default_rng(0)
    tables = {
        f"{width}-{i}": (draw.normal(size=(300, width)), draw.normal(size=(20, width)))
        for width in (2, 5, 12)
        for i in range(20)
    }
    shapes = real_shapes(random.Random(0), LabelledTables(tables), 200)
    assert {d for _, d, _ in shapes} == {LABELLED.columns[0], 5, 12}
    assert all(LABELLED.rows[0] <= n <= 300 for n, _, _ in shapes)
