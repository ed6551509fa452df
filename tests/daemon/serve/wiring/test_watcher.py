"""Flips and answers become ages of events, for every alias by what it answers with."""

from __future__ import annotations

import numpy as np

from daemon.replica.settings import Flip
from daemon.replica.view import ModelId
from daemon.serve.live import FreshnessWatcher

NOW = 1_800_000_000_000


class Told:
    def __init__(self) -> None:
        self.now = NOW
        self.ages: dict[str, list[tuple[float, int]]] = {"latest": [], "stable": []}
        self.watcher = FreshnessWatcher(["stable", "latest"], self.record, 3600.0, lambda: self.now)

    def record(self, alias: str, seconds: np.ndarray, counts: np.ndarray) -> None:
        self.ages[alias] += zip(seconds.tolist(), counts.tolist(), strict=True)

    def steps(self, version: int, behind: int, total: int, *times: int, alias: str = "latest") -> ModelId:
        model = ModelId(version, behind, max(times, default=None), total)
        result = "steps" if times else "version"
        self.watcher.flipped(Flip(alias, model, result, np.array(times, np.int64)))
        return model


def test_latest_counts_with_the_steps_and_stable_with_the_version() -> None:
    told = Told()
    base = told.steps(1, 0, 100)
    told.steps(1, 0, 100, alias="stable")
    told.watcher.answered("latest", base)
    told.watcher.answered("stable", base)
    assert told.ages == {"latest": [], "stable": []}
    behind = told.steps(1, 2, 102, NOW - 400, NOW - 300)
    told.now += 100
    told.watcher.answered("stable", base)  # it has not moved
    told.watcher.answered("latest", behind)
    told.watcher.answered("latest", behind)
    assert told.ages == {"latest": [(0.5, 1), (0.4, 1)], "stable": []}
    assert told.watcher.waiting() == {"stable": 2, "latest": 0}
    told.now += 10_000
    told.watcher.answered("stable", told.steps(2, 0, 102, alias="stable"))
    assert told.ages["stable"] == [(10.5, 1), (10.4, 1)]
    assert told.watcher.waiting() == {"stable": 0, "latest": 0}


def test_the_first_model_of_an_alias_was_there_before_anybody_asked() -> None:
    told = Told()
    first = told.steps(4, 3, 403, NOW - 9000, NOW - 8000, NOW - 7000)
    told.watcher.answered("latest", first)
    assert told.ages["latest"] == []
