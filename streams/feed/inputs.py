"""Opening what is to be fed: a file, a gzip file or `-` for standard input, and its lines."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from streams.feed.items import FeedError

STDIN = "-"

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is dropped as malformed instead of being held in memory."""

GZIP_MAGIC = b"\x1f\x8b"

BUFFER_BYTES = 1 << 16

READ_ERRORS = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line: its number (from 1) and its bytes; None where it was longer than MAX_LINE_BYTES."""

    number: int
    data: bytes | None


class Input(AbstractContextManager["Input"]):
    """A readable input, opened at the first look and readable once more after `close`.

    What cannot be read twice (stdin, a pipe such as a shell's `<(...)`) stays open where it is instead.

    `name` is what messages call it.  Gzip is recognised by its first two bytes, whatever the name.
    Every method raises FeedError for what cannot be opened or read.
    """

    def __init__(self, path: str) -> None:
        self.name = "stdin" if path == STDIN else path
        self._path = path
        self._stream: io.BufferedReader | None = None
        self._peeked: list[bytes] = []
        self._again = False

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next look opens it again from its beginning.  Leaves stdin and pipes open."""
        if self._stream is not None and self._again:
            self._stream.close()
            self._stream = None
            self._peeked = []

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
            while not self._peeked or self._peeked[-1].isspace():
                data = stream.readline(MAX_LINE_BYTES + 1)
                if not data:
                    return b""
                self._peeked.append(data)
        except READ_ERRORS as error:
            raise _damaged(f"{self.name}:{len(self._peeked) + 1}", error) from None
        return self._peeked[-1]

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, as they come; empty at the end."""
        try:
            return self._opened().read1(size)
        except READ_ERRORS as error:
            raise _damaged(self.name, error) from None

    def lines(self) -> Iterator[InputLine]:
        """The lines, without those that are blank."""
        number = 0
        try:
            for data in self._raw_lines():
                number += 1
                if len(data) > MAX_LINE_BYTES:
                    while data and not data.endswith(b"\n"):
                        data = self._opened().readline(MAX_LINE_BYTES)
                    yield InputLine(number, None)
                elif not data.isspace():
                    yield InputLine(number, data)
        except READ_ERRORS as error:
            raise _damaged(f"{self.name}:{number + 1}", error) from None

    def _raw_lines(self) -> Iterator[bytes]:
        stream = self._opened()
        while self._peeked:
            yield self._peeked.pop(0)
        while data := stream.readline(MAX_LINE_BYTES + 1):
            yield data

    def _opened(self) -> io.BufferedReader:
        if self._stream is None:
            raw = _open(self._path)
            self._again = self._path != STDIN and raw.seekable()
            try:
                packed = raw.peek(2)[:2] == GZIP_MAGIC
            except READ_ERRORS as error:
                raise _damaged(self.name, error) from None
            self._stream = _unpacked(raw) if packed else raw
        return self._stream


def _unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw, mode="rb")), BUFFER_BYTES)


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
    return FeedError(
        f"{place}: cannot be read any further: {error}",
        "the file is damaged or cut short; what came before was fed; copy it and feed it again",
    )
