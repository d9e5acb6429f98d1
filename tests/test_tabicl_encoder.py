"""The paper's encoder: the same tokens as TabICL's, the network's laws, checkpoints, training."""

import pickle
import subprocess
import sys

import pytest
import torch

from tabiced.evaluation import Suite
from tabiced.model import Network, NetworkConfig
from tabiced.pretrain import TERMS, Trainer, parse
from tabiced.weights import WeightsError, load_network, read_card, save_network
from tests_support import mixed_table

pytest.importorskip("tabicl")

from tabicl._model import InferenceConfig, TabICL

from tabiced.tabicl_encoder import (
    SETTINGS,
    TINY,
    checkpoint_config,
    load_checkpoint,
    tabicl_config,
)

TOLERANCE = 2e-5  # float32 rounding through all layers
TOY = (
    "--size tiny --encoder tabicl --curriculum toy --evaluation-tables 0 --row-budget 300 "
    "--log-every 1e9 --device cpu"
)


def randomised(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give every weight a value that matters; a fresh network starts with silent layers."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.requires_grad and "rope" not in name:
                gain = p.ndim == 1 and name.endswith("weight")
                p.copy_(torch.randn(p.shape, generator=g) * (0.3 if p.ndim > 1 else 0.1) + gain)
    return module


def tiny_network(**settings: object) -> Network:
    network = randomised(Network(tabicl_config(NetworkConfig.tiny(), **TINY | settings))).eval()
    with torch.no_grad():
        network.level_head[-1].weight.mul_(0.05)  # else percentiles are too large to compare
    return network.requires_grad_(False)


def tiny_tabicl(**changes: object) -> TabICL:
    """Return a whole model of the package, with its own predictor."""
    settings = {"embed_dim": 16, "icl_num_blocks": 1, **SETTINGS, **TINY, **changes}
    return randomised(TabICL(**settings), seed=1)


def write_checkpoint(path, **changes: object) -> TabICL:
    model = tiny_tabicl(**changes)
    config = {"embed_dim": 16, "icl_num_blocks": 1, **SETTINGS, **TINY, **changes}
    torch.save({"config": config, "state_dict": model.state_dict(), "curr_step": 7}, path)
    return model


def trainer(folder, *more: object) -> Trainer:
    return Trainer(parse(["--run", str(folder), *TOY.split(), *map(str, more)]))


@pytest.fixture(scope="module")
def network() -> Network:
    return tiny_network()


@pytest.fixture(scope="module")
def table() -> tuple[torch.Tensor, torch.Tensor]:
    x = mixed_table(rows=60)
    return x[:, :45], x[:, 45:]


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_classes": 0, "bias_free_ln": True},
        {"row_rope_interleaved": True, "col_target_aware": False, "col_feature_group": False},
    ],
    ids=["classifier", "regressor", "other settings"],
)
def test_tokens_equal_those_of_the_package(training, changes):
    model = tiny_tabicl(**changes).train(training)
    network = tiny_network(**changes)
    network.encoder.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.startswith(("icl", "quantile"))}
    )
    g = torch.Generator().manual_seed(2)
    x = 1.5 * torch.rand(3, 50, 7, generator=g) - 0.7
    low, high = x[:, :40].amin(1, keepdim=True), x[:, :40].amax(1, keepdim=True)
    scaled = 2 * (x - low) / (high - low) - 1
    with torch.no_grad():
        precise = {**InferenceConfig().COL_CONFIG, "use_amp": False}
        cells = model.col_embedder(scaled, y_train=torch.zeros(3, 40), mgr_config=precise)
        expected = model.row_interactor(cells, mgr_config=precise)
        memory, places = [], torch.arange(7).expand(3, 7)
        context = network.encoder(x[:, :40], places, memory)
        query = network.encoder(x[:, 40:], places, memory)
    assert expected.std() > 0.1
    torch.testing.assert_close(torch.cat([context, query], 1), expected, atol=1e-5, rtol=0)


