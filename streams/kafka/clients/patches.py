"""What kafka-python does by itself too slowly.

Receiving in large pieces: kafka-python asks a socket for 4 KB at a time. Each of these calls gives the
interpreter's lock away, and where other threads compute it comes back late: an answer of 4 MB waits for
it a thousand times.

Records of a whole batch at once, in compiled code: kafka-python's reader takes a record apart in Python,
which costs more than fetching, decoding and learning it. The compiled reader has the batches that make up
nearly every topic: version 2, not of a transaction, records without headers, compressed or not. From the
first other one on, and from one that fails its checksum, kafka-python's own reader continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaConnectionError
from kafka.net import manager
from kafka.net.transport import KafkaTCPTransport

from streams.event import Int64Array
from streams.source import Headers

RECEIVE_BYTES = 1 << 18


class WideTransport(KafkaTCPTransport):  # type: ignore[misc]
    """kafka-python's plain connection; with TLS, whose records have 16 KB at most, it stays as it is."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """What the socket holds, and what ended the connection, if anything did."""
        parts: list[bytes] = []
        try:
            while not parts or len(parts[-1]) == RECEIVE_BYTES:
                parts.append(self._sock.recv(RECEIVE_BYTES))
        except (BlockingIOError, InterruptedError):
            return b"".join(parts), None
        except OSError as problem:
            return b"", KafkaConnectionError(problem)
        ended = None if parts[-1] else KafkaConnectionError("the broker has closed the connection")
        return b"".join(parts), ended


def install_wide_receive() -> None:
    """Connections made from now on in this process receive so; may be called again."""
    manager.KafkaTCPTransport = WideTransport


MIN_BYTES = 1 << 14
"""An answer of fewer is read by the library alone: nothing compiled is loaded for a look at a few records."""

MIN_RECORD_BYTES = 7
"""One byte for each of its parts."""

MOST_INFLATED, MOST_INFLATED_BYTES = 100_000, 8 << 20
"""Of a compressed batch with more records or bytes, one record at a time is taken, not all as columns."""


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
        noting = _Noting(records)
        try:
            yield from self._unpack_noted(tp, noting, *deserializers)
        except Exception as error:
            if not (isinstance(error, CorruptRecordError) and _FAILED_CHECK in str(error)):
                error.__dict__[_LAST_OFFSET] = noting.last_offset
            raise

    def _unpack_noted(self, tp: Any, records: Any, *deserializers: Any) -> Iterator[Any]:
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


_FAILED_CHECK = "failed crc check"
"""In the words of kafka-python: what such a batch says of itself is not to be believed."""
_LAST_OFFSET = "tripletd_last_offset"


def last_offset_of(error: Exception) -> int | None:
    """The last offset of the batch that cannot be read, where that is why a poll failed and it is known."""
    found: int | None = getattr(error, _LAST_OFFSET, None)
    return found


class _Noting:
    """Hands batches on, and remembers what the newest one says of its end."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self.last_offset: int | None = None

    def size_in_bytes(self) -> int:
        """Of the whole answer."""
        size: int = self._records.size_in_bytes()
        return size

    def next_batch(self) -> Any:
        """The next batch, None behind the last."""
        self.last_offset = None
        batch = self._records.next_batch()
        if batch is not None and batch.magic == 2:
            self.last_offset = batch.last_offset
        return batch


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
    if batch.magic != 2 or batch.is_control_batch or batch.is_transactional:
        return None
    count, size = batch.records_count, batch.size_in_bytes
    if batch.compression_type:
        if count < 1 or not batch.validate_crc():
            return None
        batch._maybe_uncompress()
        size = len(batch._buffer)
        if count > MOST_INFLATED or not count * MIN_RECORD_BYTES <= size <= MOST_INFLATED_BYTES:
            return _one_by_one(batch)
    elif not 0 < count * MIN_RECORD_BYTES <= size or not batch.validate_crc():
        return None
    from streams.compiled.kafka_records import FIELDS, read_records  # brings numba in

    data, table = bytes(batch._buffer), np.empty((FIELDS, count), np.int64)
    if not read_records(np.frombuffer(data, np.uint8), batch._pos, table):
        return _one_by_one(batch) if batch.compression_type else None
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


def _one_by_one(batch: Any) -> Iterator[QuickRecord]:
    """Records of a batch that is inflated already, each taken apart by the library."""
    epoch = batch.leader_epoch
    for one in batch:
        yield QuickRecord(epoch, one.offset, one.timestamp, one.key, one.value, one.headers)


def _parts(data: bytes, starts: Int64Array, ends: Int64Array) -> Iterable[bytes | None]:
    if (ends < 0).all():
        return repeat(None)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return [None if end < 0 else data[start:end] for start, end in bounds]
