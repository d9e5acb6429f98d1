"""Made-up tables with classes: the same for the same seed, learnable, drawn as real ones are."""

import numpy as np
import torch

from tabiced import causal
from tabiced.labelled import OUTLYING, LabelledTables, normal_queries, outlyingness
from tabiced.pretrain import Trainer, parse


def test_tables_depend_on_the_seed_alone_and_are_complete():
    made = causal.make_tables(30, seed=3, jobs=1)
    again, other = causal.make_tables(26, seed=3, jobs=2), causal.make_tables(1, seed=4, jobs=1)
    for name, (normal, anomalies) in again.items():
        np.testing.assert_array_equal(normal, made[name][0])
        np.testing.assert_array_equal(anomalies, made[name][1])
    first = made["made-0"][0]
    assert first.shape != other["made-0"][0].shape or not np.allclose(first, other["made-0"][0])
    widths = set()
    for normal, anomalies in made.values():
        assert len(normal) == causal.NORMAL and len(anomalies) == causal.ANOMALIES
        assert np.isfinite(normal).all() and np.isfinite(anomalies).all()
        assert (normal != normal[:1]).any(0).all()
        assert outlyingness(normal, anomalies) >= OUTLYING
        widths.add(normal.shape[1])
    assert len(widths) > 1


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
    made = {f"made-{i}": table(1e4) for i in range(50)}
    tables = LabelledTables(real, made=made, made_share=0.25)
    tasks = tables.draw(2000, 60, 40, 3, torch.Generator().manual_seed(0), dirty=False)
    share = (tasks.context.mean((1, 2)) > 1e3).float().mean()
    assert abs(share - 0.25) < 0.04
    assert normal_queries(40) == 30
    np.testing.assert_allclose(tables.share[:4].tolist(), [0.125] * 3 + [0.375], rtol=1e-5)


def test_a_run_may_learn_from_made_up_tables_alone(tmp_path):
    said = f"--run {tmp_path} --size tiny --made 8 --real-share 1 --curriculum toy --steps 2"
    said += " --row-budget 2000 --cell-budget 20000 --evaluation-tables 0 --device cpu --seed 5"
    trainer = Trainer(parse(said.split()))
    trainer.run()
    assert trainer.step == 2 and trainer.held_out is None
    made = causal.make_tables(8, seed=5, jobs=1)
    cells = np.concatenate([np.concatenate(pair).ravel() for pair in made.values()])
    np.testing.assert_array_equal(trainer.labelled.cells.numpy(), cells)
    losses = (tmp_path / "log.csv").read_text().splitlines()
    told = dict(zip(losses[0].split(","), losses[-1].split(","), strict=True))
    assert 0 < float(told["typical"]) < 5 and told["regression"] == "nan"
