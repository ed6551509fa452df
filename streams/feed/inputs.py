"""Opening what is to be fed: a file, a compressed one or `-` for standard input, and its lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import zstandard

from streams.feed.items import FeedError
from streams.text_files import MAX_LINE_BYTES, mark_length

STDIN = "-"

WINDOW_BYTES = 64 << 20
"""Of what came before, as much as inflating may look back at: `xz -9` does; zstd beyond its level 19 and
`--long` may look back further, and are refused."""

PIECE_BYTES = 1 << 8
"""Compressed bytes that are inflated together: of these zstd makes at most 8 MB (4 bytes stand for a block of
128 KiB), xz less."""

BUFFER_BYTES = 1 << 16

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line: its number (from 1) and its bytes; None where it was longer than MAX_LINE_BYTES."""

    number: int
    data: bytes | None


class Input(AbstractContextManager["Input"]):
    """A readable input, opened at the first look and readable once more after `close`.

    What cannot be read twice (stdin, a pipe such as a shell's `<(...)`) stays open where it is instead.

    `name` is what messages call it. Compression is recognized by the first bytes, whatever the name: gzip,
    bzip2, xz and zstd. A byte order mark is no part of the input.
    Every method raises FeedError for what cannot be opened or read.
    """

    def __init__(self, path: str) -> None:
        self.name = "stdin" if path == STDIN else path
        self._path = path
        self._stream: io.BufferedReader | None = None
        self._blank = 0
        """Lines before the first one that was looked at, which are blank."""
        self._first = b""
        self._again = False

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next look opens it again from its beginning.  Leaves stdin and pipes open."""
        if self._stream is not None and self._again:
            self._stream.close()
            self._stream, self._blank, self._first = None, 0, b""

    def first_byte(self) -> bytes:
        """The first byte, which stays to be read; empty for an empty input."""
        try:
            return self._opened().peek(1)[:1]
        except READ_ERRORS as error:
            raise _damaged(self.name, error) from None

    def first_line(self) -> bytes:
        """The first line that is not blank, which stays to be read; empty where there is none."""
        stream = self._opened()
        try:
            while not self._first:
                data = stream.readline(MAX_LINE_BYTES + 1)
                if not data:
                    return b""
                if data.isspace():
                    self._blank += data.endswith(b"\n")
                else:
                    self._first = data
        except READ_ERRORS as error:
            raise _damaged(f"{self.name}:{self._blank + 1}", error) from None
        return self._first

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, as they come; empty at the end."""
        try:
            return self._opened().read1(size)
        except READ_ERRORS as error:
            raise _damaged(self.name, error) from None

    def lines(self) -> Iterator[InputLine]:
        """The lines, without those that are blank."""
        stream, number = self._opened(), self._blank
        try:
            data, self._first = self._first, b""
            while data := data or stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(data) > MAX_LINE_BYTES:
                    while data and not data.endswith(b"\n"):
                        data = stream.readline(MAX_LINE_BYTES)
                    yield InputLine(number, None)
                elif not data.isspace():
                    yield InputLine(number, data)
                data = b""
        except READ_ERRORS as error:
            raise _damaged(f"{self.name}:{number + 1}", error) from None

    def _opened(self) -> io.BufferedReader:
        if self._stream is None:
            raw = _open(self._path)
            self._again = self._path != STDIN and raw.seekable()
            try:
                stream = _inflated(raw, self.name)
                start = stream.peek(4)[:4]
                if start and not is_msgpack_map(start[0]):
                    stream.read(mark_length(start))
            except READ_ERRORS as error:
                raise _damaged(self.name, error) from None
            except ValueError as error:
                message, _, remedy = str(error).partition("; ")
                raise FeedError(f"{self.name}: {message}", remedy) from None
            self._stream = stream
        return self._stream


def is_msgpack_map(first: int) -> bool:
    """Whether a byte begins a map of msgpack."""
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _inflated(raw: io.BufferedReader, name: str) -> io.BufferedReader:
    """What is in a compressed file, or the file itself. Raises FeedError for a codec that is not read."""
    start = raw.peek(6)[:6]
    if start.startswith(b"\x28\xb5\x2f\xfd") or start[1:4] == b"\x2a\x4d\x18":  # the latter can be skipped
        zstd = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        return _buffered(_Frames(raw, zstd.decompressobj))
    if start.startswith(b"\xfd7zXZ\0"):
        limit = WINDOW_BYTES + (8 << 20)  # beside the window xz needs a little
        return _buffered(_Frames(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit)))
    if start.startswith(b"\x1f\x8b"):
        return _buffered(gzip.GzipFile(fileobj=raw, mode="rb"))
    if start.startswith(b"BZh"):
        return _buffered(bz2.BZ2File(raw))
    for magic, codec in _NOT_READ.items():
        if start.startswith(magic):
            raise FeedError(f"{name} is packed as {codec}, which is not read", "pack it with gzip or zstd")
    return raw


_NOT_READ = {b"\x04\x22\x4d\x18": "lz4", b"PK\3\4": "zip", b"\x1f\x9d": "compress (.Z)"}


def _buffered(stream: Any) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, stream), BUFFER_BYTES)


class _Frames(io.RawIOBase):
    """What compressed frames that follow each other hold; `begin` gives what inflates one of them."""

    def __init__(self, raw: io.BufferedReader, begin: Callable[[], Any]) -> None:
        self._raw, self._begin = raw, begin
        self._frame: Any = None
        self._rest, self._held = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            piece = self._rest or self._raw.read(PIECE_BYTES)
            if not piece and self._frame is not None:
                raise EOFError("it ends in the middle of compressed data")
            if not piece:
                return 0
            self._inflate(piece)
        size = min(len(buffer), len(self._held))
        buffer[:size], self._held = self._held[:size], self._held[size:]
        return size

    def _inflate(self, piece: bytes) -> None:
        self._rest = b""
        if self._frame is None:
            piece = piece.lstrip(b"\0")  # xz pads; no frame begins so
            if not piece:
                return
            self._frame = self._begin()
        self._held = memoryview(self._frame.decompress(piece))
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, None


def _open(path: str) -> io.BufferedReader:
    if path == STDIN:
        if sys.stdin is None:
            raise FeedError("standard input is closed", "give the path of a click log, or pipe one in")
        return cast(io.BufferedReader, sys.stdin.buffer)
    try:
        return cast(io.BufferedReader, Path(path).open("rb", buffering=BUFFER_BYTES))
    except FileNotFoundError:
        raise FeedError(f"{path} does not exist", "give the path of a click log, or - for stdin") from None
    except IsADirectoryError:
        raise FeedError(f"{path} is a folder", "give the files in it one by one") from None
    except ValueError:
        raise FeedError(f"{path!r} is not a path", "give the path of a click log, or - for stdin") from None
    except OSError as error:
        raise FeedError(f"{path} cannot be opened: {error.strerror}", "check its permissions") from None


def _damaged(place: str, error: BaseException) -> FeedError:
    remedy = "the file is damaged or cut short; what came before was fed; copy it and feed it again"
    if isinstance(error, lzma.LZMAError | zstandard.ZstdError) and "memory" in str(error).lower():
        remedy = f"pack it without --long and --ultra: inflating looks back {WINDOW_BYTES >> 20} MiB at most"
    return FeedError(f"{place}: cannot be read any further: {error}", remedy)
