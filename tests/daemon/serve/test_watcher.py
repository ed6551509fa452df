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


class Versions(Told):
    """A server that hears of whole versions, each 100 records with 90 events after the one before."""

    def version(self, number: int, newest: int, alias: str) -> ModelId:
        model = ModelId(number, 0, newest, 100 * number)
        nothing = np.zeros(0, np.int64)
        self.watcher.flipped(Flip(alias, model, "version", nothing, 90 * number))
        return model

    def counted(self, alias: str) -> int:
        return sum(count for _, count in self.ages[alias])

    def oldest(self, alias: str) -> float:
        return max(seconds for seconds, _ in self.ages[alias])


def test_events_that_come_in_whole_versions_are_counted_every_one() -> None:
    told = Versions()
    told.watcher.answered("stable", told.version(1, NOW - 9000, "stable"))
    assert told.counted("stable") == 0  # they were there before anybody asked
    told.watcher.answered("stable", told.version(3, NOW - 1000, "stable"))
    assert told.counted("stable") == 180
    assert 7.8 < told.oldest("stable") < 9.0
    assert abs(np.mean([s for s, count in told.ages["stable"] for _ in range(count)]) - 5.0) < 0.1
    assert told.watcher.waiting()["stable"] == 0


def test_what_was_missed_while_the_step_log_was_lost_is_counted_with_the_version() -> None:
    told = Versions()
    told.watcher.answered("latest", told.version(1, NOW - 5000, "latest"))
    told.watcher.answered("latest", told.steps(1, 2, 102, NOW - 4000, NOW - 3900))
    told.now += 3000  # the step log is lost, and the next version is loaded
    told.watcher.answered("latest", told.version(2, NOW - 100, "latest"))
    assert told.counted("latest") == 90
    assert told.oldest("latest") > 6.0
    told.watcher.answered("latest", told.steps(2, 1, 201, NOW))
    assert told.counted("latest") == 91
    told.watcher.answered("latest", told.version(3, NOW + 200, "latest"))
    assert told.counted("latest") == 180


def test_a_name_that_follows_whole_versions_beside_latest_counts_none_twice() -> None:
    told = Versions()
    told.version(1, NOW - 5000, "latest")
    told.version(1, NOW - 5000, "stable")
    second = told.version(2, NOW - 1000, "stable")  # before latest has heard of these
    told.watcher.answered("stable", second)
    assert told.counted("stable") == 90
    behind = told.steps(1, 40, 140, *range(NOW - 4000, NOW - 3964))
    told.watcher.answered("latest", behind)
    reached = told.version(2, NOW - 1000, "latest")
    told.watcher.answered("latest", reached)
    told.watcher.answered("stable", second)
    assert (told.counted("latest"), told.counted("stable")) == (90, 90)


def test_another_line_of_versions_begins_anew() -> None:
    told = Versions()
    told.version(5, NOW - 5000, "latest")
    model = ModelId(6, 0, NOW - 100, 210)  # of a learner that continued from version 2
    told.watcher.flipped(Flip("latest", model, "version", np.zeros(0, np.int64), 190))
    told.watcher.answered("latest", told.steps(6, 1, 211, NOW - 50))
    assert told.counted("latest") == 1
