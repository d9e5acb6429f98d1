"""One-dimensional noise laws with densities and interval masses that stay exact in the tails."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from tabiced.prior.randomness import Random, Shape

IMPOSSIBLE = -1e4
"""Log-density of a cell outside its support: exp(-1e4) is 0 in float64, yet targets stay finite."""


class Law:
    """Describe coordinates z drawn independently from one density.

    `log_joint` of a vector is the sum of its coordinates' log-densities; laws whose coordinates
    are dependent override it.
    """

    name: str
    heavy: bool = False

    def sample(self, random: Random, shape: Shape) -> Tensor:
        raise NotImplementedError

    def log_prob(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def log_cdf(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def log_survival(self, z: Tensor) -> Tensor:
        return self.log_cdf(-z)

    def log_joint(self, z: Tensor) -> Tensor:
        return self.log_prob(z).sum(-1)

    def log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        r"""Return log P(low < z <= high), accurate for narrow intervals and far in either tail.

        log(F(b) - F(a)) = log F(b) + log(1 - exp(log F(a) - log F(b))), with survival functions in
        place of F on the right. Intervals so narrow that the difference loses its digits are
        density times width.
        """
        right = low + high > 0
        big = torch.where(right, self.log_survival(low), self.log_cdf(high))
        small = torch.where(right, self.log_survival(high), self.log_cdf(low))
        ratio = small - big
        difference = big + torch.log(-torch.expm1(ratio))
        middle = torch.where(torch.isfinite(low + high), 0.5 * (low + high), torch.zeros_like(low))
        narrow = self.log_prob(middle) + torch.log(high - low)
        mass = torch.where(ratio > -1e-9, narrow, difference)
        return torch.where(big == -torch.inf, torch.full_like(mass, IMPOSSIBLE), mass)


class Normal(Law):
    name = "normal"

    def sample(self, random: Random, shape: Shape) -> Tensor:
        return random.normal(shape)

    def log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def log_cdf(self, z: Tensor) -> Tensor:
        return torch.special.log_ndtr(z)


class Laplace(Law):
    name = "laplace"
    heavy = True

    def sample(self, random: Random, shape: Shape) -> Tensor:
        u = random.uniform(shape, -1.0, 1.0)
        return -u.sign() * torch.log1p(-u.abs())

    def log_prob(self, z: Tensor) -> Tensor:
        return -z.abs() - math.log(2)

    def log_cdf(self, z: Tensor) -> Tensor:
        upper = torch.log1p(-0.5 * torch.exp(-z.clamp_min(0)))
        return torch.where(z < 0, z - math.log(2), upper)


class StudentT3(Law):
    """Student's t with three degrees of freedom."""

    name = "t3"
    heavy = True

    def sample(self, random: Random, shape: Shape) -> Tensor:
        normals = random.normal((4, *shape))
        return normals[0] * (3 / normals[1:].square().sum(0)).sqrt()

    def log_prob(self, z: Tensor) -> Tensor:
        return math.log(2 / (math.pi * math.sqrt(3))) - 2 * torch.log1p(z.square() / 3)

    def log_cdf(self, z: Tensor) -> Tensor:
        r"""Take F(-t) = (atan u - u / (1 + u^2)) / pi, u = sqrt(3) / t; a series for small u."""
        u = math.sqrt(3) / z.abs().clamp_min(1e-30)
        u2 = u.square()
        series = u * u2 * (2 / 3 - u2 * (4 / 5 - u2 * (6 / 7 - u2 * (8 / 9 - u2 * 10 / 11))))
        # u / (1 + u^2) written as 1 / (u + 1/u) does not overflow for tiny |z|
        tail = torch.where(u < 0.02, series, torch.atan(u) - 1 / (u + 1 / u)) / math.pi
        return torch.where(z < 0, tail.log(), torch.log1p(-tail))


class Cauchy(Law):
    """Cauchy, sampled inside |z| <= 1e6: the mass beyond, 6e-7, is below a target's resolution."""

    name = "cauchy"
    heavy = True
    limit = 1e6

    def sample(self, random: Random, shape: Shape) -> Tensor:
        edge = math.atan(self.limit)
        return torch.tan(random.uniform(shape, -edge, edge))

    def log_prob(self, z: Tensor) -> Tensor:
        return -math.log(math.pi) - torch.log1p(z.square())

    def log_cdf(self, z: Tensor) -> Tensor:
        tail = torch.atan(1 / z.abs().clamp_min(1e-30)) / math.pi
        return torch.where(z < 0, tail.log(), torch.log1p(-tail))


