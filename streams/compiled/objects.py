"""Objects inside a record: an id to look up, or vectors to remember the places of."""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

from streams.compiled.compile import inlined
from streams.compiled.headers import UNUSUAL, binary, key_code, map_header, pair_header, read_key, text
from streams.compiled.index import find_row, same
from streams.compiled.text import is_text
from streams.wire import MAX_MAP_ENTRIES

ID, X, VIEWS = key_code("id"), key_code("x"), key_code("views")
HAS_ID, HAS_X, HAS_VIEWS = 1, 2, 4


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
        if key == ID:
            field = HAS_ID
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
    if seen == HAS_ID:
        spans[row, role, :, 2] = 0
        rows[row, role] = find_row(data, first, last, index)
        return at if rows[row, role] >= 0 else UNUSUAL
    rows[row, role] = -1
    featured = seen & ~HAS_ID
    return at if featured in (HAS_X, HAS_VIEWS) else UNUSUAL


@inlined
def read_views(data: Any, at: int, end: int, space: Any, spans: Any, row: int, role: int) -> Any:
    """The place after a map that has every view of the space once and nothing else."""
    _, names, bounds, sizes, _ = space
    seen = 0
    at, entries = map_header(data, at, end)
    if at < 0 or entries != len(sizes) or entries > MAX_MAP_ENTRIES:
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
