"""Decompression that stops at a limit, for each of Kafka's codecs.

A few kilobytes of zeros on the wire can be gigabytes in memory. kafka-python inflates a whole batch at once,
without a limit, and offers no setting for one; these take the places of its decoders.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import zstandard
from kafka import codec as kafka_codec
from kafka.record import default_records, legacy_records

from streams.errors import StreamError
from streams.kafka.clients.protocol import Overfull
from streams.limits import MAX_POLL_BYTES

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

    def __init__(self, codec: str) -> None:
        super().__init__(f"the {codec} stream ends too early")


_poll = threading.local()


def begin() -> None:
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
        """All of it."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def inflate_gzip(payload: Any) -> bytes:
    """One gzip member after the other, up to the limit."""
    parts, rest = _Parts(), bytes(payload)
    while rest:
        member = zlib.decompressobj(_GZIP)
        parts.add(member.decompress(rest, parts.room + 1))
        if not member.eof:
            raise CutShort("gzip")
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
            raise CutShort("snappy")
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
                raise CutShort("lz4")
            parts.add(part)
            rest = b""
        rest = frame.unused_data or b""
    return parts.joined()


def inflate_zstd(payload: bytes) -> bytes:
    """All zstd frames, up to the limit. One that ends too early is told by the records in it."""
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
