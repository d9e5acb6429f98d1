"""Noise laws: densities integrate to one, masses are right in the tails, samples follow."""

import math

import pytest
import torch
from scipy import stats

from prior_checks import one_thread, randomness  # noqa: F401
from tabiced.prior.laws import ELLIPTICAL, HEAVY, IMPOSSIBLE, LIGHT, Law

LAWS = LIGHT + HEAVY
REFERENCES = {
    "normal": stats.norm(),
    "laplace": stats.laplace(),
    "t3": stats.t(3),
    "cauchy": stats.cauchy(),
    "logistic": stats.logistic(),
}


def by_name(law: Law) -> str:
    return law.name


def integral(law: Law, low: float, high: float) -> float:
    # x = tan(u) covers the line; the tails of every law vanish fast enough in u
    u = torch.linspace(math.atan(low), math.atan(high), 200_001).double()
    x = torch.tan(u)
    return torch.trapezoid(law.log_prob(x).exp() * (1 + x.square()), u).item()


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_density_integrates_to_one_and_to_the_cdf(law):
    assert integral(law, -1e7, 1e7) == pytest.approx(1, abs=1e-5)
    for z in (-2.5, -0.3, 0.0, 0.7, 3.0):
        below = law.log_cdf(torch.tensor([z]).double()).exp().item()
        assert integral(law, -1e7, z) == pytest.approx(below, abs=1e-5)
        above = law.log_survival(torch.tensor([z]).double()).exp().item()
        assert above == pytest.approx(1 - below, abs=1e-12)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_tails_agree_with_scipy(name):
    law = next(law for law in LAWS if law.name == name)
    z = torch.cat((-torch.logspace(-3, 2, 40), torch.logspace(-3, 2, 40))).double()
    expected = torch.from_numpy(REFERENCES[name].logcdf(z.numpy()))
    assert torch.allclose(law.log_cdf(z), expected, rtol=1e-9, atol=1e-13)
    expected = torch.from_numpy(REFERENCES[name].logpdf(z.numpy()))
    assert torch.allclose(law.log_prob(z), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
@pytest.mark.parametrize("width", [1e-12, 1e-3, 0.3, 5.0])
def test_mass_of_an_interval_is_the_integral_of_the_density(law, width):
    """Far in both tails too, where differences of the CDF itself are zero."""
    low = torch.tensor([-80.0, -30.0, -5.0, -0.1, 0.2, 4.0, 25.0, 70.0]).double()
    u = (torch.arange(40_000).double() + 0.5) / 40_000
    points = low[:, None] + width * u
    expected = torch.logsumexp(law.log_prob(points), -1) + math.log(width / 40_000)
    measured = law.log_mass(low, low + width)
    # the intervals' ends are rounded: at width 1e-12 that alone is worth a relative 1e-2 of it
    tolerance = 2e-5 if width > 1e-9 else 2e-2
    assert torch.allclose(measured, expected, atol=tolerance, rtol=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_masses_of_open_and_empty_intervals(law):
    infinite = torch.tensor([math.inf]).double()
    z = torch.tensor([0.4]).double()
    assert law.log_mass(-infinite, z).item() == pytest.approx(law.log_cdf(z).item())
    assert law.log_mass(z, infinite).item() == pytest.approx(law.log_survival(z).item())
    assert law.log_mass(-infinite, infinite).item() == pytest.approx(0, abs=1e-12)
    assert law.log_mass(-infinite, -infinite).item() == IMPOSSIBLE


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_samples_follow_the_cdf(law):
    z = law.sample(randomness(1), (200_000,))
    statistic = stats.kstest(z.numpy(), lambda v: law.log_cdf(torch.from_numpy(v)).exp().numpy())
    assert statistic.pvalue > 1e-3


@pytest.mark.parametrize("law", ELLIPTICAL, ids=by_name)
def test_elliptical_t_equals_scipy_and_its_radius_follows_f(law):
    d = 3
    z = law.sample(randomness(2), (20_000, d))
    expected = stats.multivariate_t(shape=torch.eye(d).numpy(), df=law.nu).logpdf(z.numpy())
    assert torch.allclose(law.log_joint(z), torch.from_numpy(expected), atol=1e-10)
    radius = z.square().sum(-1) / d
    assert stats.kstest(radius.numpy(), stats.f(d, law.nu).cdf).pvalue > 1e-3
