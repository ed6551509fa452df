"""What kafka-python does with each record, done for a whole batch at once in compiled code.

Its own reader takes a record apart in Python, which costs more than fetching, decoding and learning it. Here
are the batches that make up nearly every topic: version 2, uncompressed, not of a transaction, records
without headers. From the first other one on, and from one that fails its checksum, its own reader goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from kafka.consumer.fetcher import Fetcher

from streams.source import Headers
from streams.vectors import Int64Array

MIN_BYTES = 1 << 14
"""An answer of fewer is read by the library alone: nothing compiled is loaded for a look at a few records."""

MIN_RECORD_BYTES = 7
"""One byte for each of its parts."""


class QuickRecord(NamedTuple):
    """The fields of kafka-python's record that are looked at here."""

    leader_epoch: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class QuickRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one partition in one answer of a broker, read ahead of `take`."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Iterator[Any]:
        batch = records.next_batch()
        quick = self.check_crcs and records.size_in_bytes() >= MIN_BYTES
        while batch is not None and quick:
            found = _records_of(batch)
            if found is None:
                break
            self.leader_epoch = batch.leader_epoch
            self.bytes_read += batch.size_in_bytes
            for record in found:
                self.next_fetch_offset = record.offset + 1
                yield record
            self.next_fetch_offset = batch.next_offset
            batch = records.next_batch()
        rest = _Rest(batch, records)
        del batch  # or it would be held, inflated, for as long as there is a rest
        yield from super()._unpack_records(tp, rest, *deserializers)


class _Rest:
    """A batch that was taken already, None behind the last, and those that come after it."""

    def __init__(self, first: Any, records: Any) -> None:
        self._first, self._records = first, records

    def next_batch(self) -> Any:
        """The next batch, None behind the last."""
        first, self._first = self._first, None
        return self._records.next_batch() if first is None else first


def _records_of(batch: Any) -> Iterator[QuickRecord] | None:
    """The records of a batch; None where the library's own reader has to look at it."""
    if batch.magic != 2 or batch.compression_type or batch.is_control_batch or batch.is_transactional:
        return None
    count = batch.records_count
    if not 0 < count * MIN_RECORD_BYTES <= batch.size_in_bytes or not batch.validate_crc():
        return None
    from streams.compiled.kafka_records import FIELDS, read_records  # brings numba in

    data, table = bytes(batch._buffer), np.empty((FIELDS, count), np.int64)
    if not read_records(np.frombuffer(data, np.uint8), batch.HEADER_STRUCT.size, table):
        return None
    times, offsets, *places = table
    by_log = batch.timestamp_type == batch.LOG_APPEND_TIME
    return map(
        QuickRecord,
        repeat(batch.leader_epoch),
        (offsets + batch.base_offset).tolist(),
        repeat(batch.max_timestamp) if by_log else (times + batch.first_timestamp).tolist(),
        _parts(data, *places[:2]),
        _parts(data, *places[2:]),
    )


def _parts(data: bytes, starts: Int64Array, ends: Int64Array) -> Iterable[bytes | None]:
    if (ends < 0).all():
        return repeat(None)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return [None if end < 0 else data[start:end] for start, end in bounds]
