"""Mixtures: rows come from one of K components, x = e M_k + b_k."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from tabiced.prior.columns import Encoding
from tabiced.prior.ingredient import Ingredient, Recipe
from tabiced.prior.laws import ELLIPTICAL, HEAVY, Law, Normal
from tabiced.prior.linear import Dense, Rotated, rotations
from tabiced.prior.randomness import Random

COMPONENTS = {(1, 1): 28, (2, 2): 22, (3, 3): 16, (4, 6): 19, (7, 12): 10, (13, 20): 5}
"""Odds of the number of components of a broad mixture, evenly within a range."""

_CHUNK = 2**25
"""Most numbers held at once when all components' rows are formed (256 MB in float64)."""


class Source:
    """A joint law of a group's tables; its component is a latent class that side columns share."""

    columns: int
    """Number of columns."""
    measured: int
    """How many of them, from the first, are continuous and may be transformed."""
    encodings: tuple[Encoding, ...] = ()
    """How each remaining column is shown."""
    components: int
    """Number of components K."""

    hidden: Tensor | None = None
    """A component (T, 1) of every table that has no weight, or None."""

    def sample(
        self, random: Random, rows: int, component: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return rows (T, N, columns) and their components (T, N), drawn unless given."""
        raise NotImplementedError

    def hide_component(self, random: Random) -> None:
        """Take the weight of a random component of every table away, if it has several."""

    def component_log_density(self, x: Tensor) -> Tensor:
        """Return log(w_k p_k(x)) as (T, N, K)."""
        raise NotImplementedError

    def project(self, x: Tensor) -> Tensor:
        """Move discrete cells to the nearest value they can take."""
        return x


class Mixture(Source):
    """w_k p_0((x - b_k) M_k^-1) / |det M_k| summed over k."""

    def __init__(
        self, log_weights: Tensor, maps: Rotated | Dense, law: Law, stratified: bool = False
    ):
        self.log_weights = log_weights  # (T, K)
        self.maps = maps
        self.law = law
        self.stratified = stratified
        _, self.components, self.columns = maps.centres.shape
        self.measured = self.columns

    def hide_component(self, random: Random) -> None:
        if self.components > 1:
            tables = self.log_weights.shape[0]
            self.hidden = random.integers((tables, 1), 0, self.components)
            left = self.log_weights.scatter(1, self.hidden, -torch.inf)
            self.log_weights = torch.log_softmax(left, -1)

    def draw_components(self, random: Random, rows: int) -> Tensor:
        """Draw components (T, N): independently, or with counts that follow the weights exactly."""
        tables = self.log_weights.shape[0]
        if self.stratified:
            grid = torch.arange(rows, device=random.device) + random.uniform((tables, 1))
            level = (grid / rows).gather(1, random.permutations((tables, rows)))
        else:
            level = random.uniform((tables, rows))
        cumulative = self.log_weights.exp().cumsum(-1)
        index = torch.searchsorted(cumulative, level * cumulative[:, -1:], right=True)
        return index.clamp_max(cumulative.shape[1] - 1)

    def sample(
        self, random: Random, rows: int, component: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if component is None:
            component = self.draw_components(random, rows)
        t, k, d, _ = self.maps.matrix.shape
        e = self.law.sample(random, (t, rows, d))
        # One product for all components, then pick: no loop over components or rows.
        matrix = self.maps.matrix.transpose(1, 2).reshape(t, d, k * d)
        step = max(1, _CHUNK // (t * k * d))
        chunks = []
        for start in range(0, rows, step):
            part = slice(start, start + step)
            spread = (e[:, part] @ matrix).view(t, -1, k, d)
            index = component[:, part, None, None].expand(-1, -1, 1, d)
            chunks.append(spread.gather(2, index).squeeze(2))
        centre = self.maps.centres.gather(1, component.unsqueeze(-1).expand(-1, -1, d))
        return torch.cat(chunks, 1) + centre, component

    def component_log_density(self, x: Tensor) -> Tensor:
        t, k, d, _ = self.maps.matrix.shape
        step = max(1, _CHUNK // (t * k * d))
        parts = [self.law.log_joint(self.maps.whiten(rows)) for rows in x.split(step, 1)]
        return torch.cat(parts, 1) + (self.log_weights - self.maps.log_det).unsqueeze(1)


class Base(Ingredient):
    """The joint law of the columns before flows; exactly one per table."""

    slot = "base"
    heavy: ClassVar[bool] = False
    has_components: ClassVar[bool] = True
    """Whether rows have a latent component, which flows and side columns build on."""

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        """Draw the parameters for a group of tables that shows d columns."""
        raise NotImplementedError


def paper_mixture(random: Random, tables: int, d: int, law: Law) -> Mixture:
    """Draw K in 2..20, weights from integers 50..500, means in (-1, 1), maps G or G G^T."""
    k = random.structure.randint(2, 20)
    weights = random.integers((tables, k), 50, 501).double()
    g = random.normal((tables, k, d, d))
    centres = random.uniform((tables, k, d), -1, 1)
    maps = Dense(g, centres, symmetric=law.heavy)
    return Mixture((weights / weights.sum(-1, keepdim=True)).log(), maps, law, stratified=True)


class Covariance(Ingredient):
    """A pattern in the radii of a broad mixture's ellipsoids."""

    slot = "covariance"

    @staticmethod
    def stretch(random: Random, tables: int, d: int) -> Tensor:
        """Return factors (T, 1, d) of the radii."""
        raise NotImplementedError


class NearLowRank(Covariance, name="low_rank", full=0.35):
    """A few long axes, the others down to 1e-4 of them."""

    @staticmethod
    def stretch(random: Random, tables: int, d: int) -> Tensor:
        one = (tables, 1, 1)
        factors = random.integers(one, 1, max(2, d // 2 + 1))
        short = random.log_uniform((tables, 1, d), 1e-4, 1.0) ** random.uniform(one, 0.3, 1.0)
        return torch.where(torch.arange(d, device=random.device) < factors, 1.0, short)


def broad_mixture(random: Random, tables: int, d: int, law: Law, recipe: Recipe) -> Mixture:
    """Draw mixtures from overlapping to well separated, from axis-aligned to strongly correlated.

    Few components are likelier than many. Components share their axes in two tables of five, as
    clusters of one population tend to, and centres lie along the axes' long directions or anywhere.
    """
    pick = random.structure
    # Many or rare components would look like the small clusters of outliers that contaminate real
    # tables, so they are uncommon.
    fewest, most = pick.choices(*zip(*COMPONENTS.items(), strict=True))[0]
    k = pick.randint(fewest, most)
    one = (tables, 1, 1)
    log_weights = random.simplex((tables, k), random.uniform((tables, 1), 0.0, 0.9))

    style = pick.random()
    strength = 0.0 if style < 0.2 else random.uniform((tables, 1, 1, 1)) if style < 0.6 else 1.0
    q = rotations(random, (tables, 1 if pick.random() < 0.4 else k), d, strength)
    radii = torch.exp(
        random.normal((tables, 1, d)) * random.uniform(one, 0.0, 1.0)
        + random.normal((tables, k, d)) * random.uniform(one, 0.0, 0.7)
        + random.normal((tables, k, 1)) * random.uniform(one, 0.0, 0.8)
    )
    # Distances grow with the square root of the columns: without the factor, wide tables would
    # always be islands, which real ones are not.
    separation = random.log_uniform(one, 0.3, 8.0) * (2 / max(2, d)) ** 0.5
    centres = random.normal((tables, k, d)) * separation
    if pick.random() < 0.4:  # clusters that differ in some columns only
        centres = centres * random.bernoulli((tables, 1, d), random.uniform(one, 0.1, 1.0))
    for shape in recipe.each(Covariance, random):
        radii = radii * shape.stretch(random, tables, d)
    if pick.random() < 0.5:
        centres = ((centres * radii.mean(1, keepdim=True)).unsqueeze(2) @ q.mT).squeeze(2)
    return Mixture(log_weights, Rotated(q, radii, centres), law)


class PaperGaussian(Base, name="gaussian", paper=0.5):
    """Gaussian mixture of the paper."""

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        return paper_mixture(random, tables, d, Normal())


class PaperHeavyTails(Base, name="heavy_tails", paper=0.5):
    """Student-t, Laplace or Cauchy mixture of the paper, one family per table."""

    heavy = True

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        return paper_mixture(random, tables, d, random.structure.choice(HEAVY))


class Gaussian(Base, name="gaussian", full=0.45):
    """Gaussian mixture with broad shapes."""

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        return broad_mixture(random, tables, d, Normal(), recipe)


class HeavyTails(Base, name="heavy_tails", full=0.35):
    """Heavy-tailed mixture with broad shapes; coordinates independent or elliptical."""

    heavy = True

    @staticmethod
    def build(random: Random, tables: int, d: int, recipe: Recipe) -> Source:
        return broad_mixture(random, tables, d, random.structure.choice(HEAVY + ELLIPTICAL), recipe)
