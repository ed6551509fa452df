"""What kafka-python does by itself too slowly, or without a limit.

Receiving in large pieces: kafka-python asks a socket for 4 KB at a time. Each of these calls gives the
interpreter's lock away, and where other threads compute it comes back late: an answer of 4 MB waits for
it a thousand times.

Records of a whole batch at once, in compiled code: kafka-python's reader takes a record apart in Python,
which costs more than fetching, decoding and learning it. The compiled reader has the batches that make up
nearly every topic: version 2, not of a transaction, records without headers, compressed or not. From the
first other one on, and from one that fails its checksum, kafka-python's own reader continues.

Decompression that stops at a limit, for each of Kafka's codecs: a few kilobytes of zeros on the wire can be
gigabytes in memory. kafka-python inflates a whole batch at once, and offers no setting for a limit; these
take the places of its decoders.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import cramjam
import lz4.frame
import numpy as np
import zstandard
from kafka import codec as kafka_codec
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaConnectionError
from kafka.net import manager
from kafka.net.transport import KafkaTCPTransport
from kafka.record import default_records, legacy_records

from streams.errors import StreamError
from streams.event import Int64Array
from streams.kafka.clients.protocol import Overfull
from streams.limits import MAX_POLL_BYTES
from streams.source import Headers

RECEIVE_BYTES = 1 << 18


class WideTransport(KafkaTCPTransport):  # type: ignore[misc]
    """kafka-python's plain connection; with TLS, whose records have 16 KB at most, it stays as it is."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
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
        batches = _Batches(records)
        try:
            yield from self._unpack_batches(tp, batches, *deserializers)
        except Exception as error:
            if not (isinstance(error, CorruptRecordError) and _FAILED_CHECK in str(error)):
                error.__dict__[_LAST_OFFSET] = batches.last_offset
            raise

    def _unpack_batches(self, tp: Any, batches: _Batches, *deserializers: Any) -> Iterator[Any]:
        batch = batches.next_batch()
        quick = self.check_crcs and batches.records.size_in_bytes() >= MIN_BYTES
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
            batch = batches.next_batch()
        batches.given_back = batch
        del batch  # or it would be held, inflated, for as long as there is a rest
        yield from super()._unpack_records(tp, batches, *deserializers)


_FAILED_CHECK = "failed crc check"
"""In the words of kafka-python: what such a batch says of itself is not to be believed."""
_LAST_OFFSET = "tripletd_last_offset"


def last_offset_of(error: Exception) -> int | None:
    """The last offset of the batch that cannot be read, where that is why a poll failed and it is known."""
    found: int | None = getattr(error, _LAST_OFFSET, None)
    return found


class _Batches:
    """Hands batches on, one that was given back first; remembers what the newest says of its end."""

    def __init__(self, records: Any) -> None:
        self.records = records
        self.given_back: Any = None
        self.last_offset: int | None = None

    def next_batch(self) -> Any:
        """The next batch, None behind the last."""
        batch, self.given_back, self.last_offset = self.given_back, None, None
        if batch is None:
            batch = self.records.next_batch()
        if batch is not None and batch.magic == 2:
            self.last_offset = batch.last_offset
        return batch


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
    epoch = batch.leader_epoch
    for one in batch:
        yield QuickRecord(epoch, one.offset, one.timestamp, one.key, one.value, one.headers)


def _parts(data: bytes, starts: Int64Array, ends: Int64Array) -> Iterable[bytes | None]:
    if (ends < 0).all():
        return repeat(None)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return [None if end < 0 else data[start:end] for start, end in bounds]


_PIECE = 1 << 20
"""What is inflated at a time, where a library would otherwise make room for the limit at once."""

_GZIP = 16 + zlib.MAX_WBITS
_XERIAL, _XERIAL_HEADER = b"\x82SNAPPY\x00", 16
"""What Java and kafka-python put before snappy's blocks, each of which follows its length; librdkafka writes
one bare block."""


class TooLarge(StreamError):
    """A batch of records is larger than a poll may hold once it is decompressed."""

    def __init__(self) -> None:
        super().__init__(f"a compressed batch holds more than {MAX_POLL_BYTES} bytes")


class CutShort(StreamError):
    """Compressed bytes end before what they hold does."""


_poll = threading.local()


def begin_poll() -> None:
    """A poll begins in this thread: together it inflates the limit, and at most one batch more."""
    _poll.held = 0


def install_limits() -> None:
    """Put the limits in place; may be called again. They hold for this process."""
    for module in (kafka_codec, default_records, legacy_records):
        for name, limited in LIMITED.items():
            if hasattr(module, name):
                setattr(module, name, limited)


class _Parts:
    """What was inflated so far, up to the limit."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.room = MAX_POLL_BYTES

    @property
    def next(self) -> int:
        """Bytes of the next piece at most: one more than there is room for, which tells that it is full."""
        return min(_PIECE, self.room + 1)

    def add(self, part: bytes) -> None:
        """Take one more; raises TooLarge."""
        self.room -= len(part)
        if self.room < 0:
            raise TooLarge
        self._parts.append(part)

    def joined(self) -> bytes:
        """The whole content."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def inflate_gzip(payload: Any) -> bytes:
    """One gzip member after the other, up to the limit."""
    parts, rest = _Parts(), bytes(payload)
    while rest:
        member = zlib.decompressobj(_GZIP)
        parts.add(member.decompress(rest, parts.room + 1))
        if not member.eof:
            raise CutShort("the gzip stream ends too early")
        rest = member.unused_data
    return parts.joined()


def inflate_snappy(payload: bytes) -> bytes:
    """One bare block, or those within Xerial's frame, up to the limit."""
    parts = _Parts()
    if not payload.startswith(_XERIAL):
        parts.add(_snappy_block(payload, parts.room))
        return parts.joined()
    place = _XERIAL_HEADER
    while place < len(payload):
        start = place + 4
        place = start + (struct.unpack_from(">i", payload, place)[0] if start <= len(payload) else 0)
        if not start < place <= len(payload):
            raise CutShort("the snappy stream ends too early")
        parts.add(_snappy_block(payload[start:place], parts.room))
    return parts.joined()


def _snappy_block(block: bytes, room: int) -> bytes:
    """A block tells its length first, and the library holds it to that."""
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise TooLarge
    return bytes(cramjam.snappy.decompress_raw(block))


def inflate_lz4(payload: bytes) -> bytes:
    """One lz4 frame after the other, up to the limit."""
    parts, rest = _Parts(), payload
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            part = frame.decompress(rest, max_length=parts.next)
            if not (part or frame.eof) and frame.needs_input:
                raise CutShort("the lz4 stream ends too early")
            parts.add(part)
            rest = b""
        rest = frame.unused_data or b""
    return parts.joined()


def inflate_zstd(payload: bytes) -> bytes:
    """All zstd frames, up to the limit. The records inside show whether one ends too early."""
    parts = _Parts()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True) as reader:
        while part := reader.read(parts.next):
            parts.add(part)
    return parts.joined()


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


LIMITED = {
    "gzip_decode": _counted(inflate_gzip),
    "snappy_decode": _counted(inflate_snappy),
    "lz4_decode": _counted(inflate_lz4),
    "zstd_decode": _counted(inflate_zstd),
}
"""By the names that kafka-python has for its own."""
