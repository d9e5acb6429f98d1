"""Structural tables: columns generated one layer after another from the columns before them."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.columns import NUMBER, Encoding, plan_categories
from tabiced.prior.ingredient import Recipe
from tabiced.prior.laws import HEAVY, LIGHT, Law
from tabiced.prior.mechanisms import Mechanism, draw_mechanism
from tabiced.prior.mixture import Base, Source
from tabiced.prior.numbers import UNITS
from tabiced.prior.randomness import Random


class Layer:
    """p columns that are independent of each other given the columns of earlier layers."""

    outputs: int
    """How many numbers per column the mechanism must give."""
    encodings: tuple[Encoding, ...]
    mechanism: Mechanism

    def sample(self, random: Random, parents: Tensor) -> Tensor:
        """Draw cells (T, N, p) given the parents' signals (T, N, q)."""
        raise NotImplementedError

    def log_prob(self, x: Tensor, parents: Tensor) -> Tensor:
        """Return the sum of the columns' conditional log-densities, (T, N)."""
        raise NotImplementedError

    def signal(self, x: Tensor) -> Tensor:
        """Return what later layers see of the cells: numbers of order 1."""
        raise NotImplementedError

    def project(self, x: Tensor) -> Tensor:
        """Move cells to the nearest value they can take."""
        return x


class Measured(Layer):
    """x = f(parents) + s exp(h tanh g(parents)) e, e from a noise law."""

    outputs = 2

    def __init__(self, mechanism: Mechanism, law: Law, scale: Tensor, hetero: Tensor):
        self.mechanism, self.law = mechanism, law
        self.scale, self.hetero = scale, hetero  # (T, 1, p), (T, 1, 1)
        self.encodings = (NUMBER,) * scale.shape[-1]

    def location_scale(self, parents: Tensor) -> tuple[Tensor, Tensor]:
        location, bend = self.mechanism(parents).unbind(-1)
        return location, self.scale * torch.exp(self.hetero * torch.tanh(bend))

    def sample(self, random: Random, parents: Tensor) -> Tensor:
        location, scale = self.location_scale(parents)
        return location + scale * self.law.sample(random, location.shape)

    def log_prob(self, x: Tensor, parents: Tensor) -> Tensor:
        location, scale = self.location_scale(parents)
        return (self.law.log_prob((x - location) / scale) - scale.log()).sum(-1)

    def signal(self, x: Tensor) -> Tensor:
        return x.asinh()


