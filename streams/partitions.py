"""What every log does alike with its partitions.

Which partition a query's records go to, whether a position lies within a partition's bounds, which
records may go from its start, and how far it is to its end.

Routing is stable: it hashes the key alone (BLAKE2b, with a seed), so every process, release and machine
agrees, and a query's clicks always go the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from streams.codec import raw_vector
from streams.errors import OffsetAhead, OffsetExpired, PartitionMissing, RecordRefused, StreamError
from streams.event import ObjectRef
from streams.limits import MAX_RECORD_BYTES
from streams.source import HeldBack, OutRecord, Source, next_before


def route_key(query: ObjectRef) -> bytes:
    """The key of a query: its id in UTF-8, else `#` and the hash of its features.

    The hash is BLAKE2b-128, in hexadecimal, over each view in order of name: name, kind, number of
    bytes, bytes. Raises ValueError for an object with neither id nor features.
    """
    if query.id is not None:
        return query.id.encode()
    features = query.features()
    if not features:
        raise ValueError("an object needs an id or features to be routed")
    digest = blake2b(digest_size=16)
    for name in sorted(features):
        vector = features[name]
        raw = raw_vector(vector)
        parts = [raw] if isinstance(raw, bytes) else raw
        for part in (name.encode(), str(len(parts)).encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return b"#" + digest.hexdigest().encode()


def is_holdout(key: bytes, share: float, seed: int) -> bool:
    """Whether this query belongs to the holdout: a fraction `share` of all keys, chosen by `seed`.

    BLAKE2b-64 of the key, keyed with the seed, as a fraction of 2**64, is below `share`. With one
    seed, a larger share only adds queries.
    """
    digest = blake2b(key, digest_size=8, key=seed.to_bytes(16, "little", signed=True), person=b"holdout")
    return int.from_bytes(digest.digest(), "little") < share * 2.0**64


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: BLAKE2b-64 of the key modulo the number of partitions."""
    digest = blake2b(key, digest_size=8, person=b"partition").digest()
    return int.from_bytes(digest, "little") % partitions


Bounds = dict[int, tuple[int, int]]


def record_bytes(record: OutRecord) -> int:
    """The bytes of a record: value, key and headers."""
    headers = sum(len(name.encode()) + len(value) for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def place_records(topic: str, partitions: int, records: Sequence[OutRecord]) -> list[int]:
    """Each record's partition; raises RecordRefused or PartitionMissing before anything is written."""
    placed = []
    for number, record in enumerate(records):
        size = record_bytes(record)
        if size > MAX_RECORD_BYTES:
            raise RecordRefused(f"record {number} has {size} bytes, the limit is {MAX_RECORD_BYTES}")
        if record.timestamp is not None and not 0 <= record.timestamp < 2**63:
            raise RecordRefused(f"record {number}: the timestamp is not within 0 .. 2^63 - 1 ms")
        partition = record.partition
        if partition is None:
            partition = 0 if record.key is None else partition_of(record.key, partitions)
        if not 0 <= partition < partitions:
            raise PartitionMissing(topic, partition, partitions)
        placed.append(partition)
    return placed


def end_of_transaction(topic: str, partition: int, first: int) -> str:
    """What to do about a transaction that stays open, its first record at an offset of a partition."""
    return (
        f"its producer has to end it, or an administrator: kafka-transactions.sh abort --topic {topic} "
        f"--partition {partition} --start-offset {first}"
    )


def behind_transactions(topic: str, held: Mapping[int, HeldBack]) -> list[str]:
    """A line per partition whose newest records an open transaction holds back."""
    return [
        f"a transaction is open at offset {one.first} of partition {partition} of {topic}, and "
        f"{one.end - one.first:,} records wait for its end; {end_of_transaction(topic, partition, one.first)}"
        for partition, one in sorted(held.items())
    ]


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """What open transactions hold back, per partition where one is open, as it was last asked for.

    since: when the same one was first seen there, in seconds of a monotonic clock.
    """

    held: Mapping[int, HeldBack] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)

    def next(self, held: Mapping[int, HeldBack], at: float) -> OpenTransactions:
        """The answer after this one: what was held back already is held since then."""
        since = dict.fromkeys(held, at)
        for partition, found in held.items():
            known = self.held.get(partition)
            if known is not None and known.first == found.first:
                since[partition] = self.since[partition]
        return OpenTransactions(held, since)

    def reached(self, positions: Mapping[int, int], now: float) -> Iterator[tuple[int, HeldBack, float]]:
        """(partition, what is held, seconds for which it was seen) where nothing else is left to read."""
        for partition, held in self.held.items():
            if positions.get(partition, 0) >= held.first:
                yield partition, held, max(0.0, now - self.since[partition])

    def trouble(self, topic: str, positions: Mapping[int, int], now: float, after_s: float) -> str | None:
        """Why nothing comes to a reader at these positions, once that was so for `after_s`; else None."""
        for partition, held, seconds in self.reached(positions, now):
            if seconds > after_s:
                return (
                    f"records wait behind an open transaction: it has been open at offset {held.first} of "
                    f"partition {partition} for {seconds:.0f} s, and {held.end - held.first:,} records wait; "
                    f"{end_of_transaction(topic, partition, held.first)}"
                )
        return None