class Logistic(Law):
    name = "logistic"

    def sample(self, random: Random, shape: Shape) -> Tensor:
        return torch.logit(random.uniform(shape), eps=1e-16)

    def log_prob(self, z: Tensor) -> Tensor:
        return -z.abs() - 2 * torch.log1p(torch.exp(-z.abs()))

    def log_cdf(self, z: Tensor) -> Tensor:
        return F.logsigmoid(z)


class SkewLaplace(Law):
    """Two exponential sides: scale 0.4 on the left, 1.6 on the right, with mass in proportion."""

    name = "skew_laplace"
    left, right = 0.4, 1.6

    def sample(self, random: Random, shape: Shape) -> Tensor:
        share = self.left / (self.left + self.right)
        u = random.uniform(shape)
        below = self.left * torch.log((u / share).clamp(1e-300, 1.0))
        above = -self.right * torch.log(((1 - u) / (1 - share)).clamp(1e-300, 1.0))
        return torch.where(u < share, below, above)

    def log_prob(self, z: Tensor) -> Tensor:
        decay = torch.where(z < 0, z / self.left, -z / self.right)
        return decay - math.log(self.left + self.right)

    def log_cdf(self, z: Tensor) -> Tensor:
        total = self.left + self.right
        below = math.log(self.left / total) + z.clamp_max(0) / self.left
        above = torch.log1p(-self.right / total * torch.exp(-z.clamp_min(0) / self.right))
        return torch.where(z < 0, below, above)

    def log_survival(self, z: Tensor) -> Tensor:
        total = self.left + self.right
        above = math.log(self.right / total) - z.clamp_min(0) / self.right
        below = torch.log1p(-self.left / total * torch.exp(z.clamp_max(0) / self.left))
        return torch.where(z < 0, below, above)


class TwoPeaks(Law):
    """An even mixture of N(-1, 0.35^2) and N(1, 0.35^2)."""

    name = "two_peaks"
    width = 0.35

    def sample(self, random: Random, shape: Shape) -> Tensor:
        side = 2 * random.integers(shape, 0, 2) - 1
        return side + self.width * random.normal(shape)

    def log_prob(self, z: Tensor) -> Tensor:
        near, far = (z.abs() - 1) / self.width, (z.abs() + 1) / self.width
        both = torch.logaddexp(-0.5 * near.square(), -0.5 * far.square())
        return both - math.log(2 * self.width * math.sqrt(2 * math.pi))

    def log_cdf(self, z: Tensor) -> Tensor:
        left = torch.special.log_ndtr((z + 1) / self.width)
        right = torch.special.log_ndtr((z - 1) / self.width)
        return torch.logaddexp(left, right) - math.log(2)


class EllipticalT(Law):
    r"""Multivariate Student t: normal coordinates divided by one shared radius.

    log p(z) = lgamma((nu + d) / 2) - lgamma(nu / 2) - d/2 log(nu pi) - (nu + d)/2 log(1 + |z|^2/nu)
    """

    heavy = True

    def __init__(self, nu: int):
        self.nu = nu
        self.name = f"elliptical_t{nu}"

    def sample(self, random: Random, shape: Shape) -> Tensor:
        chi2 = random.normal((*shape[:-1], self.nu)).square().sum(-1, keepdim=True)
        return random.normal(shape) * (self.nu / chi2).sqrt()

    def log_joint(self, z: Tensor) -> Tensor:
        d, nu = z.shape[-1], self.nu
        constant = math.lgamma((nu + d) / 2) - math.lgamma(nu / 2) - d / 2 * math.log(nu * math.pi)
        return constant - (nu + d) / 2 * torch.log1p(z.square().sum(-1) / nu)


LIGHT: tuple[Law, ...] = (Normal(), Logistic(), SkewLaplace(), TwoPeaks())
HEAVY: tuple[Law, ...] = (StudentT3(), Laplace(), Cauchy())
ELLIPTICAL: tuple[Law, ...] = (EllipticalT(2), EllipticalT(4), EllipticalT(8))
