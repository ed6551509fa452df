"""The rounds of a backfill: every shard learns a block, their states are merged, and now and then all of it
is united to a version. Decides nothing by the clock, so the same units give the same bits.

Between two versions a shard knows the ids of its own events alone. In a version what all know is united, and
every shard goes on from it: a run that goes on from there after a kill stands where one stood that was not
disturbed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from checkpoints import Version
from daemon.backfill.plan import HistoryProgress, UnitPlace
from daemon.backfill.shard import ShardNews
from daemon.learn.merges import SHORT, Counters, united
from daemon.versions.algorithms import columns_of, keys_of, learner_config_of, map_of, merge_of
from daemon.versions.contents import Arrays, counted, known_in, learned_arrays
from daemon.versions.race import race_of
from daemon.versions.shards import summed


class Shards(Protocol):
    """The learners, wherever they run. Every method may raise ShardsLost, after which all begin anew."""

    def begin(self, version: Version, at: Sequence[UnitPlace]) -> None:
        """Have each stand where the version stands, at its place."""

    def learn(self, learner: Arrays | None, fed: int, wanted: bool) -> list[ShardNews]:
        """A block of each; see `ShardLearner.learn`."""

    def whole(self) -> list[Arrays]:
        """All arrays of each."""


class ShardsLost(Exception):
    """A worker is gone, or what it ran on. The message says how it was noticed."""


@dataclass(slots=True)
class Reached:
    """What is to become a version: arrays, how far the backfill is, what counters grow by, newest time."""

    arrays: Arrays
    progress: HistoryProgress
    counters: Counters
    watermark: int | None


@dataclass(slots=True)
class Told:
    """For those who watch: records, lists read, and lists that taught nothing, since the run began."""

    records: int = 0
    read: int = 0
    merges: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


Publish = Callable[[Reached], Version]
"""Makes a version durable, and gives it back."""


def run_rounds(
    shards: Shards,
    version: Version,
    progress: HistoryProgress,
    publish: Publish,
    tell: Callable[[Told], None],
    *,
    most: int | None = None,
) -> HistoryProgress:
    """Learn all that is left, from a version on, or up to `most` versions more. Raises UserError, ShardsLost,
    errors of `publish`."""
    told, made = Told(), 0
    while not progress.done and made != most:
        version, progress = _to_next_version(shards, version, progress, publish, tell=tell, told=told)
        made += 1
    return progress


def _to_next_version(
    shards: Shards,
    version: Version,
    progress: HistoryProgress,
    publish: Publish,
    *,
    tell: Callable[[Told], None],
    told: Told,
) -> tuple[Version, HistoryProgress]:
    recipe, merger = progress.recipe, RoundMerger(version)
    shards.begin(version, progress.at)
    alone = recipe.shards == 1
    fed, learner, all_news = progress.fed, learned_arrays(version.arrays), list[list[ShardNews]]()
    going = True
    while going and fed - progress.fed < recipe.version_events:
        news = shards.learn(None if alone or not all_news else learner, fed, not alone)
        all_news.append(news)
        fed += sum(one.records for one in news)
        if not alone:
            learner = merger.merged(learner, news, recipe.merge_by)
            told.merges += 1
        going = any(one.after is not None for one in news)
        told.records += sum(one.records for one in news)
        told.read += sum(one.read for one in news)
        for one in news:
            told.dropped += one.dropped
        tell(told)
    last = all_news[-1]
    reached = replace(progress, fed=fed, at=tuple(one.at for one in last), done=not going)
    wholes = shards.whole()
    arrays = wholes[0] if alone else merger.united(learner, wholes, all_news)
    marks = [one.watermark for news in all_news for one in news if one.watermark is not None]
    counters = summed([one.counters for news in all_news for one in news])
    made = publish(Reached(arrays, reached, counters, max(marks, default=None)))
    return made, reached


class RoundMerger:
    """The merge of learners that went on from a version."""

    def __init__(self, version: Version) -> None:
        self._version = version
        fitted, manifest = map_of(version), version.manifest
        config, keys = learner_config_of(manifest), keys_of(manifest)
        arms = race_of(manifest)[1]
        self._algebra = merge_of(config, columns_of(fitted), keys, own=fitted.own, arms=arms)

    def merged(self, before: Arrays, news: Sequence[ShardNews], by: str) -> Arrays:
        """What learners that began with `before` are together."""
        longest = max(one.events for one in news)
        is_sum = by == "sum" or (by == "auto" and longest <= SHORT)
        states = [one.learner for one in news if one.learner is not None]
        found: Arrays = self._algebra.states(before, states, [one.updates for one in news], is_sum)
        return found

    def united(
        self, learner: Arrays, wholes: Sequence[Arrays], all_news: Sequence[Sequence[ShardNews]]
    ) -> Arrays:
        """A version's arrays: what was merged, the ids and caps of all."""
        by_shard, names = list(zip(*all_news, strict=True)), known_in(self._version.manifest)
        known = [sum(counted(one.counters, *names) for one in news) for news in by_shard]
        let_in = [sum(one.let_in for one in news) for news in by_shard]
        return united(self._version, learner, wholes, known, let_in)
