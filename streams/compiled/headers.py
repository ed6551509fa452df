"""msgpack's headers and texts, every read within [at, end); UNUSUAL where something else is found.

Texts and maps with four-byte lengths are legal and left to the plain decoder: no writer uses one for a
text of at most 512 bytes or a map of a few entries. A text has 1 to 512 bytes of UTF-8, judged as
Python's strict decoder does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.compiled.compile import inlined
from streams.limits import MAX_TEXT_BYTES

UNUSUAL = -1
"""Not what an ordinary event has here: the plain decoder has to look at the record."""

KEY_BYTES = 5
"""The longest key of the format: views."""


def key_code(name: str) -> int:
    """The code under which `read_key` gives a key: a 1 that marks the length, then the bytes."""
    return int.from_bytes(b"\x01" + name.encode())


@inlined
def big_endian(data: Any, at: int, width: int) -> Any:
    """The `width` <= 8 bytes from `at` as int64; eight bytes with the highest bit set are negative."""
    value = np.int64(0)
    for place in range(at, at + width):
        value = (value << np.int64(8)) | np.int64(data[place])
    return value


@inlined
def sized(data: Any, at: int, end: int, width: int) -> Any:
    """[start, stop) of a payload whose length is in the `width` bytes from `at`."""
    if width > end - at:
        return UNUSUAL, UNUSUAL
    start = at + width
    size = big_endian(data, at, width)
    if size > end - start:
        return UNUSUAL, UNUSUAL
    return start, start + size


@inlined
def text(data: Any, at: int, end: int) -> Any:
    """[start, stop) of the bytes of a text, which may be anything."""
    if at >= end:
        return UNUSUAL, UNUSUAL
    head = np.int64(data[at])
    if 0xA0 <= head <= 0xBF:
        start, stop = at + 1, at + 1 + (head & 0x1F)
        return (start, stop) if stop <= end else (UNUSUAL, UNUSUAL)
    if head in (0xD9, 0xDA):
        return sized(data, at + 1, end, head - 0xD8)
    return UNUSUAL, UNUSUAL


@inlined
def binary(data: Any, at: int, end: int) -> Any:
    """[start, stop) of a byte string."""
    if at >= end:
        return UNUSUAL, UNUSUAL
    head = np.int64(data[at])
    if head < 0xC4 or head > 0xC6:
        return UNUSUAL, UNUSUAL
    return sized(data, at + 1, end, 1 << (head - 0xC4))


@inlined
def map_header(data: Any, at: int, end: int) -> Any:
    """(place of the first key, number of entries)."""
    if at >= end:
        return UNUSUAL, 0
    head = np.int64(data[at])
    if 0x80 <= head <= 0x8F:
        return at + 1, head & 0x0F
    if head == 0xDE and end - at >= 3:
        return at + 3, big_endian(data, at + 1, 2)
    return UNUSUAL, 0


@inlined
def pair_header(data: Any, at: int, end: int) -> Any:
    """The place after the header of a list of two."""
    if at < end and np.int64(data[at]) == 0x92:
        return at + 1
    if end - at >= 3 and np.int64(data[at]) == 0xDC and big_endian(data, at + 1, 2) == 2:
        return at + 3
    return UNUSUAL


@inlined
def read_key(data: Any, at: int, end: int) -> Any:
    """(place after the key, its `key_code`)."""
    start, stop = text(data, at, end)
    if start < 0 or stop - start > KEY_BYTES:
        return UNUSUAL, 0
    code = np.int64(1)
    for place in range(start, stop):
        code = (code << np.int64(8)) | np.int64(data[place])
    return stop, code


@inlined
def whole_number(data: Any, at: int, end: int) -> Any:
    """(place after it, the number) of a whole number in 0 .. 2^63 - 1, written in any width."""
    if at >= end:
        return UNUSUAL, 0
    head = np.int64(data[at])
    if head <= 0x7F:
        return at + 1, head
    if head < 0xCC or head > 0xD3:
        return UNUSUAL, 0
    width = 1 << ((head - 0xCC) & 3)
    if width > end - at - 1:
        return UNUSUAL, 0
    value = big_endian(data, at + 1, width)
    signed = head >= 0xD0
    if value < 0 or (signed and value >> np.int64(8 * width - 1)):
        return UNUSUAL, 0
    return at + 1 + width, value


@inlined
def number(data: Any, at: int, end: int) -> Any:
    """(place after it, the number) of a float of either width or a whole number."""
    if at >= end:
        return UNUSUAL, 0.0
    head = np.int64(data[at])
    if head == 0xCB and end - at > 8:
        return at + 9, np.int64(big_endian(data, at + 1, 8)).view(np.float64)
    if head == 0xCA and end - at > 4:
        return at + 5, np.float64(np.int32(big_endian(data, at + 1, 4)).view(np.float32))
    after, value = whole_number(data, at, end)
    return after, np.float64(value)


@inlined
def is_text(data: Any, start: int, stop: int) -> Any:
    """Whether the bytes in [start, stop) are UTF-8, neither none nor too many."""
    if stop <= start or stop - start > MAX_TEXT_BYTES:
        return False
    every = np.int64(0)
    for place in range(start, stop):
        every |= np.int64(data[place])
    return every < 0x80 or is_utf8(data, start, stop)


@inlined
def is_utf8(data: Any, start: int, stop: int) -> Any:
    """The Unicode Standard, table 3-7: no overlong form, no surrogate, nothing above U+10FFFF."""
    at = start
    while at < stop:
        lead = np.int64(data[at])
        more = continuations(lead)
        if more < 0 or more >= stop - at:
            return False
        if more > 0 and not second_fits(lead, np.int64(data[at + 1])):
            return False
        for place in range(at + 2, at + 1 + more):
            if (np.int64(data[place]) & 0xC0) != 0x80:
                return False
        at += 1 + more
    return True


@inlined
def continuations(lead: int) -> Any:
    """How many bytes follow this first byte of a character; -1 where none can begin with it."""
    if lead < 0x80:
        return 0
    if lead < 0xC2 or lead > 0xF4:
        return -1
    return 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)


@inlined
def second_fits(lead: int, second: int) -> Any:
    """Whether the second byte of a character is one that may follow the first."""
    low, high = 0x80, 0xBF
    if lead == 0xE0:
        low = 0xA0
    elif lead == 0xED:
        high = 0x9F
    elif lead == 0xF0:
        low = 0x90
    elif lead == 0xF4:
        high = 0x8F
    return low <= second <= high