def test_missing_cells_count_as_the_mean_of_their_column(network, table):
    context, query = table
    filled = torch.where(context.isnan(), context.nanmean(1, keepdim=True), context)
    hidden, known = query.clone(), query.clone()
    hidden[:, :4, 1], known[:, :4, 1] = torch.nan, context[:, :, 1].mean(1, keepdim=True)
    torch.testing.assert_close(
        network.encoder(context, torch.arange(5).expand(2, 5), []),
        network.encoder(filled, torch.arange(5).expand(2, 5), []),
        atol=TOLERANCE,
        rtol=0,
    )
    cache = network.read(context)
    torch.testing.assert_close(
        network.energy(cache, hidden), network.energy(cache, known), atol=TOLERANCE, rtol=0
    )


def test_rows_and_tables_are_scored_independently_of_each_other(network, table):
    context, query = table
    cache = network.read(context)
    together = network.energy(cache, query)
    assert together.std() > 0.01
    rows = [network.energy(cache, query[:, i : i + 1]) for i in range(query.shape[1])]
    torch.testing.assert_close(together, torch.cat(rows, 1), atol=TOLERANCE, rtol=0)
    tables = [network.energy(network.read(context[i : i + 1]), query[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(together, torch.cat(tables), atol=TOLERANCE, rtol=0)


def test_cache_equals_no_cache_and_training_in_one_go(network, table):
    context, query = table
    cache = network.read(context)
    network.energy(cache, query + 1)  # an earlier query leaves no trace
    energy = network.energy(cache, query)
    again = network.energy(network.read(context), query)
    torch.testing.assert_close(energy, again, atol=0, rtol=0)
    described = cache.description
    judged, found, level = network.judge_all(
        described.context, described(query), cache.names, judged=7
    )
    torch.testing.assert_close(found, energy, atol=TOLERANCE, rtol=0)
    assert judged.shape == (2, 7)
    torch.testing.assert_close(
        network.percentiles(described, level), cache.percentiles, atol=TOLERANCE, rtol=TOLERANCE
    )


def test_the_reported_size_includes_what_is_kept_of_the_columns(network, table):
    c, columns = network.config, table[0].shape[-1]
    layers = 2 * 2 * 45 * c.layers * c.width * 4
    inducing = 2 * 2 * columns * TINY["col_num_blocks"] * TINY["col_num_inds"] * c.cell_width * 4
    scale = 3 * 2 * columns * 8
    assert network.read(table[0]).nbytes == layers + inducing + scale


def test_order_of_rows_and_columns_and_units_do_not_matter(network, table):
    context, query = table
    expected = network.energy(network.read(context), query)
    shuffled = context[:, torch.randperm(45, generator=torch.Generator().manual_seed(0))]
    order = [3, 0, 4, 2, 1]
    scale = torch.tensor([3.0, 0.01, 2.0, 100.0, 7.0], dtype=torch.float64)
    changed = [
        (shuffled, query),
        (context[..., order], query[..., order]),
        (context * scale + 5, query * scale + 5),
    ]
    for other, rows in changed:
        found = network.energy(network.read(other), rows)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    places = torch.randperm(128, generator=torch.Generator().manual_seed(3))
    view = network.energy(network.read(context, order=places), query)
    assert (view - expected).abs().max() > 1e-3


def test_units_shift_the_log_density(network, table):
    scale = torch.tensor([3.0, 0.01, 2.0, 100.0, 7.0], dtype=torch.float64)
    one, other = network.read(table[0]), network.read(table[0] * scale)
    shift = (one.percentiles - other.percentiles).double()
    torch.testing.assert_close(shift, scale.log().sum().expand(2, 2), atol=2e-3, rtol=0)


def test_energy_has_the_right_gradient_also_after_scoring(table):
    network = tiny_network(
        row_rope_interleaved=True
    )  # the kind that keeps tensors of earlier calls
    context, query = table[0][:1], table[1][:1, :8].nan_to_num(0.3).clone()
    with torch.no_grad():
        cache = network.read(context)
    with torch.inference_mode():
        network.energy(cache, query)
    query.requires_grad_()
    (gradient,) = torch.autograd.grad(network.energy(cache, query).sum(), query)
    bump = torch.zeros_like(query)
    bump[..., 4] = 1e-3
    with torch.no_grad():
        slope = (network.energy(cache, query + bump) - network.energy(cache, query - bump)) / 2e-3
    torch.testing.assert_close(slope.double(), gradient[..., 4], atol=0.02, rtol=0.05)
    assert gradient[..., 4].abs().max() > 0.02


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 1), (30, 1), (5, 12)])
def test_any_shape_gives_finite_energies(network, rows, columns):
    context = torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(rows))
    query = torch.tensor([0.0, 1e30, -99.0, torch.nan])[None, :, None].expand(1, 4, columns)
    for told in (context, torch.ones_like(context), torch.full_like(context, torch.nan)):
        energy = network.energy(network.read(told), query)
        assert energy.shape == (1, 4) and energy.isfinite().all()


