"""From the bytes of records to a table of what is in them; no vector is copied yet.

A record is accepted when it is an event as FORMAT.md has it, in this space, its ids in the catalog where
they are needed. Every other record is left to the plain decoder. An object in a record is an id to look
up, or vectors whose places are noted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams import limits
from streams.compiled.compile import BYTES, LONGS, SPACE, TABLE, inlined, kernel
from streams.compiled.hashing import INDEX, find_row, same, xxh64
from streams.compiled.headers import (
    UNUSUAL,
    binary,
    is_text,
    key_code,
    map_header,
    number,
    pair_header,
    read_key,
    text,
    whole_number,
)

from numba import types  # isort: skip


# ruff: noqa: PLR0917  (kernels take plain arrays)


OBJECT_ID, X, VIEWS = key_code("id"), key_code("x"), key_code("views")
OBJECT_HAS_ID, HAS_X, HAS_VIEWS = 1, 2, 4


@inlined
def read_object(data: Any, at: int, end: int, space: Any, index: Any, table: Any, row: int, role: int) -> Any:
    """The place after an object, whose catalog row or vectors go into the table."""
    rows, spans = table[4], table[5]
    first = last = 0
    seen = 0
    at, entries = map_header(data, at, end)
    for _ in range(entries):
        at, key = read_key(data, at, end)
        if at < 0:
            return UNUSUAL
        if key == OBJECT_ID:
            field = OBJECT_HAS_ID
            first, last = text(data, at, end)
            at = last if is_text(data, first, last) else UNUSUAL
        elif key == X and space[4] >= 0:
            field = HAS_X
            at = read_vector(data, at, end, space[3][space[4]], spans, row, role, space[4])
        elif key == VIEWS:
            field = HAS_VIEWS
            at = read_views(data, at, end, space, spans, row, role)
        else:
            return UNUSUAL
        if at < 0 or seen & field:
            return UNUSUAL
        seen |= field
    if seen == OBJECT_HAS_ID:
        spans[row, role, :, 2] = 0
        rows[row, role] = find_row(data, first, last, index)
        return at if rows[row, role] >= 0 else UNUSUAL
    rows[row, role] = -1
    featured = seen & ~OBJECT_HAS_ID
    return at if featured in (HAS_X, HAS_VIEWS) else UNUSUAL


@inlined
def read_views(data: Any, at: int, end: int, space: Any, spans: Any, row: int, role: int) -> Any:
    """The place after a map that has every view of the space once and nothing else."""
    _, names, bounds, sizes, _ = space
    seen = 0
    at, entries = map_header(data, at, end)
    if at < 0 or entries != len(sizes) or entries > limits.MAX_MAP_ENTRIES:
        return UNUSUAL
    for _ in range(entries):
        start, stop = text(data, at, end)
        view = 0
        while view < len(sizes) and not same(data, start, stop, names, bounds[view], bounds[view + 1]):
            view += 1
        if view == len(sizes) or seen & (1 << view) or not is_text(data, start, stop):
            return UNUSUAL
        seen |= 1 << view
        at = read_vector(data, stop, end, sizes[view], spans, row, role, view)
        if at < 0:
            return UNUSUAL
    return at


@inlined
def read_vector(data: Any, at: int, end: int, size: int, spans: Any, row: int, role: int, view: int) -> Any:
    """The place after a vector of the view's kind and, when dense, of its `size` in bytes."""
    if size == 0:
        at = pair_header(data, at, end)
        if at < 0:
            return UNUSUAL
    start, stop = binary(data, at, end)
    if start < 0 or (size > 0 and stop - start != size):
        return UNUSUAL
    spans[row, role, view, 0] = start
    spans[row, role, view, 2] = stop - start
    if size == 0:
        length = stop - start
        start, stop = binary(data, stop, end)
        if start < 0 or stop - start != length or length & 3:
            return UNUSUAL
        spans[row, role, view, 1] = start
    return stop


# ruff: noqa: PLR0917  (kernels take plain arrays)


V, ID, TS, Q, C, S = (key_code(name) for name in ("v", "id", "ts", "q", "c", "s"))
W, SRC, IMP, PROP, SP = (key_code(name) for name in ("w", "src", "imp", "prop", "sp"))
KEY, PAIR = key_code("key"), key_code("pair")
QUERY, CLICKED, SKIPPED = 0, 1, 2

HAS_V, HAS_ID, HAS_TS, HAS_Q, HAS_C, HAS_S = 1, 2, 4, 8, 16, 32
HAS_W, HAS_SRC, HAS_IMP, HAS_PROP, HAS_SP, HAS_KEY, IS_KEYED = 64, 128, 256, 512, 1024, 2048, 4096
HAS_PAIR, IS_PAIRED = 8192, 16384
REQUIRED = HAS_V | HAS_ID | HAS_TS | HAS_Q | HAS_C | HAS_S


@inlined
def read_event(data: Any, at: int, end: int, space: Any, index: Any, table: Any, row: int) -> Any:
    """Whether [at, end) is one event; its row of the table is then filled."""
    table[2][row], table[6][row], table[7][row] = np.float32(1.0), np.uint64(0), np.uint8(0)
    if len(table[8]):
        table[8][row, :] = 0
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
    paired = (seen & IS_PAIRED) != 0
    keyed = paired or ((seen & IS_KEYED) != 0) == ((seen & HAS_KEY) != 0)
    return at == end and keyed and paired == ((seen & HAS_PAIR) != 0) and (seen & REQUIRED) == REQUIRED


@inlined
def read_version(data: Any, at: int, end: int) -> Any:
    """(the field, with whether it is a version that has a key or a pair; the place after it)."""
    after, value = whole_number(data, at, end)
    if value == limits.KEYED_VERSION:
        return HAS_V | IS_KEYED, after
    if value == limits.PAIRED_VERSION:
        return HAS_V | IS_PAIRED, after
    return HAS_V, (after if value == limits.FORMAT_VERSION else UNUSUAL)


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
    return after if value <= limits.MAX_TS else UNUSUAL


@inlined
def read_optional(data: Any, at: int, end: int, key: int, space: Any, table: Any, row: int) -> Any:
    """(field, the place after it) of a field that an event need not have."""
    if key == W:
        after, value = number(data, at, end)
        table[2][row] = np.float32(value)
        return HAS_W, (after if 0.0 < value <= limits.MAX_WEIGHT else UNUSUAL)
    if key == PROP:
        after, value = number(data, at, end)
        return HAS_PROP, (after if 0.0 < value <= 1.0 else UNUSUAL)
    if key == PAIR:
        after, kind = whole_number(data, at, end)
        table[7][row] = np.uint8(kind if kind <= limits.PAIR_KINDS else 0)
        return HAS_PAIR, (after if kind <= limits.MAX_PAIR else UNUSUAL)
    start, stop = text(data, at, end)
    if key == SP:
        name = space[0]
        stop = stop if same(data, start, stop, name, 0, len(name)) else UNUSUAL
        field = HAS_SP
    elif key == KEY:
        stop = keep_key(data, start, stop, table[8], row)
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
    if stop - start > limits.MAX_KEY_BYTES:
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