def check_positions(topic: str, positions: Mapping[int, int], bounds: Bounds) -> None:
    """Raise PartitionMissing, OffsetExpired or OffsetAhead unless every position can be read from."""
    for partition, position in positions.items():
        if partition not in bounds:
            raise PartitionMissing(topic, partition, len(bounds))
        earliest, end = bounds[partition]
        if position < earliest:
            raise OffsetExpired(partition, position, earliest)
        if position > end:
            raise OffsetAhead(partition, position, end)


def assigned(positions: dict[int, int] | None, max_records: int) -> dict[int, int]:
    """The positions to poll from. StreamError before `assign`, ValueError for less than one record."""
    if positions is None:
        raise StreamError("assign partitions before polling")
    if max_records < 1:
        raise ValueError("max_records is at least 1")
    return positions


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What a broker is asked to keep of a topic that is created; None sets no limit. Age in seconds.

    `replicas`: copies on different brokers; None is three, or as many as there are brokers. `compacted`: the
    newest record of every key is kept, whatever its age; the other limits are not used then.
    """

    max_age_s: float | None = None
    max_bytes: int | None = None
    replicas: int | None = None
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What may go: older than `oldest` (ms), beyond `share` bytes per partition, and only below `before`.

    None sets no limit; a partition that `before` does not name keeps all it has. `now_ms`: what ages are
    counted from, None where there is no limit of age.
    """

    oldest: int | None
    share: int | None
    before: Mapping[int, int] | None
    now_ms: int | None = None

    def cut(
        self, partition: int, held: range, fresh: Callable[[int], int], fitting: Callable[[int], int]
    ) -> int:
        """The first offset of `held` that stays, `held.stop` when all go.

        fresh(oldest): the first offset that is not too old, or that comes after one. fitting(share): the
        first offset from which on the records have at most that many bytes. Asked only where that is limited.
        """
        first = held.start
        if self.oldest is not None:
            first = max(first, fresh(self.oldest))
        if self.share is not None:
            first = max(first, fitting(self.share))
        if self.before is not None:
            first = max(held.start, min(first, self.before.get(partition, 0)))
        return first


def limits(
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None,
    before: Mapping[int, int] | None,
    partitions: int,
) -> RetentionLimits:
    """The limits of `streams.open.retain` as they hold for each of so many partitions."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    oldest = None if max_age_s is None else now - int(max_age_s * 1000)
    share = None if max_bytes is None else max_bytes // partitions
    return RetentionLimits(oldest, share, before, None if oldest is None else now)


MOST_WITHOUT_RECORDS = 10_000
"""A longer way to the end than this holds records: it is not looked at."""


def past_gaps(source: Source, positions: Mapping[int, int], bounds: Bounds) -> dict[int, int]:
    """The positions moved to the next record, or to the end where none is left.

    Transaction markers, aborted transactions and compaction leave offsets without a record, so that a reader
    that has read everything need not stand at the end. Assigns the source, which is nobody else's.
    Raises StreamUnavailable.
    """
    moved = {}
    for partition, (earliest, end) in bounds.items():
        position = max(earliest, positions.get(partition, earliest))
        moved[partition] = position
        if 0 < end - position <= MOST_WITHOUT_RECORDS:
            source.assign({partition: position})
            batch = next_before(source, {partition: end}, f"partition {partition}", most=1)
            moved[partition] = batch.offsets[0] if batch is not None else source.reached()[partition]
    return moved