def test_long_contexts_are_read_in_parts(network, table, monkeypatch):
    context, query = table
    expected = network.energy(network.read(context), query)
    monkeypatch.setattr("tabiced.tabicl_encoder.CELLS_AT_ONCE", 3 * 45)
    with torch.no_grad():
        found = network.energy(network.read(context), query)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def test_size_of_the_paper_s_architecture():
    network = Network(NetworkConfig(encoder="tabicl"))
    assert network.config.width == 512 and len(network.blocks) == 12
    assert 1.2e6 < sum(p.numel() for p in network.encoder.parameters()) < 1.35e6


def test_saved_and_loaded_it_gives_the_same_energies(network, table, tmp_path):
    save_network(network, tmp_path / "net.json")
    assert read_card(tmp_path / "net.json")["architecture"]["encoder"] == "tabicl"
    found = load_network(tmp_path / "net.json")
    assert found.config == network.config
    a, b = (n.energy(n.read(table[0]), table[1]) for n in (network, found))
    torch.testing.assert_close(a, b, atol=0.05, rtol=0.01)
    for name, tensor in network.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor.half().float())


def test_a_card_without_the_key_means_cells_and_an_unknown_encoder_is_refused(tmp_path):
    path = tmp_path / "net.json"
    save_network(Network(NetworkConfig.tiny()), path)
    text = path.read_text()
    path.write_text(text.replace('"encoder": "cells",', "").replace(', "encoder_settings": {}', ""))
    assert load_network(path).config == NetworkConfig.tiny()
    other = tmp_path / "other.json"
    other.write_text(text.replace('"cells"', '"words"'))
    with pytest.raises(WeightsError, match="no encoder 'words'"):
        load_network(other)


def test_a_checkpoint_of_the_package_is_loaded_whole(tmp_path):
    model = write_checkpoint(tmp_path / "a.ckpt", max_classes=0, num_quantiles=9)
    config = checkpoint_config(tmp_path / "a.ckpt", NetworkConfig.tiny())
    assert config.cell_width == 16 and config.encoder_settings["max_classes"] == 0
    network = Network(config)
    told = load_checkpoint(network, tmp_path / "a.ckpt")
    theirs, ours = model.state_dict(), network.encoder.state_dict()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name])
    assert all(
        name.startswith(("icl_predictor.", "quantile_dist.")) for name in theirs - ours.keys()
    )
    assert f"{len(ours)} tensors" in told and "a.ckpt" in told


class Harmful:
    def __reduce__(self):
        return (print, ("executed",))