class Stepped(Measured):
    """A measured column seen in steps: x = unit * i, i = round(latent / step).

    p(x | parents) = (F(upper edge) - F(lower edge)) / unit, a piecewise constant density.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        law: Law,
        scale: Tensor,
        hetero: Tensor,
        step: Tensor,
        unit: Tensor,
    ):
        super().__init__(mechanism, law, scale, hetero)
        self.step, self.unit = step, unit  # (T, 1, p), (p,)

    def sample(self, random: Random, parents: Tensor) -> Tensor:
        return torch.round(super().sample(random, parents) / self.step) * self.unit

    def log_prob(self, x: Tensor, parents: Tensor) -> Tensor:
        location, scale = self.location_scale(parents)
        index = torch.round(x / self.unit)
        low = ((index - 0.5) * self.step - location) / scale
        high = ((index + 0.5) * self.step - location) / scale
        return (self.law.log_mass(low, high) - self.unit.log()).sum(-1)

    def signal(self, x: Tensor) -> Tensor:
        return (torch.round(x / self.unit) * self.step).asinh()

    def project(self, x: Tensor) -> Tensor:
        return torch.round(x / self.unit) * self.unit


class Classes(Layer):
    """Categories with logits from the parents; later layers see a random number per level."""

    def __init__(self, mechanism: Mechanism, values: Tensor, encodings: list[Encoding]):
        self.mechanism, self.values = mechanism, values  # (T, p, C)
        self.encodings = tuple(encodings)
        levels = torch.tensor([e.levels for e in encodings], device=values.device)
        self.absent = torch.arange(values.shape[-1], device=values.device) >= levels.unsqueeze(-1)

    def log_probabilities(self, parents: Tensor) -> Tensor:
        logits = self.mechanism(parents).masked_fill(self.absent, -torch.inf)
        return torch.log_softmax(logits, -1)  # (T, N, p, C)

    def sample(self, random: Random, parents: Tensor) -> Tensor:
        cumulative = self.log_probabilities(parents).exp().cumsum(-1)
        level = random.uniform((*cumulative.shape[:3], 1)) * cumulative[..., -1:]
        return (level >= cumulative[..., :-1]).sum(-1).double()

    def log_prob(self, x: Tensor, parents: Tensor) -> Tensor:
        found = self.log_probabilities(parents).gather(-1, x.long().unsqueeze(-1))
        return found.squeeze(-1).sum(-1)

    def signal(self, x: Tensor) -> Tensor:
        index = x.long().transpose(1, 2)  # (T, p, N)
        return self.values.gather(2, index).transpose(1, 2)


class Structural(Source):
    """p(x) = prod over layers of prod over columns p(x_j | earlier layers).

    Columns are kept in the order (measured | others); `order` lists, layer by layer, where each
    layer's columns are.
    """

    components = 1

    def __init__(self, layers: list[Layer]):
        self.layers = layers
        flat = [e for layer in layers for e in layer.encodings]
        free = [type(layer) is Measured for layer in layers for _ in layer.encodings]
        ranked = sorted(range(len(flat)), key=lambda i: not free[i])  # measured columns first
        self.columns, self.measured = len(flat), sum(free)
        self.encodings = tuple(flat[i] for i in ranked[self.measured :])
        self.to_core = ranked
        self.to_layers = sorted(range(len(flat)), key=ranked.__getitem__)
        self.widths = [len(layer.encodings) for layer in layers]

    def sample(
        self, random: Random, rows: int, component: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        tables = self.layers[0].mechanism.tables
        signals = torch.zeros(tables, rows, 0, device=random.device, dtype=torch.float64)
        cells = []
        for layer in self.layers:
            cells.append(layer.sample(random, signals))
            signals = torch.cat((signals, layer.signal(cells[-1])), -1)
        x = torch.cat(cells, -1)[..., self.to_core]
        return x, torch.zeros(tables, rows, dtype=torch.long, device=random.device)

    def component_log_density(self, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[:2])
        signals = x[..., :0]
        for layer, cells in zip(self.layers, self.by_layer(x), strict=True):
            total = total + layer.log_prob(cells, signals)
            signals = torch.cat((signals, layer.signal(cells)), -1)
        return total.unsqueeze(-1)

    def by_layer(self, x: Tensor) -> tuple[Tensor, ...]:
        return x[..., self.to_layers].split(self.widths, -1)

    def project(self, x: Tensor) -> Tensor:
        parts = [
            layer.project(cells) for layer, cells in zip(self.layers, self.by_layer(x), strict=True)
        ]
        return torch.cat(parts, -1)[..., self.to_core]


class StructuralTables(Base, name="structural", full=0.20):
    """Layered structural equations with smooth, piecewise and tree-like mechanisms."""

    has_components = False

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        pick = random.structure
        categories: list[Encoding] = []
        if recipe.allows("categorical") and pick.random() < 0.35:
            categories = plan_categories(random, d - 1, pick.uniform(0.0, 0.6))
        left = d - sum(e.width for e in categories)
        stepped = 0
        if recipe.allows("rounded") and left > 1 and pick.random() < 0.3:
            stepped = pick.randint(1, max(1, int(0.6 * (left - 1))))
        groups: list[list[Encoding]] = [
            *_split(random, categories, 2),
            *_split(random, [NUMBER] * (left - stepped), 4),
        ]
        kinds: list[type[Layer]] = [Classes if g[0].levels else Measured for g in groups]
        for group in _split(random, [NUMBER] * stepped, 2):
            groups.append(group)
            kinds.append(Stepped)

        order = pick.sample(range(len(groups)), len(groups))
        laws = LIGHT + HEAVY if recipe.allows("heavy_tails") else LIGHT
        layers: list[Layer] = []
        parents = 0
        for i in order:
            layers.append(_draw_layer(random, tables, parents, groups[i], kinds[i], laws))
            parents += len(groups[i])
        return Structural(layers)


def _split(random: Random, columns: list[Encoding], most: int) -> list[list[Encoding]]:
    """Cut a list into one to `most` non-empty pieces."""
    if not columns:
        return []
    count = min(len(columns), random.structure.randint(1, most))
    cuts = sorted(random.structure.sample(range(1, len(columns)), count - 1))
    return [columns[a:b] for a, b in zip([0, *cuts], [*cuts, len(columns)], strict=True)]


def _draw_layer(
    random: Random,
    tables: int,
    parents: int,
    group: list[Encoding],
    kind: type[Layer],
    laws: tuple[Law, ...],
) -> Layer:
    pick, p = random.structure, len(group)
    if kind is Classes:
        most = max(e.levels for e in group)
        gain = random.log_uniform((tables, 1, 1, 1), 0.5, 4.0)
        mechanism = draw_mechanism(random, tables, parents, p, most, gain)
        return Classes(mechanism, random.normal((tables, p, most)), group)
    mechanism = draw_mechanism(
        random, tables, parents, p, 2, random.log_uniform((tables, 1, 1, 1), 0.5, 2.5)
    )
    law = pick.choice(laws)
    scale = random.log_uniform((tables, 1, p), 0.05, 1.0)
    # Some columns all but follow from others: a sum, a share, the same thing in other units.
    exact = random.bernoulli((tables, 1, p), 0.15) & (parents > 0)
    scale = torch.where(exact, scale * random.log_uniform((tables, 1, p), 0.01, 0.3), scale)
    hetero = random.uniform((tables, 1, 1), 0.0, 1.5) * random.bernoulli((tables, 1, 1), 0.6)
    if kind is Measured:
        return Measured(mechanism, law, scale, hetero)
    step = random.log_uniform((tables, 1, p), 0.05, 1.0)
    unit = torch.tensor([pick.choice(UNITS) for _ in range(p)], device=random.device).double()
    return Stepped(mechanism, law, scale, hetero, step, unit)
