"""Whether bytes are a text of the format: 1 to 512 bytes of UTF-8, judged as Python's strict decoder does."""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.compiled.compile import inlined
from streams.wire import MAX_TEXT_BYTES


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
