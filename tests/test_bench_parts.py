"""Variants of a score are what an estimator with such a scoring returns."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest

from tabiced import ICED
from tabiced.bench import parts
from tabiced.bench.summary import parts_lines, parts_means
from tabiced.bench.tasks import Data
from tabiced.contexts import network_on


@pytest.fixture(scope="module")
def data() -> Data:
    draw = np.random.default_rng(0)
    context = draw.normal(size=(60, 4))
    context = np.r_[context, context[:20]]  # copies, so that they tell something
    query = np.r_[2 * draw.normal(size=(20, 4)), context[:5]]
    return Data(context, query, (np.arange(25) < 20).astype(int))


@pytest.fixture(scope="module")
def found(data: Data) -> dict[str, np.ndarray]:
    return parts.scores(data, seed=3)


def test_there_is_a_variant_for_every_part(found):
    shipped = network_on(None, "cpu").scoring
    assert set(found) == set(parts.VARIANTS)
    assert set(parts.PARTS) == set(shipped.shares)
    assert all(share > 0 for share in shipped.shares.values())


def test_the_page_tells_the_shares_of_the_shipped_card():
    page = (Path(__file__).parent.parent / "docs" / "estimator.md").read_text()
    told = [int(part) / int(whole) for part, whole in re.findall(r"\| (\d+)/(\d+) \|", page)]
    shipped = network_on(None, "cpu").scoring
    assert told == pytest.approx(list(shipped.shares.values()), abs=1e-3)


# An estimator that gives nothing for copies also leaves them out of contexts: other parts.
@pytest.mark.parametrize("name", sorted(parts.VARIANTS.keys() - {"without-copies"}))
def test_a_variant_is_an_estimator_with_that_scoring(data, found, name):
    network = copy.copy(network_on(None, "cpu"))
    network.scoring = parts.VARIANTS[name].changed(network.scoring)
    model = ICED(random_state=3, weights=network).fit(data.context)
    np.testing.assert_allclose(found[name], model.score_samples(data.query), atol=1e-9)
    assert name == parts.DEFAULT or not np.allclose(found[name], found[parts.DEFAULT], atol=1e-3)


def test_means_are_of_the_asked_weights_in_a_fixed_order(tmp_path):
    store = parts.open_results(tmp_path / "parts.csv")
    for variant, value in (("pairs-alone", 0.6), ("default", 0.8)):
        for dataset, more in (("a", 0.0), ("b", 0.1)):
            for weights, bonus in (("mine", 0.0), ("old", 0.05)):
                key = {"bench": "odd", "dataset": dataset, "setting": "clean"}
                row = {**key, "variant": variant, "weights": weights, "average_precision": 0}
                store.add({**row, "auroc": value + more + bonus})
    means = parts_means(store.rows(), "mine")
    assert [(name, round(m["clean"])) for name, m in means.items()] == [
        ("default", 85),
        ("pairs-alone", 65),
    ]
    assert "85.00" in "\n".join(parts_lines(store.rows(), "mine"))
