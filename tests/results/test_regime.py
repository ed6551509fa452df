"""The regime of the papers, and equal numbers of triplets: who learns from what, and what tables say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.quality.bench.sets import RawSet, unit
from tests.results import cells, curves, equal, regime
from tests.results.cells import Cell, Row, path_of
from tests.results.curves import ONCE
from tests.results.data import UNKNOWN, Task
from tests.results.judge import DEPTH
from tests.results.regime import NEVER
from tests.results.systems import validate


def small(classes: int = 6, each: int = 30) -> RawSet:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, 12))
    return RawSet("small", {"x": unit(centres[labels] + rng.normal(size=(len(labels), 12)))}, labels)


def test_each_class_has_its_number_of_objects_in_each_part_and_those_judged_are_hidden() -> None:
    task = regime.task_of(small(), 0, 4, (12, 5, 8))
    for rows, each in zip(
        (task.parts.train, task.parts.validation, task.parts.test), (12, 5, 8), strict=True
    ):
        assert sorted(np.bincount(task.truth[rows])[np.unique(task.truth)].tolist()) == [each] * 4
    assert set(task.labels[task.parts.test]) == {UNKNOWN}
    assert UNKNOWN not in task.labels[task.parts.validation]


def test_projections_are_told_apart_and_the_table_says_how_many_splits_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    monkeypatch.setattr(regime, "PICTURE", tmp_path / "drawn.svg")
    monkeypatch.setattr(regime, "load", lambda _: small())
    monkeypatch.setattr(regime, "sizes_of", lambda _: (6, (12, 5, 8)))
    assert list(regime.lines()) == []
    short, never = (1_000, 6_000), []
    for seed in range(2):
        found = curves.measure("regime", "photos", seed, lambda name, seed: regime.regime(name, seed, short))
        assert found["never"][0] == found["every 5,000"][0] != found["every 1,000"][0]
        assert found["every 5,000"][1] != found["never"][1] != found[ONCE][1]
        never.append(found[NEVER])
    text = "\n".join(regime.lines())
    first, last = (f"{mean:.3f}" for mean in np.mean(never, axis=0))
    assert re.search(rf"\| 1,000 \| 6,000 \|\n.*\n\| never \| \W*{first}\W* \| \W*{last}\W* \|", text)
    made = {
        "counts": [4_000, 64_000, 1_000_000],
        ONCE: [0.4, 0.5, 0.49],
        NEVER: [0.4, 0.5, 0.45],
        "stop": 4_000,
    }
    made |= {"every 1,000": [0.4, 0.5, 0.47], "every 5,000": [0.4, 0.5, 0.47]}
    for path in tmp_path.glob("regime-photos-*.json"):
        path.write_text(json.dumps({"version": curves.VERSION, **made}))
    text = "\n".join(regime.lines())
    assert "| never | 0.400 | **0.500** | 0.450 |" in text
    assert "highest after 64,000, 64,000 triplets and end 0.050 ± 0.000 below that" in text
    assert "once after is ahead of every 1,000 in 2 of 2 splits (+0.020)" in text
    assert (tmp_path / "drawn.svg").exists()


def test_every_number_of_triplets_has_its_own_best_setting() -> None:
    task = Task(small(), 0)
    found = equal.distances("small", 0, (500, 4_000), task)
    for name, (grid, make, scored) in equal.GRIDS.items():
        every = []
        for setting in grid:
            learner = make(task.space, setting)
            learner.learn_many(*(task.space.rows(rows) for rows in task.triplets[:, :500]))
            scores = scored(learner, task.space)[0]
            every.append((validate(task, scores), curves.of_test(task, scores), setting))
        best = found[name][0]
        assert (best["validation"], best["map"], best["setting"]) == pytest.approx(max(every))
        assert len(found[name]) == len(found[f"{name}, served"]) == 2


def test_kernels_are_compared_on_seeds_that_all_rows_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    monkeypatch.setattr(cells, "CACHE", tmp_path)
    assert list(equal.lines()) == []
    for system in equal.KERNEL_SYSTEMS:
        for seed in range(3 if equal.FEW in system.rows else 2):
            row = Row(0.1 * (1 + seed), 0, [0.0] * DEPTH, {}, 0.5)
            cell = Cell(dict.fromkeys(system.rows, row), edition=system.edition)
            cell.write(path_of("fashion", system.name, seed))
    text = list(equal._kernel_table())
    assert "| row | fashion (splits: 2) |" in text
    assert f"| {equal.FEW} | 0.150 ± 0.071 |" in text
