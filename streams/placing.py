"""What every log checks alike: outgoing records, and positions against a log's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams.errors import OffsetAhead, OffsetExpired, PartitionMissing, RecordRefused, StreamError
from streams.routing import partition_of
from streams.source import MAX_RECORD_BYTES, OutRecord

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
