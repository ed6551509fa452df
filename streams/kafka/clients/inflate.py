"""Decompression that stops at a limit: a few kilobytes of zeros on the wire can be gigabytes in memory.

kafka-python inflates a whole batch at once, without a limit, and offers no setting for one. Topics that
tripletd creates hold nothing compressed; for all others its decompressing functions are replaced here.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kafka.record import default_records, legacy_records

from streams.errors import StreamError
from streams.kafka.clients.protocol import Overfull
from streams.source import MAX_POLL_BYTES

_GZIP = 16 + zlib.MAX_WBITS


class TooLarge(StreamError):
    """A batch of records is larger than a poll may hold once it is decompressed."""

    def __init__(self) -> None:
        super().__init__(f"a compressed batch holds more than {MAX_POLL_BYTES} bytes")


_poll = threading.local()


def begin() -> None:
    """A poll begins in this thread: together it inflates the limit, and at most one batch more."""
    _poll.held = 0


def install() -> None:
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
