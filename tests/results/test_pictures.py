"""The studies behind the pictures: what is hidden from learning, and how what was kept becomes tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.quality.bench.sets import RawSet, unit
from tests.results import curves, pictures
from tests.results.data import Task
from tests.results.systems import bilinear

CLASSES, EACH = 6, 40


def small(name: str, seed: int) -> Task:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(CLASSES), EACH)
    centres = rng.normal(size=(CLASSES, 12))
    return Task(RawSet("small", {"x": unit(centres[labels] + rng.normal(size=(len(labels), 12)))}, labels), 0)


def test_classes_that_are_never_seen_are_in_no_triplet(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[np.ndarray[Any, Any]] = []

    def trained(task: Task, *_: Any) -> dict[str, Any]:
        taken.append(np.unique(task.labels[task.triplets]))
        scores = bilinear(task.X)
        return {row: curves_fit(scores) for row in (curves.RAW, curves.PLAIN, curves.SERVED, curves.SOFTMAX)}

    def curves_fit(scores: Any) -> Any:
        return type("Fit", (), {"scores": staticmethod(scores)})

    monkeypatch.setattr(curves, "new_task", small)
    monkeypatch.setattr(curves, "trained", trained)
    found = curves.unseen("small", 0)
    assert [len(one) for one in taken] == [CLASSES // 2] * 2
    assert found[curves.RIDGE]["seen"] > found[curves.RIDGE]["unseen"]
    assert found[curves.RAW] == found[curves.COSINE]


def test_fewer_objects_are_a_part_of_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "new_task", small)
    monkeypatch.setattr(curves, "SIZES", (30, 60))
    monkeypatch.setattr(curves, "MOST_TRIPLETS", 5_000)
    found = curves.sizes("small", 0)
    assert found["objects"] == [30, 60, len(small("", 0).parts.train)]
    assert found["map"][-1] > found["map"][0]


def test_tables_are_means_of_the_seeds_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    monkeypatch.setattr(pictures, "PICTURE", tmp_path / "drawn.svg")
    assert list(pictures.lines()) == []
    for study, names in curves.SETS_OF.items():
        for name in names:
            for seed in (0, 1):
                path = tmp_path / f"{study}-{name}-{seed}.json"
                path.write_text(json.dumps({"version": curves.VERSION, **made_up(study, 0.4 + 0.2 * seed)}))
    told = "\n".join(pictures.lines())
    assert "--sections pictures --seeds 2 --write`; means of 2 seeds." in told
    assert "| photos | 0.500 (0.500) | 0.500 (0.500)" in told
    assert "| OASIS-Con | 0.500 | 0.500 |" in told
    assert "| never | 0.500 |" in told
    assert (tmp_path / "drawn.svg").stat().st_size > 10_000


def made_up(study: str, value: float) -> dict[str, Any]:
    """What a study could have found."""
    rows = (curves.RAW, curves.SERVED, "validation", curves.COSINE, curves.ONCE, *curves.SCHEDULES)
    rows += (
        curves.ALONE,
        curves.TOGETHER,
        curves.SYMMETRY,
        curves.JOINED,
        curves.HEDGE,
        curves.ALIKE,
        curves.BEST,
    )
    if study == "unseen":
        every = (curves.COSINE, curves.RAW, curves.PLAIN, curves.SERVED, curves.SOFTMAX, curves.RIDGE)
        return {row: {"seen": value, "unseen": value} for row in every}
    counts = list(curves.STEPS) if study == "steps" else [10, 20]
    names = {"counts": counts, "objects": counts, "triplets": counts, "seconds": counts, "map": counts}
    return {**names, "distractors": counts, "stop": 1_000} | {row: [value] * len(counts) for row in rows}
