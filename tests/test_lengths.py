"""Scripts that look at what labelled tables teach (pretraining/lengths.py, surrogate.py)."""

import numpy as np
import torch

from tabiced.collection import Rule, write_collection
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.weights import save_network
from tests_support import pretraining_script, random_network

lengths, surrogate = map(pretraining_script, ("lengths", "surrogate"))


def tables(far):
    """Return labelled tables whose anomalies lie so far off."""
    draw = np.random.default_rng(0)
    label = np.repeat([0.0, 1.0], [150, 30])
    cells = np.c_[draw.normal(size=(180, 4)) + far * label[:, None], label]
    return {f"t{i}": (cells, [Rule(4, (0.0, 0.0), (0.0, 0.0))]) for i in range(9)}


def test_networks_are_told_by_length_each_with_both_settings(tmp_path, monkeypatch, capsys):
    write_collection(tmp_path / "tables.npz.xz", tables(6.0))
    cards = [tmp_path / name / "network.json" for name in ("one", "other")]
    for seed, card in enumerate(cards):
        card.parent.mkdir()
        save_network(random_network(seed), card)
    monkeypatch.setattr(lengths, "SHAPES", ((40, 3), (90, 4)))
    said = ["", "--collection", tmp_path / "tables.npz.xz", "--tables", 3, "--weights", *cards]
    monkeypatch.setattr("sys.argv", list(map(str, said)))
    lengths.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" rows")[0] for line in lines] == ["40", "40", "90", "90"]
    assert [line.split()[-1] for line in lines] == list(map(str, cards * 2))
    told = [line.split("columns: ")[1].split()[0] for line in lines]
    assert told[0] != told[1] and all(0 <= float(value) <= 100 for value in told)


def test_statistics_of_labelled_rows_tell_anomalies_that_lie_far_off():
    rows = {name: (cells[:150, :4], cells[150:, :4]) for name, (cells, _) in tables(6.0).items()}
    features, normal = surrogate.draw_real(LabelledTables(rows), (40, 100), 96, seed=0)
    assert features.shape[:2] == normal.shape == (96, surrogate.QUERIES)
    assert int(normal[0].sum()) == normal_queries(surrogate.QUERIES)
    network = surrogate.train(features, normal, seed=0, real=True)
    with torch.no_grad():
        energy = network(features).squeeze(-1)
    assert (energy[normal == 1].mean() - energy[normal == 0].mean()) > 1
