"""The ports: a source of records, a sink for records, and what passes through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Key, value and headers of one record together; a sink refuses more (`RecordRefused`)."""

MAX_POLL_BYTES = 64 * 1024 * 1024
"""A poll stops adding records once their values pass this many bytes, so that memory stays bounded."""

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records of one partition, as columns of equal length; timestamps in ms."""

    partition: int
    offsets: list[int]
    timestamps: list[int]
    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to be written.

    Its partition is `partition`, else the stable hash of `key`, else 0. `timestamp` is in ms since
    the epoch; None means the time of writing.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True)
class TopicIdentity:
    """Which log and which topic this really is: a re-created topic has another `topic_id`."""

    log_id: str
    topic: str
    topic_id: str
    partitions: int


class Source(Protocol):
    """Reads one topic. One thread at a time; may be used from another thread than its maker's."""

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        ...

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these next offsets, replacing any earlier assignment.

        A position is the offset of the next record wanted: one past the last record applied.
        Raises OffsetExpired, OffsetAhead or PartitionMissing; the earlier assignment then stays.
        """
        ...

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Up to `max_records` next records of one partition, or None after `timeout_s` without any.

        Assigned partitions take turns, so that none starves. Raises OffsetExpired when retention
        overtook the position, LogMismatch when the topic was removed or re-created meanwhile.
        """
        ...

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Per partition: the earliest offset still there, and the end (one past the newest)."""
        ...

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """Per partition: the first offset whose timestamp is >= `ts_ms`, else the end."""
        ...

    def commit(self, positions: Mapping[int, int]) -> None:
        """Note positions for lag dashboards; nothing ever resumes from them."""
        ...

    def committed(self) -> dict[int, int]:
        """The positions last noted by anybody, for lag dashboards."""
        ...

    def close(self) -> None:
        """Release everything; may be called twice."""
        ...


class Sink(Protocol):
    """Writes to one topic. One thread at a time."""

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        ...

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records or none; when it returns they are durable.

        Comes back with (partition, offset) per record. Raises RecordRefused, PartitionMissing,
        LogMismatch or StreamUnavailable; nothing was written then.
        """
        ...

    def close(self) -> None:
        """Release everything; may be called twice."""
        ...
