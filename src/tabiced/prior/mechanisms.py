"""Random functions from the signals of parent columns to the parameters of their children."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tabiced.prior.randomness import Random


class Mechanism:
    """A function of signals (T, N, q) with values (T, N, p, o), one per table."""

    tables: int

    def __call__(self, signals: Tensor) -> Tensor:
        raise NotImplementedError


class Constant(Mechanism):
    """A column without parents."""

    def __init__(self, value: Tensor):
        self.value = value  # (T, 1, p, o)
        self.tables = value.shape[0]

    def __call__(self, signals: Tensor) -> Tensor:
        return self.value.expand(-1, signals.shape[1], -1, -1)


class Perceptron(Mechanism):
    """One hidden layer per child: tanh or sine (smooth), ReLU (piecewise linear), identity."""

    def __init__(self, kind: str, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor):
        self.kind = kind
        self.w1, self.b1 = w1, b1  # (T, q, p h), (T, 1, p h)
        self.w2, self.b2 = w2, b2  # (T, 1, p, h, o), (T, 1, p, o)
        self.tables = w1.shape[0]

    def __call__(self, signals: Tensor) -> Tensor:
        z = torch.baddbmm(self.b1, signals, self.w1)
        if self.kind == "tanh":
            z = torch.tanh(z)
        elif self.kind == "sine":
            z = torch.sin(z)
        elif self.kind == "relu":
            z = torch.relu(z)
        _, _, p, h, _ = self.w2.shape
        hidden = z.view(*z.shape[:2], p, h)
        return torch.einsum("tnph,tpho->tnpo", hidden, self.w2[:, 0]) + self.b2


class Trees(Mechanism):
    """An oblivious tree per child: `depth` threshold questions, a value per 2^depth answers."""

    def __init__(self, feature: Tensor, threshold: Tensor, leaves: Tensor):
        self.feature = feature  # (T, q, p depth), one-hot along q
        self.threshold = threshold  # (T, 1, p depth)
        self.leaves = leaves  # (T, p, 2^depth, o)
        self.tables = feature.shape[0]

    def __call__(self, signals: Tensor) -> Tensor:
        t, p, leaves, o = self.leaves.shape
        depth = int(math.log2(leaves))
        answers = (signals @ self.feature > self.threshold).view(t, -1, p, depth)
        bits = 2 ** torch.arange(depth, device=signals.device)
        leaf = (answers * bits).sum(-1).transpose(1, 2)  # (T, p, N)
        values = self.leaves.gather(2, leaf.unsqueeze(-1).expand(-1, -1, -1, o))
        return values.transpose(1, 2)


def draw_mechanism(
    random: Random, tables: int, q: int, p: int, outputs: int, gain: Tensor
) -> Mechanism:
    """Draw a mechanism with about four parents per child; `gain` (T, 1, 1, 1) sets its strength."""
    offset = random.normal((tables, 1, p, outputs)) * 0.5 * gain
    if q == 0:
        return Constant(offset)
    kind = random.structure.choice(("tanh", "tanh", "sine", "relu", "linear", "tree"))
    if kind == "tree":
        depth = 3
        chosen = random.integers((tables, 1, p * depth), 0, q)
        feature = torch.arange(q, device=random.device).view(1, q, 1) == chosen
        leaves = random.normal((tables, p, 2**depth, outputs)) * gain
        return Trees(feature.double(), random.normal((tables, 1, p * depth)) * 0.7, leaves)
    hidden = 1 if kind == "linear" else 8
    weight = random.normal((tables, q, p, hidden)) * random.log_uniform((tables, 1, p, 1), 0.5, 2.0)
    parent = random.bernoulli((tables, q, p, 1), min(1.0, 4 / q))
    # dividing by the root of the expected number of parents keeps hidden units of order 1
    w1 = (weight * parent / math.sqrt(min(q, 4))).view(tables, q, p * hidden)
    w2 = random.normal((tables, 1, p, hidden, outputs)) * gain.unsqueeze(-1) / math.sqrt(hidden)
    return Perceptron(kind, w1, random.normal((tables, 1, p * hidden)) * 0.7, w2, offset)
