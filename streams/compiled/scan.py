"""From the bytes of records to a table of what is in them; no vector is copied yet.

A record is taken when it is an event as FORMAT.md has it, in this space, its ids in the catalog where they
are needed. What is not is left to the plain decoder, which knows the reason.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, LONGS, inlined, kernel
from streams.compiled.hashing import xxh64
from streams.compiled.headers import UNUSUAL, key_code, map_header, number, read_key, text, whole_number
from streams.compiled.index import INDEX, same
from streams.compiled.layout import SPACE, TABLE
from streams.compiled.objects import read_object
from streams.compiled.text import is_text
from streams.wire import FORMAT_VERSION, KEYED_VERSION, MAX_KEY_BYTES, MAX_TS, MAX_WEIGHT

V, ID, TS, Q, C, S = (key_code(name) for name in ("v", "id", "ts", "q", "c", "s"))
W, SRC, IMP, PROP, SP, KEY = (key_code(name) for name in ("w", "src", "imp", "prop", "sp", "key"))
QUERY, CLICKED, SKIPPED = 0, 1, 2

HAS_V, HAS_ID, HAS_TS, HAS_Q, HAS_C, HAS_S = 1, 2, 4, 8, 16, 32
HAS_W, HAS_SRC, HAS_IMP, HAS_PROP, HAS_SP, HAS_KEY, IS_KEYED = 64, 128, 256, 512, 1024, 2048, 4096
REQUIRED = HAS_V | HAS_ID | HAS_TS | HAS_Q | HAS_C | HAS_S


@inlined
def read_event(data: Any, at: int, end: int, space: Any, index: Any, table: Any, row: int) -> Any:
    """Whether [at, end) is one event; its row of the table is then filled."""
    table[2][row], table[6][row] = np.float32(1.0), np.uint64(0)
    if len(table[7]):
        table[7][row, :] = 0
    seen = 0
    at, entries = map_header(data, at, end)
    for _ in range(entries):
        at, key = read_key(data, at, end)
        if at < 0:
            return False
        if key in (Q, C, S):
            role = QUERY if key == Q else (CLICKED if key == C else SKIPPED)
            field = HAS_Q << role
            at = read_object(data, at, end, space, index, table, row, role)
        elif key == V:
            field, at = read_version(data, at, end)
        elif key in (ID, TS):
            field = HAS_ID if key == ID else HAS_TS
            at = read_head(data, at, end, field, table, row)
        else:
            field, at = read_optional(data, at, end, key, space, table, row)
        if at < 0 or seen & field:
            return False
        seen |= field
    keyed = ((seen & IS_KEYED) != 0) == ((seen & HAS_KEY) != 0)
    return at == end and keyed and (seen & REQUIRED) == REQUIRED


@inlined
def read_version(data: Any, at: int, end: int) -> Any:
    """(the field, with whether it is the version that has a key; the place after it)."""
    after, value = whole_number(data, at, end)
    if value == KEYED_VERSION:
        return HAS_V | IS_KEYED, after
    return HAS_V, (after if value == FORMAT_VERSION else UNUSUAL)


@inlined
def read_head(data: Any, at: int, end: int, field: int, table: Any, row: int) -> Any:
    """The place after the id or the time, which goes into the table."""
    if field == HAS_ID:
        start, stop = text(data, at, end)
        if not is_text(data, start, stop):
            return UNUSUAL
        table[3][row] = xxh64(data, start, stop)
        return stop
    after, value = whole_number(data, at, end)
    table[1][row] = value
    return after if value <= MAX_TS else UNUSUAL


@inlined
def read_optional(data: Any, at: int, end: int, key: int, space: Any, table: Any, row: int) -> Any:
    """(field, the place after it) of a field that an event need not have."""
    if key == W:
        after, value = number(data, at, end)
        table[2][row] = np.float32(value)
        return HAS_W, (after if 0.0 < value <= MAX_WEIGHT else UNUSUAL)
    if key == PROP:
        after, value = number(data, at, end)
        return HAS_PROP, (after if 0.0 < value <= 1.0 else UNUSUAL)
    start, stop = text(data, at, end)
    if key == SP:
        name = space[0]
        stop = stop if same(data, start, stop, name, 0, len(name)) else UNUSUAL
        field = HAS_SP
    elif key == KEY:
        stop = keep_key(data, start, stop, table[7], row)
        field = HAS_KEY
    elif key in (SRC, IMP):
        field = HAS_SRC if key == SRC else HAS_IMP
    else:
        return 0, UNUSUAL
    if not is_text(data, start, stop):
        return field, UNUSUAL
    if key == SRC:
        table[6][row] = xxh64(data, start, stop)
    return field, stop


@inlined
def keep_key(data: Any, start: int, stop: int, keys: Any, row: int) -> Any:
    """The end of a key that is as long as one may be and has no byte 0; kept where keys are wanted."""
    if stop - start > MAX_KEY_BYTES:
        return UNUSUAL
    for place in range(start, stop):
        if data[place] == 0:
            return UNUSUAL
        if len(keys):
            keys[row, place - start] = data[place]
    return stop


@kernel(types.int64(BYTES, LONGS, types.int64, types.int64, types.int64, SPACE, INDEX, TABLE, types.int64))
def scan(
    data: Any, bounds: Any, first: int, last: int, limit: int, space: Any, index: Any, table: Any, taken: int
) -> Any:
    """Read the records first .. last - 1, whose bytes are `data`; `taken` is how many were taken before.

    Record i is `data[bounds[i] - bounds[first]:bounds[i + 1] - bounds[first]]`. The table's rows below the
    number returned are filled, in the order of the records; the others are undefined. A record of more than
    `limit` bytes is left.
    """
    records = table[0]
    for record in range(first, last):
        at, end = bounds[record] - bounds[first], bounds[record + 1] - bounds[first]
        if end - at <= limit and read_event(data, at, end, space, index, table, taken):
            records[taken] = record
            taken += 1
    return taken
