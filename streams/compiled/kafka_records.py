"""The records of an uncompressed Kafka batch, version 2: where each one's key and value are.

Taken is what nearly every batch holds, records without attributes and headers; the client's own reader has
the rest, and the words for what is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, inlined, kernel

TIME, OFFSET, KEY, KEY_END, VALUE, VALUE_END, FIELDS = range(7)
"""Columns of the table: both deltas, then places; an end of -1 is that of a null."""

MAX_WIDTH = 10
"""Bytes of the longest varint of 64 bits."""


@inlined
def varint(data: Any, at: int, end: int) -> Any:
    """(place after it, the number); a place of -1 where none ends before `end`."""
    value, shift = np.uint64(0), np.uint64(0)
    for place in range(at, min(end, at + MAX_WIDTH)):
        byte = np.uint64(data[place])
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return place + 1, np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
        shift += np.uint64(7)
    return -1, np.int64(0)


@inlined
def sized(data: Any, at: int, end: int) -> Any:
    """(start, end) of bytes that follow their length; an end of -1 for null, a start of -1 if unreadable."""
    start, size = varint(data, at, end)
    if start < 0 or size < -1 or size > end - start:
        return -1, -1
    return start, (start + size if size >= 0 else -1)


@inlined
def read_record(data: Any, at: int, end: int, table: Any, row: int) -> Any:
    """The place after the record at `at`, which fills a row of the table; -1 unless it is an ordinary one."""
    start, size = varint(data, at, end)
    if start < 0 or size < 1 or size > end - start or data[start] != 0:
        return -1
    stop = start + size
    after_time, table[TIME, row] = varint(data, start + 1, stop)
    if after_time < 0:
        return -1
    after_offset, table[OFFSET, row] = varint(data, after_time, stop)
    if after_offset < 0:
        return -1
    key, key_end = sized(data, after_offset, stop)
    if key < 0:
        return -1
    value, value_end = sized(data, max(key, key_end), stop)
    if value < 0:
        return -1
    table[KEY, row], table[KEY_END, row] = key, key_end
    table[VALUE, row], table[VALUE_END, row] = value, value_end
    after, headers = varint(data, max(value, value_end), stop)
    return stop if after == stop and headers == 0 else -1


@kernel(types.boolean(BYTES, types.int64, types.int64[:, ::1]))
def read_records(data: Any, at: int, table: Any) -> Any:
    """Whether [at, end of data) is as many ordinary records as the table int64 [FIELDS, n] has room for.

    It is filled then; else it is undefined.
    """
    end = len(data)
    for record in range(table.shape[1]):
        at = read_record(data, at, end, table, record)
        if at < 0:
            return False
    return at == end
