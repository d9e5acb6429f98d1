"""Adapters of other projects' models: with random weights, offline, and absent without a crash."""

import socket
import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch

from tabiced.bench import adbench, foundation
from tabiced.bench.command import main
from tabiced.bench.page import page_text
from tabiced.bench.results import read_csv

TINY_TABICL = {
    **{"embed_dim": 16, "row_num_cls": 2, "zero_init": False, "col_num_inds": 4},
    **{"col_num_blocks": 1, "row_num_blocks": 1, "icl_num_blocks": 1},
    **{"col_nhead": 2, "row_nhead": 2, "icl_nhead": 2},
}
TINY_TABPFN = {
    **{"max_num_classes": 10, "num_buckets": 100, "embed_dim": 16, "nlayers": 1},
    **{"dist_embed_num_blocks": 1, "dist_embed_num_heads": 2},
    **{"dist_embed_num_inducing_points": 4, "feat_agg_num_blocks": 1, "feat_agg_num_heads": 2},
    **{"feat_agg_num_cls_tokens": 2, "icl_num_heads": 2},
    **{"decoder_head_dim": 8, "decoder_num_heads": 2, "fourier_encoding_num_frequencies": 4},
}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Let nothing reach the network, and find no weights but those a test makes."""

    def refuse(*_):
        raise AssertionError("a model asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for variable in {*foundation.FOLDERS.values(), "HF_HUB_OFFLINE", "TABPFN_DISABLE_TELEMETRY"}:
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.setattr(foundation, "PASSES", {"TabICL": 2, "TabPFN": 2})
    monkeypatch.setattr(foundation, "ORDERS", {"TabICL": 2, "TabPFN": 2})


def tabicl_weights(folder):
    tabicl = pytest.importorskip("tabicl")
    network = pytest.importorskip("tabicl._model.tabicl").TabICL
    for kind, sizes in (
        (tabicl.TabICLClassifier, {"max_classes": 10}),
        (tabicl.TabICLRegressor, {"max_classes": 0, "num_quantiles": 99}),
    ):
        config = TINY_TABICL | sizes
        torch.manual_seed(0)
        parts = {"config": config, "state_dict": network(**config).state_dict()}
        torch.save(parts, folder / kind().checkpoint_version)


def tabpfn_weights(folder):
    pytest.importorskip("tabpfn_extensions")
    architecture = pytest.importorskip("tabpfn.architectures").ARCHITECTURES["tabpfn_v3_5"]
    from tabpfn.checkpoint import save_as_safetensors
    from tabpfn.inference_config import InferenceConfig
    from tabpfn.preprocessing.configs import PreprocessorConfig

    torch.manual_seed(0)
    network = architecture.get_architecture(architecture.parse_config(TINY_TABPFN)[0])
    plain = InferenceConfig(PREPROCESS_TRANSFORMS=[PreprocessorConfig(name="none")])
    parts = {"state_dict": network.state_dict(), "config": TINY_TABPFN}
    name = foundation._tabpfn_cache()["regressor"].name
    save_as_safetensors(
        {**parts, "architecture_name": "tabpfn_v3_5", "inference_config": asdict(plain)},
        folder / name,
    )


def tabebm_weights(folder):
    pytest.importorskip("tabebm")
    architecture = pytest.importorskip("tabpfn.architectures").ARCHITECTURES["tabpfn_v2"]
    config = {"max_num_classes": 10, "num_buckets": 100, "emsize": 16, "nlayers": 1, "nhead": 2}
    torch.manual_seed(0)
    network = architecture.get_architecture(architecture.parse_config(config)[0])
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    parts = {"state_dict": network.state_dict(), "config": config}
    torch.save(parts, folder / foundation._tabebm_cache()["classifier"].name)


WRITERS = {"TabICL": tabicl_weights, "TabPFN": tabpfn_weights, "TabEBM": tabebm_weights}


@pytest.fixture
def ready(request, monkeypatch, tmp_path):
    """Make tiny random weights for a model and return the method."""
    WRITERS[request.param](tmp_path)
    monkeypatch.setenv(foundation.FOLDERS[request.param], str(tmp_path))
    return foundation.method(request.param)


def rows():
    """Return numbers, three levels that are not whole numbers, and a constant."""
    draw = np.random.default_rng(0)
    levels = draw.integers(0, 3, 60) / 2
    return np.column_stack([draw.normal(size=(60, 2)), levels, np.full(60, 0.3)])


@pytest.mark.parametrize("ready", foundation.NAMES, indirect=True)
def test_models_score_repeatably_and_leave_the_generators_alone(ready):
    context = rows()
    query = np.concatenate([context[:8], 50 * context[:2]])
    query[0, 2] = 7  # a level the context lacks
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    score = ready.score(context, query, 0)
    assert score.shape == (10,) and np.isfinite(score).all() and len(set(score)) > 5
    assert np.array_equal(score, ready.score(context, query, 0))
    assert not np.array_equal(score, ready.score(context, query, 1))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


@pytest.mark.parametrize("ready", ["TabICL"], indirect=True)
def test_tabicl_is_compared_by_the_logarithm_of_its_density(ready, tmp_path):
    from tabicl import TabICLUnsupervised

    class Local(TabICLUnsupervised):
        def _load_shared_model(self, estimator_cls):
            self.estimator_params = {"model_path": tmp_path / estimator_cls().checkpoint_version}
            return super()._load_shared_model(estimator_cls)

    context = rows()[:, :2]
    theirs = Local(n_estimators=2, random_state=3, device="cpu").fit(context)
    density = theirs.score_samples(context[:5], n_permutations=2)
    np.testing.assert_allclose(ready.score(context, context[:5], 3), np.log(density), rtol=1e-5)
    # Their density of such rows is 0, so that all of them would be equal.
    far = np.array([[1e200], [1e250]]) ** 0.15 * context[:1]
    assert len(set(ready.score(context, far, 0))) == 2


@pytest.mark.parametrize("ready", ["TabPFN"], indirect=True)
def test_tabpfn_gets_levels_by_number(ready):
    context, query = foundation._coded(rows(), np.array([[0, 0, 0.5, 0.3], [0, 0, 9, 0.3]]), [2])
    assert set(context[:, 2]) == {0, 1, 2} and query[:, 2].tolist() == [1, 3]


@pytest.mark.parametrize("ready", ["TabEBM"], indirect=True)
def test_energies_of_tabebm_are_those_of_its_classifier(ready):
    with pytest.raises(ValueError, match="two columns"):
        ready.score(rows()[:, :1], rows()[:3, :1], 0)
    ebm = foundation._tabebm_class()
    logits = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    assert torch.allclose(-ebm.compute_energy(logits), torch.logsumexp(logits, 1))


def test_a_missing_package_is_the_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "tabicl", None)
    with pytest.raises(foundation.Unavailable, match=r"^package not installed \(tabicl\)$"):
        foundation.method("TabICL")


def test_missing_weights_are_the_reason_and_nothing_is_made():
    pytest.importorskip("tabicl")
    reason = foundation.unavailable("TabICL")
    assert reason.startswith("weights not available (tabicl-classifier-")


@pytest.fixture
def tables(tmp_path):
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(40, 2)), (np.arange(40) < 8).astype(int)
    folder = tmp_path / "tables"
    folder.mkdir()
    np.savez(folder / "14_glass.npz", X=X + 3 * y[:, None], y=y)
    return folder


def test_a_command_stores_reasons_for_the_page_and_takes_them_back(
    tables, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("tabicl")
    out = tmp_path / "results" / "adbench.csv"
    command = ["adbench", "--data", str(tables), "--out", str(out), "--quiet", "--no-resample"]
    main([*command, "--methods", "TabICL"])
    assert "TabICL cannot run: weights not available" in capsys.readouterr().out
    assert not out.exists()
    (row,) = read_csv(out.parent / "unavailable.csv")
    line = f"- TabICL did not run (adbench): {row['reason']}."
    assert line in page_text(out.parent, "shipped").splitlines()

    tabicl_weights(tmp_path)
    monkeypatch.setenv(foundation.FOLDERS["TabICL"], str(tmp_path))
    main([*command, "--methods", "TabICL", "--seeds", "0", "--settings", "ood"])
    assert [row["method"] for row in adbench.open_results(out).rows()] == ["TabICL"]
    assert read_csv(out.parent / "unavailable.csv") == []
    assert "TabICL did not run" not in page_text(out.parent, "shipped")