def test_wrong_checkpoints_are_refused_in_one_line(tmp_path, capsys):
    model = write_checkpoint(tmp_path / "good.ckpt")
    good = torch.load(tmp_path / "good.ckpt", weights_only=True)
    state = model.state_dict()
    absent = {k: v for k, v in state.items() if "cls_tokens" not in k}
    wide = {**state, "row_interactor.cls_tokens": torch.zeros(4, 17)}
    variants = {
        "lacks row_interactor.cls_tokens": {**good, "state_dict": absent},
        "like col_embedder.extra": {
            **good,
            "state_dict": {**state, "col_embedder.extra": state["icl_predictor.ln.weight"]},
        },
        "like third.weight": {**good, "state_dict": {**state, "third.weight": torch.ones(1)}},
        "size mismatch for row_interactor.cls_tokens": {**good, "state_dict": wide},
        "setting 'col_flavour'": {**good, "config": {**good["config"], "col_flavour": 1}},
        "first TabICL": {**good, "config": {**good["config"], "col_affine": True}},
        "no 'config' and 'state_dict'": state,
    }
    for i, (message, content) in enumerate(variants.items()):
        torch.save(content, tmp_path / f"{i}.ckpt")
        with pytest.raises(WeightsError, match=message) as caught:
            trainer(tmp_path / "run", "--init-encoder", tmp_path / f"{i}.ckpt")
        assert "\n" not in str(caught.value)
    (tmp_path / "text.ckpt").write_text("hello")
    (tmp_path / "empty.ckpt").write_bytes(b"")
    (tmp_path / "harmful.ckpt").write_bytes(pickle.dumps(Harmful(), protocol=2))
    torch.save({"config": Harmful(), "state_dict": {}}, tmp_path / "zip.ckpt")
    for name in ("text", "empty", "harmful", "zip"):
        with pytest.raises(WeightsError, match="is not a TabICLv2 checkpoint") as caught:
            checkpoint_config(tmp_path / f"{name}.ckpt", NetworkConfig())
        assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out
    with pytest.raises(WeightsError, match="does not exist"):
        checkpoint_config(tmp_path / "no.ckpt", NetworkConfig())
    with pytest.raises(WeightsError, match="goes with --encoder tabicl"):
        trainer(tmp_path, "--encoder", "cells", "--init-encoder", tmp_path / "good.ckpt")
    assert not (tmp_path / "run").exists()


def test_training_from_a_checkpoint_lowers_the_loss_and_moves_the_encoder(tmp_path):
    write_checkpoint(tmp_path / "start.ckpt")
    rates = ("--muon-rate", 3e-3, "--adam-rate", 3e-3)
    learner = trainer(tmp_path, "--init-encoder", tmp_path / "start.ckpt", "--steps", 1000, *rates)
    start = {k: v.clone() for k, v in learner.network.encoder.state_dict().items()}
    batches = [learner.feed.next(0.0) for _ in range(4)]

    def losses():
        return torch.stack([learner.backward(batch) for batch in batches]).mean(0)

    before = losses()
    for learner.step in range(20, 60):  # past the warm-up
        learner.train_step(batches[learner.step % 4])
    fallen = dict(zip(TERMS, (losses() / before).tolist(), strict=False))
    assert fallen["total"] < 0.8 and fallen["ranking"] < 0.95
    for name, tensor in learner.network.encoder.state_dict().items():
        assert torch.equal(tensor, start[name]) == ("rope" in name), name


def test_a_run_is_saved_resumed_evaluated_and_started_from(tmp_path):
    first = trainer(tmp_path / "a", "--steps", 2)
    first.run()
    resumed = trainer(tmp_path / "a", "--steps", 2)
    assert resumed.step == 2
    for p, q in zip(resumed.network.parameters(), first.network.parameters(), strict=True):
        assert torch.equal(p, q)
    card = tmp_path / "a" / "network.json"
    second = trainer(tmp_path / "b", "--encoder", "cells", "--init", card)
    for p, q in zip(second.network.parameters(), load_network(card).parameters(), strict=True):
        assert torch.equal(p, q)
    accuracy = Suite(second.network, tables=1, context_rows=30, queries=9).accuracy(second.network)
    assert all(0 <= value <= 1 for value in accuracy.values())


def test_the_extra_is_named_where_it_is_missing():
    code = (
        "import sys\nsys.modules['tabicl'] = None\n"
        "from tabiced.model import Network, NetworkConfig\n"
        "try:\n    Network(NetworkConfig(encoder='tabicl'))\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tabiced[tabicl]'" in done.stdout
