"""A warning where PyTorch has more threads than the process may use processors."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tabiced import ICED
from tabiced.model import Network, NetworkConfig

X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("usable", [1, 2])
def test_fit_warns_of_threads_without_a_processor(usable: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: usable)
    model = ICED(weights=Network(NetworkConfig.tiny()).eval(), device="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    told = [str(w.message) for w in caught if "threads" in str(w.message)]
    assert len(told) == (usable < 2)
    if told:
        assert "torch.set_num_threads(1)" in told[0] and "OMP_NUM_THREADS=1" in told[0]
        assert caught[0].filename == __file__
