"""Text that others wrote: a byte order mark is no part of it, and another encoding than UTF-8 is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

MAX_LINE_BYTES = 4 * 1024 * 1024
"""No longer line is held in memory."""

MAX_JSON_MEMORY = 48_000_000
"""What the values of one text of JSON may take, by `json_memory`; with its letters less than 100 MB."""

MARK = b"\xef\xbb\xbf"


class TooManyValues(ValueError):
    """JSON whose values would take far more memory than its text."""


def json_memory(text: str | bytes) -> int:
    """About how many bytes the values of JSON take: of nested lists 100 each, which are two bytes of text."""
    one, lists, maps = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    return 32 * text.count(one) + 104 * text.count(lists) + 184 * text.count(maps)  # type: ignore[arg-type]


def check_json(text: str | bytes) -> None:
    """Raise TooManyValues for JSON that is too long, or would take too much memory."""
    if len(text) > MAX_LINE_BYTES:
        raise TooManyValues(f"longer than {MAX_LINE_BYTES:,} bytes")
    if 184 * len(text) > MAX_JSON_MEMORY and json_memory(text) > MAX_JSON_MEMORY:
        raise TooManyValues("more values than there is room for in memory")


def read_json(text: str | bytes) -> Any:
    """What JSON says. Raises ValueError, as TooManyValues where it takes too much, and RecursionError."""
    check_json(text)
    return json.loads(text)


def mark_length(start: bytes) -> int:
    """Bytes of the mark that text begins with, of which `start` are the first four bytes: 3 or 0.

    Raises ValueError, with the remedy, for UTF-16 and UTF-32, as PowerShell and Excel write them.
    """
    encoding = json.detect_encoding(start)
    if not encoding.startswith("utf-8"):
        raise ValueError(f"{encoding[:6].upper()} text; save it as UTF-8")
    return len(MARK) if start.startswith(MARK) else 0


def utf8_text(data: bytes) -> str:
    """The text, without its mark. Raises ValueError with the remedy."""
    try:
        return data[mark_length(data[:4]) :].decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_text(path: Path) -> str:
    """The text of a file, as `utf8_text`. Raises OSError too."""
    return utf8_text(path.read_bytes())


def numbered_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of text that are not blank, with their numbers from 1, without a mark.

    Raises ValueError with the remedy: for another encoding, and for a line longer than MAX_LINE_BYTES.
    """
    number, start = 0, file.read(4)
    file.seek(mark_length(start) if start else 0)
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(
                f"line {number} is longer than {MAX_LINE_BYTES:,} bytes; write an object per line"
            )
        if not line.isspace():
            yield number, line
