"""A version's state, moved along recorded schedule entries by the learner's own code.

A schedule over several partitions may hold thousands of runs of a few records. All partitions are read ahead
together, into buffers, without a seek per run; once the buffers hold too much, partitions that the schedule
does not wait for are left out for a while, which costs a seek.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np

from checkpoints import Manifest, Version, VersionStore
from checkpoints.manifest import ScheduleEntry
from checkpoints.store import CheckpointError
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.adopting import read_brought
from daemon.learn.compatible import decoder_of
from daemon.learn.merges import merge, positions_of, take_over
from daemon.learn.state import BACKFILL, KINDS, TIMES, UNREAD, Applied, Entry, LearnState, Progress
from daemon.learn.step import Assembler, ReadyBatch, count, step
from daemon.versions.algorithms import learner_config_of
from daemon.versions.contents import AVERAGE, MAX_FUTURE, QUERIES, max_future_of
from daemon.versions.race import RACE, recorded_race
from daemon.versions.shards import ADOPT, MERGE, MergeRecord, ShardRecord, brings
from learners.outcome import StepInfo
from streams.catalog import Catalog
from streams.errors import OffsetAhead, OffsetExpired, StreamUnavailable
from streams.poison import DeadLetter
from streams.shards import Shard
from streams.source import RecordBatch, Source, cut

READ_RECORDS = 4096
READ_SECONDS = 10.0
FIRST_READ = 64  # records; how long they are is not known, so begin small
AHEAD_BYTES = 128 << 20
ATTEMPTS = 5
PAUSE_SECONDS = 2.0


@dataclass(slots=True)
class _Ahead:
    """Records of one partition that were read and not asked for yet."""

    next_asked: int
    next_read: int
    batches: deque[RecordBatch] = field(default_factory=deque)
    at: int = 0  # entries of the first batch that were handed out


class Runs:
    """Reads runs of partitions from one source, whose assignment it owns."""

    def __init__(self, source: Source, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._source = source
        self._limit = ahead_bytes
        self._ahead: dict[int, _Ahead] = {}
        self._assigned: set[int] = set()
        self._held = 0  # bytes in all buffers
        self._chunk = FIRST_READ

    def read(self, partition: int, start: int, stop: int) -> Iterator[RecordBatch]:
        """The records with offsets in [start, stop), in order, in batches.

        Raises UserError when the log has expired, ends before `stop`, or cannot be read there.
        """
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.next_asked != start:
            self._forget(partition)
            ahead = self._ahead[partition] = _Ahead(start, start)
        while ahead.next_asked < stop:
            if ahead.batches:
                batch = self._take(ahead, stop)
                if batch is None:
                    break  # what is left lies behind the run
                yield batch
            elif not self._read_more(partition, stop):
                break
        ahead.next_asked = stop

    def _take(self, ahead: _Ahead, stop: int) -> RecordBatch | None:
        """What the first buffered batch holds below `stop`; None when that is nothing."""
        batch = ahead.batches[0]
        if batch.damaged is not None:
            raise _lost(batch.partition, ahead.next_asked, stop, batch.damaged)
        end = bisect_left(batch.offsets, stop, ahead.at)
        if end == ahead.at:
            return None
        taken = cut(batch, ahead.at, end)
        ahead.at = end
        if end == len(batch):
            ahead.batches.popleft()
            ahead.at = 0
        self._held -= _bytes(taken)
        ahead.next_asked = taken.offsets[-1] + 1
        return taken

    def _read_more(self, partition: int, stop: int) -> bool:
        """Read something into the buffers; False when the partition has no more records below `stop`."""
        try:
            self._assign(partition)
            if self._source.reached()[partition] >= stop:
                return False
            batch = self._poll()
        except (OffsetExpired, OffsetAhead) as error:
            if error.partition == partition:
                raise _lost(partition, self._ahead[partition].next_asked, stop, str(error)) from error
            self._forget(error.partition)  # it may not be needed any more; if it is, this comes again
            return True
        if batch is None:
            if self._source.reached()[partition] >= stop:
                return False
            raise _lost(partition, self._ahead[partition].next_asked, stop, "it ends before that")
        ahead, size = self._ahead[batch.partition], _bytes(batch)
        ahead.batches.append(batch)
        ahead.next_read = batch.offsets[-1] + 1
        self._held += size
        self._chunk = max(1, min(READ_RECORDS, self._limit // 8 // (size // len(batch) + 1)))
        return True

    def _assign(self, partition: int) -> None:
        """Have the source read the partition, and all others; once there is enough, those without records."""
        enough = self._held > self._limit
        wanted = {
            p: ahead.next_read
            for p, ahead in self._ahead.items()
            if p == partition or not enough or not ahead.batches
        }
        if partition not in self._assigned or (enough and self._assigned > set(wanted)):
            self._source.assign(wanted)
            self._assigned = set(wanted)

    def _poll(self) -> RecordBatch | None:
        for _ in range(ATTEMPTS - 1):
            with suppress(StreamUnavailable):
                return self._source.poll(self._chunk, READ_SECONDS)
            time.sleep(PAUSE_SECONDS)
        return self._source.poll(self._chunk, READ_SECONDS)

    def _forget(self, partition: int) -> None:
        """Drop what was read ahead of a partition; the source is assigned again before its next read."""
        ahead = self._ahead.pop(partition, None)
        if ahead is not None:
            left = (cut(batch, 0 if n else ahead.at, len(batch)) for n, batch in enumerate(ahead.batches))
            self._held -= sum(map(_bytes, left))
            self._assigned = set()


def _bytes(batch: RecordBatch) -> int:
    return sum(len(value) for value in batch.values if value is not None)


def _lost(partition: int, offset: int, stop: int, why: str) -> UserError:
    said = why.removeprefix(f"partition {partition}: ")
    what = f"the log no longer holds offsets {offset:,} up to {stop:,} of partition {partition}: {said}"
    remedy = "replay from a later version; or this is not the log the version was learned from"
    return UserError(what, remedy, EX_DATAERR)


OnRecords = Callable[[int], None]


_NOT_OF_THE_LOG = {
    AVERAGE: (
        "an average: no event of this log leads to it",
        "replay from the average on (--from), and what it was made of in the folders it came from",
    ),
    QUERIES: (
        "a map for queries of another model: no event of this log leads to it",
        "replay from the version that has it on (--from)",
    ),
    BACKFILL: (
        "a backfill: history that is not in this log leads to it",
        "recompute it with `tripletd backfill --verify` and its files; replay from it on (--from)",
    ),
}
"""Control entries that cannot be recomputed, and what to do instead."""


class OutOfLine(Exception):
    """A schedule that does not fit the positions it starts from, or the log; the message says how."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Where versions are found that a schedule names. own: of the line that is replayed. merges: the merged
    ones, of a shard's line. shards: the shards' by number, of a merged line of `of` shards."""

    own: VersionStore
    merges: VersionStore | None = None
    shard: Callable[[Shard], VersionStore] | None = None


class Rerun:
    """State and progress on the way from one version to a later one. lines: None where the schedule names no
    other version."""

    def __init__(
        self,
        start: Version,
        target: Manifest,
        catalog: Catalog | None,
        runs: Runs,
        lines: Lines | None = None,
    ) -> None:
        self._lines, self._base = lines, start.manifest
        self.state = LearnState.of_version(start, learner_config_of(start.manifest))
        self.progress = Progress.of_version(start.manifest)
        self._decoder = decoder_of(target, catalog)
        self._decoder.max_future_ms = max_future_of(start.manifest)  # entries of the schedule change it
        self._decoder.queries = self.state.fitted.queries
        self._assemble = Assembler(self._decoder, self.state.fitted, catalog)
        self._topic = target.stream["topic"]
        self._runs = runs

    def follow(self, entry: ScheduleEntry, on_records: OnRecords) -> None:
        """Do what one schedule entry records; `on_records` is called with the records of each batch.

        Raises OutOfLine, and UserError where the log cannot be read.
        """
        if isinstance(entry, dict):
            self._control(entry)
            return
        for ready in self.batches(*entry):
            self.progress.advance(step(self.state, ready, self._topic).applied)
            on_records(ready.records)
        partition, _, stop = entry
        if self.progress.next_offsets()[partition] != stop:
            what = f"partition {partition} holds no record at offset {stop - 1:,}, which was learned"
            raise OutOfLine(what)
        self.progress.published(self.progress.snapshot())  # the schedule is known: it need not grow here

    def batches(self, partition: int, start: int, stop: int) -> Iterator[ReadyBatch]:
        """A run's records, decoded and assembled. Raises OutOfLine when it begins elsewhere."""
        at = self.progress.next_offsets().get(partition)
        if at != start:
            run = f"the run [{start:,}, {stop:,}) of partition {partition}"
            raise OutOfLine(f"{run} begins elsewhere than at {at}")
        for batch in self._runs.read(partition, start, stop):
            yield ReadyBatch(batch, *self._assemble(batch), 0.0, 0.0)

    def pass_over(self, ready: ReadyBatch) -> None:
        """Move the position past a batch that was learned otherwise."""
        at, none = ready.decoded, StepInfo.empty(0).loss
        done = Applied(at.partition, at.next_offset, at.last_digest.hex(), ready.records, {}, none)
        self.progress.advance(done)

    def _control(self, entry: Entry) -> None:
        kind = entry["control"]
        if kind in _NOT_OF_THE_LOG:
            what, remedy = _NOT_OF_THE_LOG[kind]
            raise UserError(f"the schedule contains {what}", remedy, EX_DATAERR)
        if kind not in KINDS:
            what = f"the schedule has a control entry {kind!r}, which this release does not know"
            raise UserError(what, "replay with the release that wrote it", EX_DATAERR)
        if kind in UNREAD.values():
            self.progress.advance(_unread(self._topic, entry))
        elif kind == ADOPT:
            self._adopt(entry)
        elif kind == MERGE:
            self._merge(entry)
        else:
            self.progress.control(entry)
            self.state.obey(entry)
            if kind == TIMES:
                self._decoder.max_future_ms = entry[MAX_FUTURE]
            elif kind == RACE:  # a merge that follows begins with these arms
                settings = self._base.learner["config"] | recorded_race(entry)
                self._base = replace(self._base, learner={**self._base.learner, "config": settings})

    def stands_at(self, manifest: Manifest) -> None:
        """What was recomputed is this version: a merge goes on from its number and name."""
        self._base = manifest

    def _adopt(self, entry: Entry) -> None:
        lines = self._lines
        if lines is None or lines.merges is None:
            raise _elsewhere("a merged version")
        record = ShardRecord.read(entry["shard"], "the schedule")
        with _readable(f"merged version {record.base}"):
            merged = lines.merges.load(record.base)
            if merged.manifest.name != record.name:
                raise OutOfLine(f"merged version {record.base} is {merged.manifest.name}, not {record.name}")
        config = learner_config_of(merged.manifest)
        if entry["begins"]:
            self.state = LearnState.of_version(merged, config)
            positions = positions_of(merged.manifest, record.shard)
            self.progress = Progress(positions, {}, merged.manifest.watermark)
        else:
            before = entry.get("before")
            kept, number = (lines.own, record.counted) if before is None else (lines.merges, int(before))
            with _readable(f"version {number}, which the merged version {record.base} holds,"):
                take_over(self.state, merged, kept.load(number).arrays, config)
        self.progress.control(entry)

    def _merge(self, entry: Entry) -> None:
        """Merge what the entry names, as `tripletd merge` does."""
        lines = self._lines
        if lines is None or lines.shard is None:
            raise _elsewhere("versions of shards")
        record, held = MergeRecord.read(entry, self._base.number), MergeRecord.in_version(self._base)
        base = Version(replace(self._base, positions=self.progress.positions), self.state.arrays())
        brought = {}
        for part in record.parts:
            shard = Shard(part.shard, record.of)
            known = None if held is None else held.part(shard)
            if known is not None and (known.version, known.line) == (part.version, part.line):
                continue
            own = lines.shard(shard)
            with _readable(f"version {part.version} of shard {part.shard}"):
                manifest = own.manifest(part.version)
                if manifest.state_hash != part.state_hash:
                    what = f"version {part.version} of shard {part.shard} is not the one that was merged"
                    why = "the shard's folder was lost and started over"
                    raise UserError(f"{what}: {why}", "replay from a later version on (--from)", EX_DATAERR)
                if brings(self._base, manifest):
                    brought[part.shard] = read_brought(self._base, manifest, own, lines.own)
        merged = merge(base, brought, record)
        start = Version(self._base, {name: np.array(one) for name, one in merged.arrays.items()})
        self.state = LearnState.of_version(start, learner_config_of(self._base))
        self.progress = Progress(merged.positions, merged.counters, merged.watermark)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise UserError(
            f"{what} cannot be read, so what follows cannot be recomputed: {error}",
            "replay from a later version on (--from); more versions are kept with checkpoints.keep",
            EX_DATAERR,
        ) from error


def _elsewhere(what: str) -> UserError:
    what = f"the schedule names {what}, and it is not known where these are"
    remedy = "replay with the configuration that they were learned with, whose [shards] count is not 0"
    return UserError(what, remedy, EX_DATAERR)


def _unread(topic: str, entry: Entry) -> Applied:
    partition, stop = entry["partition"], entry["to"]
    reason = next(reason for reason, kind in UNREAD.items() if kind == entry["control"])
    letter = DeadLetter(topic, partition, stop - 1, reason, "", None)
    none = StepInfo.empty(0)
    return Applied(partition, stop, None, 1, count(none, [letter], 0), none.loss, unread=reason)
