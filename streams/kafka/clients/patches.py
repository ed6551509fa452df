"""What kafka-python does by itself too slowly or without a limit.

Decompression that stops at a limit: a few kilobytes of zeros on the wire can be gigabytes in memory.
kafka-python inflates a whole batch at once, without a limit, and offers no setting for one.

Receiving in large pieces: kafka-python asks a socket for 4 KB at a time. Each of these calls gives the
interpreter's lock away, and where other threads compute it comes back late: an answer of 4 MB waits for
it a thousand times.

Records of a whole batch at once, in compiled code: kafka-python's reader takes a record apart in Python,
which costs more than fetching, decoding and learning it. The compiled reader has the batches that make up
nearly every topic: version 2, uncompressed, not of a transaction, records without headers. From the first
other one on, and from one that fails its checksum, kafka-python's own reader continues.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaConnectionError
from kafka.net import manager
from kafka.net.transport import KafkaTCPTransport
from kafka.record import default_records, legacy_records

from streams.errors import StreamError
from streams.event import Int64Array
from streams.kafka.clients.protocol import Overfull
from streams.limits import MAX_POLL_BYTES
from streams.source import Headers

_GZIP = 16 + zlib.MAX_WBITS


class TooLarge(StreamError):
    """A batch of records is larger than a poll may hold once it is decompressed."""

    def __init__(self) -> None:
        super().__init__(f"a compressed batch holds more than {MAX_POLL_BYTES} bytes")


_poll = threading.local()


def begin() -> None:
    """A poll begins in this thread: together it inflates the limit, and at most one batch more."""
    _poll.held = 0


def install_limits() -> None:
    """Put the limits in place; may be called again. They hold for this process."""
    for module in (default_records, legacy_records):
        module.gzip_decode = GZIP
    for module, name, limited in (
        (default_records, "zstd_decode", ZSTD),
        (default_records, "lz4_decode", LZ4),
        (legacy_records, "lz4_decode", LZ4),
    ):
        if getattr(module, name) is not None:  # None: kafka-python found no library for it, and says so
            setattr(module, name, limited)


def inflate_gzip(payload: Any) -> bytes:
    """One gzip member after the other, up to the limit."""
    parts: list[bytes] = []
    room = MAX_POLL_BYTES
    rest = bytes(payload)
    while rest:
        member = zlib.decompressobj(_GZIP)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise TooLarge
        if not member.eof:
            raise zlib.error("the gzip stream ends too early")
        rest = member.unused_data
    return b"".join(parts)


def inflate_zstd(payload: bytes) -> bytes:
    """All zstd frames, up to the limit."""
    zstandard = import_module("zstandard")
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True)
    with reader:
        return _limited(reader.read(MAX_POLL_BYTES + 1))


def inflate_lz4(payload: bytes) -> bytes:
    """One lz4 frame, up to the limit."""
    frame = import_module("lz4.frame").LZ4FrameDecompressor()
    return _limited(frame.decompress(payload, max_length=MAX_POLL_BYTES + 1))


def _limited(data: Any) -> bytes:
    if len(data) > MAX_POLL_BYTES:
        raise TooLarge
    return bytes(data)


def _counted(inflate: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Inflates unless this poll has inflated enough; raises Overfull then."""

    def counted(payload: Any) -> bytes:
        held = getattr(_poll, "held", 0)
        if held >= MAX_POLL_BYTES:
            raise Overfull("the compressed batches of one answer are too large together")
        data = inflate(payload)
        _poll.held = held + len(data)
        return data

    return counted


GZIP, ZSTD, LZ4 = _counted(inflate_gzip), _counted(inflate_zstd), _counted(inflate_lz4)


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
