"""Topics of raw records, followed: of an embedded log, such as a spool of `serve`, or of Kafka."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.errors import OffsetExpired, StreamUnavailable, TopicMissing
from streams.feed.follow.guard import UNGUARDED, Guard, Held, source_number
from streams.feed.follow.records import RawRecord, suspected
from streams.feed.follow.schemas import SchemaDecoder
from streams.open import open_source
from streams.partitions import OpenTransactions
from streams.source import Address, GrowingSource, RecordBatch, Source

BOUNDS_EVERY_S = 1.0
"""How often the ends of the partitions are asked for."""
STALL_SECONDS = 10.0
"""For how long a transaction may be seen open before it is trouble; most end within a second."""


@dataclass(slots=True)
class FollowedPartition:
    """Where a partition is read next, and the newest time that its records said, ms."""

    offset: int
    newest: int = 0


@dataclass
class FollowedTopic:
    """One topic. `places`: those of an earlier `place`, by partition.

    Whatever reads raises what a `Source` raises; a topic that is not there yet is tried again. `notes` are
    lines worth telling: the topic is another one, retention has removed records. schemas: decodes records
    that name a schema; one whose schema cannot be had waits, with all that were not read by then. `held`:
    where the records are that were read last.
    """

    address: Address
    said: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: bool = False
    last: int = -1
    schemas: SchemaDecoder | None = None
    guard: Guard = UNGUARDED
    held: Held | None = None

    def __post_init__(self) -> None:
        self._source: Source | None = None
        self._partitions: dict[int, FollowedPartition] = {}
        self._ends: dict[int, int] = {}
        self._asked = float("-inf")
        self._transactions = OpenTransactions()
        self.trouble: str | None = None
        """Why nothing comes where somebody's transaction stays open; None before it has for a while."""
        self._polled: tuple[RecordBatch, int] | None = None
        """What was polled and is not decoded yet, and how many records of it are."""

    def read(self, most: int, now: float) -> list[RawRecord]:
        """Next records of one partition, `last`; none where nothing has come by now."""
        source = self._opened()
        if source is None:
            return []
        batch, begin = self._polled or (source.poll(most, 0.0), 0)
        if batch is not None:
            self._polled = batch, begin  # whatever fails before places are noted, it is not polled again
        if now - self._asked >= BOUNDS_EVERY_S:
            self._ends, self._asked = {n: end for n, (_, end) in source.bounds().items()}, now
            self._transactions = self._transactions.next(source.held_back(), now)
            stands = {number: one.offset for number, one in self._partitions.items()}
            self.trouble = self._transactions.trouble(self.address.topic, stands, now, STALL_SECONDS)
        values = [] if batch is None else self._decoded(source, batch, begin)
        for number, offset in source.reached().items():
            self._partitions[number].offset = offset
        if batch is None:
            return []
        end = begin + len(values)
        self.last, self._polled = batch.partition, None
        if end < len(batch):
            self._partitions[batch.partition].offset, self._polled = batch.offsets[end], (batch, end)
        name = f"{self.address}/{batch.partition}"
        columns = zip(batch.offsets[begin:end], values, batch.headers[begin:end], strict=True)
        return [
            RawRecord(f"{name}:{offset}", value, headers)
            for offset, value, headers in columns
            if value is not None
        ]

    def _decoded(self, source: Source, batch: RecordBatch, begin: int) -> list[Any]:
        """What records from `begin` on say, as far as they are taken alike and their schemas can be had: of
        one at least, or it raises StreamUnavailable."""
        found = source.identity()
        number = source_number(found.log_id, found.topic, found.topic_id, batch.partition)
        stop, alone, suspect = self.guard.stretch(number, batch.offsets[begin])
        end = bisect_left(batch.offsets, stop, begin + 1)
        self.held = Held(number, batch.offsets[begin], batch.offsets[end - 1] + 1, alone)
        if suspect:
            return [suspected()]
        if self.schemas is None:
            return batch.values[begin:end]
        with self.guard.hold_range(self.held, f"records of {self.address}/{batch.partition}"):
            return self._by_schema(self.schemas, batch, begin, end)

    def _by_schema(self, schemas: SchemaDecoder, batch: RecordBatch, begin: int, end: int) -> list[Any]:
        found: list[Any] = []
        began = time.monotonic()
        for value, headers in zip(batch.values[begin:end], batch.headers[begin:end], strict=True):
            try:
                found.append(None if value is None else schemas.decoded(value, headers))
            except StreamUnavailable:
                if not found:
                    raise
                break
            if time.monotonic() - began > schemas.batch_s:
                break
        return found

    def expired(self, error: OffsetExpired) -> None:
        """Go on with what retention has left."""
        self.notes.append(f"{self.address}: {error}")
        assert self._source is not None
        self._partitions[error.partition].offset = error.earliest
        self._source.assign({number: one.offset for number, one in self._partitions.items()})
        self._polled = None

    def saw(self, newest: int) -> None:
        """The latest time among the records that were read last."""
        one = self._partitions[self.last]
        one.newest = max(one.newest, newest)

    def newest(self) -> int:
        """The latest time up to which every partition that has more to read was read; ms."""
        waiting = [one.newest for number, one in self._partitions.items() if self._waits(number, one)]
        return min(waiting) if waiting else max((one.newest for one in self._partitions.values()), default=0)

    def waits(self) -> bool:
        """Whether there is more to read: a broker that gave nothing may not have answered yet."""
        return any(self._waits(number, one) for number, one in self._partitions.items())

    def behind(self) -> int:
        """Records that wait, as far as is known; those behind an open transaction are among them."""
        ends = self._ends | {number: held.end for number, held in self._transactions.held.items()}
        return sum(max(0, ends.get(n, 0) - one.offset) for n, one in self._partitions.items())

    def place(self) -> dict[str, Any]:
        """Plain data, to go on from."""
        if self._source is None:
            return dict(self.said)
        found = self._source.identity()
        at = {str(n): (one.offset, one.newest) for n, one in self._partitions.items()}
        return {"identity": [found.log_id, found.topic, found.topic_id], "at": at}

    def positions(self) -> dict[int, int]:
        """Where each partition is read next, by its number."""
        place = self.place()
        at = place.get("at", {}).items()
        return {source_number(*place["identity"], number): offset for number, (offset, _) in at}

    def close(self) -> None:
        """Close the source."""
        if self._source is not None:
            self._source.close()

    def _waits(self, number: int, one: FollowedPartition) -> bool:
        polled = self._polled is not None and self._polled[0].partition == number
        return polled or self._ends.get(number, one.offset + 1) > one.offset

    def _opened(self) -> Source | None:
        if self._source is None:
            try:
                source = GrowingSource(lambda: open_source(self.address))
            except TopicMissing:
                self.missing = True
                return None
            try:
                self._assign(source)
            except BaseException:
                source.close()
                raise
            self._source, self.missing = source, False
        elif self._source.identity().partitions > len(self._partitions):
            self._assign(self._source)
        return self._source

    def _assign(self, source: Source) -> None:
        """Each partition from where it stood; new ones, and those of another topic, from their beginning."""
        found, bounds = source.identity(), source.bounds()
        known: Mapping[str, Any] = self.place().get("at", {})
        told = self.place().get("identity")
        if told is not None and list(told) != [found.log_id, found.topic, found.topic_id]:
            self.notes.append(f"{self.address} is another topic than before; it is read from its beginning")
            known = {}
        for number, (earliest, end) in bounds.items():
            offset, newest = known.get(str(number), (earliest, 0))
            if not earliest <= offset <= end:
                self.notes.append(
                    f"{self.address}/{number}: it holds {earliest:,} to {end:,}, and {offset:,} was next to"
                    " be read: records were removed unread, or the log is a copy"
                )
                offset = min(max(offset, earliest), end)
            self._partitions[number] = FollowedPartition(offset, newest)
        source.assign({number: one.offset for number, one in self._partitions.items()})
        self._polled = None
