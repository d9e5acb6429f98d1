"""Weights on disk: round trip, refusal of damaged or wrong files."""

import json

import pytest
import torch

from tabiced.weights import SHIPPED, WeightsError, checksums, load_network, read_card, save_network
from tests_support import mixed_table, random_network


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "net.json"
    save_network(random_network(), path, note="a test")
    return path


def test_round_trip_keeps_energies_to_16_bit(card):
    x = mixed_table(rows=40)
    network = load_network(card)
    expected = random_network()
    a = network.energy(network.read(x[:, :30]), x[:, 30:])
    b = expected.energy(expected.read(x[:, :30]), x[:, 30:])
    torch.testing.assert_close(a, b, atol=0.05, rtol=0.01)
    assert read_card(card)["note"] == "a test"
    assert not network.training and not any(p.requires_grad for p in network.parameters())


def test_weights_are_split_into_files_of_limited_size(tmp_path, monkeypatch):
    monkeypatch.setattr("tabiced.weights.FILE_BYTES", 20_000)
    path = tmp_path / "net.json"
    save_network(random_network(), path)
    files = read_card(path)["sha256"]
    assert len(files) > 3
    load_network(path)


def test_corrupted_weights_are_refused(card):
    part = card.with_name("net-1.safetensors")
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(WeightsError, match=r"net-1\.safetensors is damaged"):
        load_network(card)


def test_missing_and_foreign_files_are_refused(card, tmp_path):
    with pytest.raises(WeightsError, match="does not exist"):
        load_network(tmp_path / "absent.json")
    text = tmp_path / "text.json"
    text.write_text("hello")
    with pytest.raises(WeightsError, match="not a weights card"):
        load_network(text)
    fields = json.loads(card.read_text())
    fields["architecture"]["layers"] += 1
    card.write_text(json.dumps(fields))
    with pytest.raises(WeightsError, match="does not fit this version"):
        load_network(card)
    card.with_name("net-1.safetensors").unlink()
    with pytest.raises(WeightsError, match="not beside it"):
        load_network(card)


def test_shipped_weights_load_and_tell_where_they_come_from():
    network = load_network()
    assert network.config.width == 512 and network.config.layers == 12
    facts = read_card()
    assert facts["gpu_minutes"] > 0 and facts["tables"] > 100_000
    assert set(checksums(facts)) == {p.name for p in SHIPPED.parent.glob("*.safetensors")}
    assert network.scorer is not None and network.scorer.config == network.config
