"""Flows and marginal maps: they invert, and their Jacobians are those of autograd."""

import pytest
import torch

from prior_checks import Forced, every, one_thread, process_with, randomness  # noqa: F401
from tabiced.prior.linear import Dense, rotations
from tabiced.prior.plan import draw_process
from tabiced.prior.pointwise import Elu, Softplus

PARTS = every("flows", "marginals")


@pytest.mark.parametrize(("preset", "name"), PARTS)
@pytest.mark.parametrize("base", ["gaussian", "heavy_tails"])
def test_chain_inverts(preset, name, base):
    """Rows come back through the inverse, for up to 24 columns and heavy tails."""
    for columns in (2, 5, 24):
        random = randomness(columns)
        process = draw_process(Forced(preset, base, name), random, 3, columns)
        x, _ = process.source.sample(random, 150)
        y = process.chain.calibrate_forward(x, 100)
        back, _ = process.chain.inverse(y)
        error = (back - x).abs() / (1 + x.abs())
        assert y.isfinite().all()
        assert error.quantile(0.999) < 1e-7
        assert error.max() < 1e-3  # extreme rows meet a coupling's smallest scale, 1e-3


@pytest.mark.parametrize(("preset", "name"), PARTS)
@pytest.mark.parametrize("columns", [1, 2, 4])
def test_log_determinant_equals_autograd(preset, name, columns):
    process, rows = process_with(preset, name, seed=columns, tables=4, columns=columns, rows=6)
    _, log_det = process.chain.inverse(rows)
    for i in range(rows.shape[1]):
        point = rows[:, i : i + 1].clone().requires_grad_()
        jacobian = torch.autograd.functional.jacobian(
            lambda v: process.chain.inverse(v)[0].sum((0, 1)), point
        )  # (d, T, 1, d)
        expected = torch.linalg.slogdet(jacobian[:, :, 0].transpose(0, 1)).logabsdet
        assert torch.allclose(log_det.expand(-1, rows.shape[1])[:, i], expected, atol=1e-8)


@pytest.mark.parametrize("family", [Elu, Softplus])
def test_newton_reaches_float64_everywhere(family):
    random = randomness(0)
    shape = (50, 1, 32)
    q = torch.eye(32).double().expand(50, -1, -1)
    low, high = random.log_uniform(shape, 0.3, 3.0), random.log_uniform(shape, 0.3, 3.0)
    last = 0.05 if family is Elu else random.log_uniform(shape, 0.3, 3.0)
    layer = family(q, random.normal(shape), False, low, high, last)
    x = torch.cat([random.normal((50, 20, 32)) * s for s in (1.0, 30.0, 1e3, 1e6)], 1)
    back, _ = layer.inverse(layer.forward(x))
    assert ((back - x).abs() / (1 + x.abs())).max() < 1e-13


@pytest.mark.parametrize("d", [1, 2, 3, 7, 16, 33])
def test_rotations_are_orthogonal_and_mix(d):
    q = rotations(randomness(d), (5, 3), d, 1.0)
    assert torch.allclose(q @ q.mT, torch.eye(d).double().expand_as(q), atol=1e-13)
    if d >= 7:
        assert (q.abs() > 1e-9).double().mean() > 0.95
    still = rotations(randomness(d), (5,), d, 0.0)
    assert ((still.abs() - 1).abs() < 1e-12).sum() == 5 * d  # a permutation


@pytest.mark.parametrize("symmetric", [False, True])
def test_triangular_solves_are_exact_to_float64(symmetric):
    """The worst residual of 50 columns stays far below what an explicit float32 inverse gives."""
    random = randomness(0)
    g, centres = random.normal((3, 4, 50, 50)), random.normal((3, 4, 50))
    maps = Dense(g, centres, symmetric)
    e = random.normal((3, 10, 50))
    x = (e.unsqueeze(1) @ maps.matrix + centres.unsqueeze(2))[:, 2]
    error = (maps.whiten(x)[:, :, 2] - e).abs().max()
    assert error < 1e-6
    matrix = g @ g.mT if symmetric else g
    assert torch.allclose(maps.log_det, torch.linalg.slogdet(matrix).logabsdet, atol=1e-7)
