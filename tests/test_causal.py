"""Made-up tables with classes: the same for the same seed, learnable, drawn as real ones are."""

import numpy as np
import pytest
import torch

from tabiced import causal
from tabiced.collection import OUTLYING, outlyingness
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.pretrain import Trainer, parse


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(a, b) for name in one for a, b in zip(one[name], other[name], strict=True)
    )


def test_tables_depend_on_the_seed_alone_and_are_complete():
    made = causal.make_part(30, seed=3, part=0)
    assert same(made, causal.make_part(30, seed=3, part=0))
    first = made["made-0"][0]
    for other in (causal.make_part(1, seed=4, part=0), causal.make_part(1, seed=3, part=1)):
        (table, _), *_ = other.values()
        assert first.shape != table.shape or not np.allclose(first, table)
    widths = set()
    for normal, anomalies in made.values():
        assert len(normal) == causal.NORMAL and len(anomalies) == causal.ANOMALIES
        assert np.isfinite(normal).all() and np.isfinite(anomalies).all()
        assert (normal != normal[:1]).any(0).all()
        assert outlyingness(normal, anomalies) >= OUTLYING
        widths.add(normal.shape[1])
    assert len(widths) > 1


def test_a_pool_is_renewed_and_the_same_in_the_same_round(monkeypatch):
    monkeypatch.setattr(causal, "TOGETHER", 2)
    monkeypatch.setattr(causal, "FIRST", 2)
    monkeypatch.setattr(causal, "RENEWED", 3)
    made = causal.MadeTables(8, seed=6, jobs=2)
    pools = [made.pool(number) for number in range(3)]
    assert [list(pool) for pool in pools] == [[0, 1], [1, 2, 3, 4], [4, 5, 6, 7]]
    assert same(pools[1][3], causal.make_part(2, seed=6, part=3))
    later = causal.MadeTables(8, seed=6)  # as after an interruption
    for part, tables in later.pool(2).items():
        assert same(tables, pools[2][part])
    for one in (made, later):
        one.close()


def test_anomalies_of_broken_tables_are_the_rows_in_which_something_broke():
    graph = causal._Graph(6, torch.Generator().manual_seed(1))
    strange, broken = graph.strangeness(), graph.broken[:, 0]
    assert 0 < broken.sum() < causal.BATCH
    right = int(causal.RIGHT * causal.DRAWN)
    assert strange[broken, :right].max() < strange[broken, right:].min()
    cells = graph.shown()[broken]
    shift = (cells[:, right:].mean(1) - cells[:, :right].mean(1)).abs().amax(1)
    assert (shift > 0.25).float().mean() > 0.3  # nearly half of what breaks is shifted
    still = graph.shown()[~broken]
    assert ((still[:, right:].mean(1) - still[:, :right].mean(1)).abs() < 0.25).all()


def test_what_cannot_be_learned_and_what_is_trivial_is_left_out():
    draw = torch.Generator().manual_seed(0)
    normal = torch.randn(300, 4, generator=draw)
    same = torch.randn(80, 4, generator=draw)
    assert not causal._is_learnable(normal, same)
    assert not causal._is_learnable(normal, same + 30)
    assert causal._is_learnable(normal, same + torch.tensor([2.0, 0, 0, 0]))


def test_anomalies_inside_are_less_outlying_than_those_outside():
    draw = np.random.default_rng(0)
    normal = draw.normal(size=(400, 3))
    inside, same, outside = (scale * draw.normal(size=(80, 3)) for scale in (0.3, 1.0, 3.0))
    values = [outlyingness(normal, rows) for rows in (inside, same, outside)]
    assert values[0] < 0.2 and 0.4 < values[1] < 0.6 and values[2] > 0.85


def test_a_share_of_the_draws_goes_to_made_up_tables():
    draw = np.random.default_rng(0)

    def table(level: float) -> tuple[np.ndarray, np.ndarray]:
        return level + draw.normal(size=(200, 3)), level + draw.normal(size=(40, 3))

    real = {f"a-b-c#{i}": table(0.0) for i in range(3)} | {"a-b-d#0": table(0.0)}

    class Pool:
        def pool(self, number: int) -> dict[int, dict[str, tuple[np.ndarray, np.ndarray]]]:
            level = 1e4 if number == 0 else -1e4
            return {p + number: {f"made-{i}": table(level) for i in range(25)} for p in range(2)}

    tables = LabelledTables(real, made=Pool(), made_share=0.25)
    tasks = tables.draw(2000, 60, 40, 3, torch.Generator().manual_seed(0), dirty=False)
    share = (tasks.context.mean((1, 2)) > 1e3).float().mean()
    assert abs(share - 0.25) < 0.04
    assert normal_queries(40) == 30
    np.testing.assert_allclose(tables.share[:4].tolist(), [0.125] * 3 + [0.375], rtol=1e-5)
    tables.renew(1)  # part 1 stays, part 2 is new
    tasks = tables.draw(2000, 60, 40, 3, torch.Generator().manual_seed(0), dirty=False)
    level = tasks.context.mean((1, 2))
    assert abs((level > 1e3).float().mean() - 0.125) < 0.03
    assert abs((level < -1e3).float().mean() - 0.125) < 0.03


def test_fewer_tables_than_none_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse(["--run", "unused", "--made", "-5"])
    assert "--made -5" in capsys.readouterr().err


def test_a_run_may_learn_from_made_up_tables_alone(tmp_path):
    said = f"--run {tmp_path} --size tiny --made 8 --real-share 1 --curriculum toy --steps 2"
    said += " --row-budget 2000 --cell-budget 20000 --evaluation-tables 0 --device cpu --seed 5"
    trainer = Trainer(parse(said.split()))
    trainer.run()
    assert trainer.step == 2 and trainer.held_out is None
    part = causal.make_part(8, seed=5, part=0)
    cells = np.concatenate([np.concatenate(pair).ravel() for pair in part.values()])
    np.testing.assert_array_equal(trainer.labelled.cells.numpy(), cells)
    losses = (tmp_path / "log.csv").read_text().splitlines()
    told = dict(zip(losses[0].split(","), losses[-1].split(","), strict=True))
    assert 0 < float(told["typical"]) < 5 and told["regression"] == "nan"
