"""One of the learners of a backfill: it reads its share, block by block, with the learner's own code.

It learns like `tripletd learn` does from the same events: decoded, known ids dropped, caps held, the step.
What is refused is counted, and written nowhere: history is not a stream that somebody watches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from checkpoints import Manifest, Version
from daemon.backfill.blocks import BlockReader, RecordBlock
from daemon.backfill.plan import Recipe, Unit, UnitPlace
from daemon.catalogs import learner_catalog
from daemon.config.objects import remember
from daemon.config.schema import Config
from daemon.feeding import decider_of
from daemon.learn.compatible import decoder_of
from daemon.learn.state import LearnState, add_in_order
from daemon.learn.step import Assembler, learn, names_of
from daemon.versions.algorithms import keys_of, learner_config_of
from daemon.versions.contents import APPLIED, LOSS_SUM, RECORDS, REJECTED, UPDATED, Arrays, counted
from learners.outcome import Outcome
from streams.feed.options import ReaderOptions
from streams.source import RecordBatch


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What a shard works with. units: those that are its."""

    config: Config
    recipe: Recipe
    units: Sequence[Unit]


@dataclass(slots=True)
class ShardNews:
    """What one block did: `learner` the arrays of what was learned afterwards (None where they were not
    asked for), counters, the sum of losses among them, the newest event time (ms), and where the next block
    begins (None at the end)."""

    learner: Arrays | None
    counters: dict[str, int | float]
    watermark: int | None
    after: UnitPlace | None
    at: UnitPlace
    read: int
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """Records of the block."""
        return counted(self.counters, RECORDS)

    @property
    def updates(self) -> int:
        """Steps that changed the state."""
        return counted(self.counters, UPDATED)

    @property
    def events(self) -> int:
        """Events that the step could take."""
        return counted(self.counters, *APPLIED)

    @property
    def let_in(self) -> int:
        """Events that no cap refused."""
        return counted(self.counters, *APPLIED, REJECTED)


class ReadsBlocks(Protocol):
    """What a shard reads from: a `BlockReader`, or the same blocks read once for several learners."""

    @property
    def at(self) -> UnitPlace:
        """Where the next block begins."""

    def next(self, least: int, fed: int) -> RecordBlock:
        """See `BlockReader.next`."""

    def close(self) -> None:
        """Leave what is open."""


OpenReader = Callable[[UnitPlace], ReadsBlocks]
"""Opens what a shard reads from, at a place of its units."""


class ShardLearner:
    """A learner with its reader. `begin` before `learn`; everything follows from what they are given.

    open_reader: reads for several learners at once; None: this one reads for itself alone.
    """

    def __init__(self, job: ShardJob, open_reader: OpenReader | None = None) -> None:
        self._job = job
        remember(job.config.checkpoints)  # an actor's process read no configuration
        self._catalog = learner_catalog(job.config, lambda _: None)
        self._open_reader = open_reader or block_reader_of(job, self._catalog)
        self._reader: ReadsBlocks | None = None
        self._assemble: Assembler | None = None
        self._state: LearnState | None = None
        self._map_id = ""

    def begin(self, manifest: Manifest, arrays: Mapping[str, Any], at: UnitPlace) -> None:
        """Stand where a version stands, at this place of the units."""
        version = Version(manifest, {name: np.array(one) for name, one in arrays.items()})
        self._state = LearnState.of_version(version, learner_config_of(manifest))
        self._state.threads = 1  # each core has a worker of its own
        self._manifest = manifest
        fitted = self._state.fitted
        if self._assemble is None or self._map_id != fitted.id:
            decoder = decoder_of(manifest, self._catalog)
            decoder.queries = fitted.queries
            self._assemble, self._map_id = Assembler(decoder, fitted, self._catalog), fitted.id
        if self._reader is None or self._reader.at != at:
            if self._reader is not None:
                self._reader.close()
            self._reader = self._open_reader(at)

    def learn(self, learner: Mapping[str, Any] | None, fed: int, wanted: bool) -> ShardNews:
        """Learn the next block. learner: what to go on with, None: what is there. fed: records of all shards
        before. wanted: whether the learner's arrays are asked for. Raises UserError."""
        assert self._state is not None
        assert self._reader is not None
        state, reader = self._state, self._reader
        if learner is not None:
            arrays = {name: np.array(one) for name, one in learner.items()}
            state.go_on_with(arrays, learner_config_of(self._manifest), keys_of(self._manifest))
        block = reader.next(self._job.recipe.merge_events, fed)
        counters: dict[str, int | float] = {RECORDS: block.records, LOSS_SUM: 0.0}
        newest: int | None = None
        for batch in block.batches:
            mark = self._learn_batch(batch, counters)
            newest = mark if newest is None else max(newest, mark or newest)
        arrays_now = {name: np.array(one) for name, one in state.learned().items()} if wanted else None
        return ShardNews(arrays_now, counters, newest, block.after, reader.at, block.read, block.dropped)

    def whole(self) -> Arrays:
        """The arrays of a version of what is there: the learner, known ids, caps, map."""
        assert self._state is not None
        return {name: np.array(one) for name, one in self._state.arrays().items()}

    def _learn_batch(self, batch: RecordBatch, counters: dict[str, int | float]) -> int | None:
        assert self._state is not None
        assert self._assemble is not None
        decoded, triplets = self._assemble(batch)
        learned = learn(self._state, decoded, triplets, names_of(self._state, decoded))
        info = learned.info
        for name, number in learned.counts(decoded.poison).items():
            counters[name] = counters.get(name, 0) + number
        losses = info.loss[info.outcome != Outcome.REJECTED]
        counters[LOSS_SUM] = add_in_order(float(counters[LOSS_SUM]), losses)
        return learned.newest_ts(decoded)


def block_reader_of(job: ShardJob, catalog: Any) -> Callable[[UnitPlace], BlockReader]:
    """Opens readers of a shard's units."""
    recipe = job.recipe
    decider, options = reading_decider(job.config, catalog, recipe), reader_options(recipe)
    reach = job.config.stream.reached
    return lambda at: BlockReader(job.units, at, decider.afresh, options, recipe.format, reach=reach)


def reading_decider(config: Config, catalog: Any, recipe: Recipe) -> Any:
    """Who decides about lists, as `feed` does; lists that are learned from are not kept for judging, for no
    version was there before them."""
    without = replace(config, feed=config.feed.model_copy(update={"prequential": False}))
    return decider_of(without, catalog, 1, recipe.now_ms)


def reader_options(recipe: Recipe) -> ReaderOptions:
    """What readers are asked for."""
    return ReaderOptions(recipe.now_ms, mapping=recipe.mapping)
