"""A log in memory, shared by everything in one process under one name: for tests and trials."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Condition

from streams.errors import LogMismatch, OffsetExpired, PartitionMissing, TopicMissing
from streams.limits import MAX_POLL_BYTES, MAX_RECORD_BYTES
from streams.partitions import Bounds, assigned, check_positions, limits, place_records, record_bytes
from streams.source import UNKNOWN, OutRecord, RecordBatch, TopicIdentity

_Stored = tuple[int, OutRecord]
"""Timestamp in ms, record."""


@dataclass
class _Partition:
    start: int = 0
    records: list[_Stored] = field(default_factory=list)
    committed: int | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def first_at(self, ts_ms: int) -> int:
        """The first offset whose timestamp is >= `ts_ms`, else the end."""
        return next(
            (self.start + place for place, (ts, _) in enumerate(self.records) if ts >= ts_ms), self.end
        )

    def first_within(self, share: int) -> int:
        """The first offset from which on the records have at most `share` bytes."""
        held, first = 0, self.end
        for _, record in reversed(self.records):
            held += record_bytes(record)
            if held > share:
                break
            first -= 1
        return first


@dataclass
class _Topic:
    identity: TopicIdentity
    partitions: list[_Partition]

    def bounds(self) -> Bounds:
        return {number: (one.start, one.end) for number, one in enumerate(self.partitions)}


class _Log:
    def __init__(self) -> None:
        self.log_id = str(uuid.uuid4())
        self.changed = Condition()
        self.topics: dict[str, _Topic] = {}


_logs: dict[str, _Log] = {}


def ensure_topic(name: str, topic: str, partitions: int) -> TopicIdentity:
    """Create the log and topic unless they exist; another partition count is LogMismatch."""
    log = _logs.setdefault(name, _Log())
    with log.changed:
        if topic not in log.topics:
            identity = TopicIdentity(log.log_id, topic, str(uuid.uuid4()), partitions)
            log.topics[topic] = _Topic(identity, [_Partition() for _ in range(partitions)])
        found = log.topics[topic].identity
    if found.partitions != partitions:
        raise LogMismatch(f"topic {topic!r} has {found.partitions} partitions, not {partitions}")
    return found


def delete_topic(name: str, topic: str) -> None:
    """Remove a topic and all its records."""
    log, _ = _find(name, topic)
    with log.changed:
        del log.topics[topic]
        log.changed.notify_all()


def retain(
    name: str,
    topic: str,
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None,
    *,
    before: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Remove old records from the start of each partition (see `streams.open.retain`)."""
    log, found = _find(name, topic)
    allowed = limits(max_age_s, max_bytes, now_ms, before, len(found.partitions))
    removed = {}
    with log.changed:
        for number, partition in enumerate(found.partitions):
            held = range(partition.start, partition.end)
            cut = allowed.cut(number, held, partition.first_at, partition.first_within) - partition.start
            del partition.records[:cut]
            partition.start += cut
            removed[number] = cut
    return removed


def _find(name: str, topic: str) -> tuple[_Log, _Topic]:
    log = _logs.get(name)
    if log is None or topic not in log.topics:
        raise TopicMissing(f"memory log {name!r} has no topic {topic!r}; create it first")
    return log, log.topics[topic]


class _Opened:
    """What source and sink share: the topic they opened, refused once it is another."""

    def __init__(self, name: str, topic: str) -> None:
        self._log, self._topic = _find(name, topic)

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._topic.identity

    def close(self) -> None:
        """Nothing to release."""

    def _check_alive(self) -> None:
        name = self._topic.identity.topic
        if self._log.topics.get(name) is not self._topic:
            raise LogMismatch(f"topic {name!r} was removed or re-created while it was open; open it again")


class MemorySink(_Opened):
    """Appends to one topic of a log in memory (see `streams.source.Sink`)."""

    max_record_bytes = MAX_RECORD_BYTES

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records or none."""
        identity = self._topic.identity
        placed = place_records(identity.topic, identity.partitions, records)
        written = []
        with self._log.changed:
            self._check_alive()
            now = int(time.time() * 1000)
            for record, number in zip(records, placed, strict=True):
                partition = self._topic.partitions[number]
                written.append((number, partition.end))
                partition.records.append((now if record.timestamp is None else record.timestamp, record))
            self._log.changed.notify_all()
        return written


class MemorySource(_Opened):
    """Reads one topic of a log in memory (see `streams.source.Source`)."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(name, topic)
        self._positions: dict[int, int] | None = None

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        """Read these partitions from these next offsets, replacing any earlier assignment.

        An offset never gets another record here, so that nothing has to be compared with `known`.
        """
        check_positions(self._topic.identity.topic, positions, self.bounds())
        self._positions = dict(positions)

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Up to `max_records` next records of one partition, or None after `timeout_s` without any."""
        positions = assigned(self._positions, max_records)
        deadline = time.monotonic() + timeout_s
        with self._log.changed:
            while True:
                self._check_alive()
                for partition in list(positions):
                    batch = self._read(partition, max_records)
                    if batch is not None:
                        return batch
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._log.changed.wait(left)

    def reached(self) -> dict[int, int]:
        """Per assigned partition: the offset below which everything was handed out."""
        return dict(self._positions or {})

    def bounds(self) -> Bounds:
        """Per partition: the earliest offset still there, and the end (one past the newest)."""
        with self._log.changed:
            self._check_alive()
            return self._topic.bounds()

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """Per partition: the first offset whose timestamp is >= `ts_ms`, else the end."""
        with self._log.changed:
            self._check_alive()
            return {number: one.first_at(ts_ms) for number, one in enumerate(self._topic.partitions)}

    def commit(self, positions: Mapping[int, int]) -> None:
        """Note positions for lag dashboards; nothing ever resumes from them."""
        partitions = self._topic.partitions
        for number in positions:
            if not 0 <= number < len(partitions):
                raise PartitionMissing(self._topic.identity.topic, number, len(partitions))
        for number, position in positions.items():
            partitions[number].committed = position

    def committed(self) -> dict[int, int]:
        """The positions last noted by anybody, for lag dashboards."""
        noted = {number: one.committed for number, one in enumerate(self._topic.partitions)}
        return {number: position for number, position in noted.items() if position is not None}

    def _read(self, number: int, max_records: int) -> RecordBatch | None:
        assert self._positions is not None
        partition, position = self._topic.partitions[number], self._positions[number]
        if position < partition.start:
            raise OffsetExpired(number, position, partition.start)
        first = position - partition.start
        stored: list[_Stored] = []
        held = 0
        for one in islice(partition.records, first, first + max_records):
            stored.append(one)
            held += len(one[1].value or b"")
            if held >= MAX_POLL_BYTES:
                break
        if not stored:
            return None
        del self._positions[number]  # and back in at the end: partitions take turns
        self._positions[number] = position + len(stored)
        return RecordBatch(
            number,
            list(range(position, position + len(stored))),
            [ts for ts, _ in stored],
            [record.value for _, record in stored],
            [record.key for _, record in stored],
            [record.headers for _, record in stored],
        )
