"""A matrix kept as its touched entries: a hash table of (column, value) for each row that has any.

A row's table is a run of `sizes[row]` places, from `starts[row]` on, in two arrays: `columns`, int32, column
+ 1 or 0 where a place is free, and `values`, float32. Eight neighbouring columns share their place in the
hash, so frequent columns with neighbouring ids lie in one cache line; a taken place is passed by linear
probing. A table is filled to LOAD at most; beyond that a longer one is begun behind all others. Where there
is no room behind them, the tables are moved together; where that does not help, or there are more entries
than the matrix may have, the entries of smallest magnitude are dropped until half of those it may have are
left. All of it follows from the order of the entries alone, so the same steps leave the same bits.

`marks`, int64: places taken by tables and by what they left behind, entries, places of tables alone, how
often entries were dropped, and how many.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import FLOATS_OUT, INDICES_OUT, POINTERS_OUT, inlined, kernel

BITS = types.uint32[::1]
TABLES = types.Tuple((POINTERS_OUT, INDICES_OUT, INDICES_OUT, INDICES_OUT, FLOATS_OUT, BITS, POINTERS_OUT))
"""starts int64 [dim], sizes int32 [dim], counts int32 [dim] (entries of each row), columns, values, the bits
of `values` as uint32, and marks."""

TOP, ENTRIES, LIVE, DROPS, DROPPED = range(5)
MARKS = 5
GROUP = 8
"""Neighbouring columns with one place in the hash: their columns and values are half a cache line each."""
LOAD_PARTS, LOAD_OF = 3, 4
"""The part of a table that is filled at most."""
SLACK = 16
"""The part of all places that is left free when tables are moved together, so that it happens seldom."""
MAGNITUDES, WITHIN = 1 << 16, 15
"""Float32 magnitudes are told apart by so many values of their upper bits, the lower ones left out."""


@inlined
def home(size: int, column: int) -> int:
    """Where the search for a column begins in a table."""
    mixed = np.uint32(np.uint32(column >> 3) * np.uint32(0x9E3779B1))
    mixed ^= mixed >> np.uint32(15)
    mixed = np.uint32(mixed * np.uint32(0x85EBCA6B))
    groups = np.uint64(size // GROUP)
    place: int = np.int64((np.uint64(mixed) * groups) >> np.uint64(32)) * GROUP + (column & 7)  # type: ignore[assignment]
    return place


@inlined
def find(columns: Any, start: int, size: int, column: int) -> int:
    """The place of a column in a table of at least one free place, or -1 - the free one where it would be."""
    place, wanted = home(size, column), np.int32(column + 1)
    while True:
        there = columns[start + place]
        if there == wanted:
            return start + place  # type: ignore[no-any-return]
        if there == 0:
            return -1 - (start + place)  # type: ignore[no-any-return]
        place += 1
        if place == size:
            place = 0


@inlined
def _size_for(count: int, dim: int, old: int) -> int:
    """Places of a table for so many entries, grown from `old`: half as many again, but no more than a full
    row needs."""
    most = -(-dim * LOAD_OF // (LOAD_PARTS * GROUP)) * GROUP + GROUP
    wanted = max(old + old // 2, count + count // 2)
    return min(most, -(-wanted // GROUP) * GROUP + (GROUP if wanted == 0 else 0))


@inlined
def _in_order(tables: Any) -> Any:
    """The rows that have a table, in the order of their places."""
    starts, sizes = tables[0], tables[1]
    rows = np.flatnonzero(sizes)
    return rows[np.argsort(starts[rows])]


@inlined
def _move_together(tables: Any) -> None:
    """Move all tables to the front, over what longer ones left behind."""
    starts, sizes, _, columns, values, _, marks = tables
    top = 0
    for row in _in_order(tables):
        start = starts[row]
        for place in range(sizes[row]):
            columns[top + place], values[top + place] = columns[start + place], values[start + place]
        starts[row] = top
        top += sizes[row]
    columns[top : marks[TOP]] = 0
    values[top : marks[TOP]] = 0
    marks[TOP] = top


@inlined
def _least_kept(tables: Any, most: int) -> tuple[int, int]:
    """(magnitude, how many of this magnitude): larger ones are kept all, so that `most` entries are left."""
    _, _, _, columns, _, bits, marks = tables
    of_magnitude = np.zeros(MAGNITUDES, np.int64)
    for place in range(marks[TOP]):
        if columns[place] > 0:
            of_magnitude[(bits[place] & np.uint32(0x7FFFFFFF)) >> np.uint32(WITHIN)] += 1
    kept = 0
    for magnitude in range(MAGNITUDES - 1, -1, -1):
        if kept + of_magnitude[magnitude] > most:
            return magnitude, most - kept
        kept += of_magnitude[magnitude]
    return 0, most


@inlined
def _drop_smallest(tables: Any, dim: int, most: int) -> None:
    """Keep the `most` entries of largest magnitude, those of equal upper bits in the order of their places,
    and rebuild each table at the front."""
    starts, sizes, counts, columns, values, bits, marks = tables
    _move_together(tables)
    least, of_least = _least_kept(tables, most)
    old_columns, old_values = np.empty(sizes.max(), np.int32), np.empty(sizes.max(), np.float32)
    top, before = 0, marks[ENTRIES]
    marks[ENTRIES] = 0
    for row in _in_order(tables):
        kept = 0
        for place in range(starts[row], starts[row] + sizes[row]):
            magnitude = np.int64((bits[place] & np.uint32(0x7FFFFFFF)) >> np.uint32(WITHIN))
            if columns[place] == 0 or magnitude < least or (magnitude == least and of_least == 0):
                continue
            of_least -= np.int64(magnitude == least)
            old_columns[kept], old_values[kept] = columns[place], values[place]
            kept += 1
        size = min(np.int64(sizes[row]), _size_for(kept, dim, 0)) if kept else 0
        starts[row], sizes[row], counts[row] = top, size, kept
        columns[top : top + size] = 0
        values[top : top + size] = 0
        for k in range(kept):
            place = -1 - find(columns, top, size, old_columns[k] - 1)
            columns[place], values[place] = old_columns[k], old_values[k]
        top += size
        marks[ENTRIES] += kept
    columns[top : marks[TOP]] = 0
    values[top : marks[TOP]] = 0
    marks[TOP] = marks[LIVE] = top
    marks[DROPS] += 1
    marks[DROPPED] += before - marks[ENTRIES]


@inlined
def _make_room(tables: Any, dim: int, row: int, more: int, limit: int) -> bool:
    """Whether a row has room for so many entries more now; other entries may have been dropped for it."""
    starts, sizes, counts, columns, values, _, marks = tables
    for attempt in range(2):
        if marks[ENTRIES] + more <= limit:
            needed = counts[row] + more
            if needed * LOAD_OF <= np.int64(sizes[row]) * LOAD_PARTS:
                return True
            size = _size_for(needed, dim, np.int64(sizes[row]))
            if (
                marks[TOP] + size > len(columns)
                and marks[LIVE] + size <= len(columns) - len(columns) // SLACK
            ):
                _move_together(tables)
            if marks[TOP] + size <= len(columns):
                old, start, top = np.int64(sizes[row]), starts[row], marks[TOP]
                for place in range(start, start + old):
                    if columns[place] > 0:
                        put = -1 - find(columns, top, size, columns[place] - 1)
                        columns[put], values[put] = columns[place], values[place]
                starts[row], sizes[row] = top, size
                marks[TOP] += size
                marks[LIVE] += size - old
                return True
        if attempt == 0:
            _drop_smallest(tables, dim, limit // 2)
    return False


@inlined
def add_to_row(
    tables: Any, dim: int, row: int, factor: Any, error: Any, first: int, last: int, limit: int, missing: Any
) -> None:
    """The row <- itself + factor e^T, e the entries first..last - 1 of `error` = (columns, values).

    limit: most entries of the matrix. missing: room for as many numbers, overwritten. Entries for which there
    is no room when all others that may go have gone are dropped."""
    starts, sizes, counts, columns, values, _, marks = tables
    e_columns, e_values = error
    absent, size = 0, np.int64(sizes[row])
    for k in range(first, last):
        place = find(columns, starts[row], size, np.int64(e_columns[k])) if size else -1
        if place >= 0:
            values[place] += factor * e_values[k]
        else:
            missing[absent] = k
            absent += 1
    if absent == 0:
        return
    if not _make_room(tables, dim, row, absent, limit):
        marks[DROPPED] += absent
        return
    start, size = starts[row], np.int64(sizes[row])
    for n in range(absent):
        k = missing[n]
        place = -1 - find(columns, start, size, np.int64(e_columns[k]))
        columns[place], values[place] = np.int32(e_columns[k] + 1), factor * e_values[k]
    counts[row] += absent
    marks[ENTRIES] += absent


@kernel(types.boolean(TABLES))
def sound_tables(tables: Any) -> bool:
    """Whether tables of a saved state can be read and grown without leaving the arrays: each lies within what
    is taken, is filled to its load at most, and holds columns of the matrix, as many as are counted."""
    starts, sizes, counts, columns, _, _, marks = tables
    dim, entries, live = len(starts), 0, 0
    if not 0 <= marks[TOP] <= len(columns):
        return False
    for row in range(dim):
        start, size, count = starts[row], np.int64(sizes[row]), 0
        if size < 0 or size % GROUP or start < 0 or start + size > marks[TOP]:
            return False
        for place in range(start, start + size):
            if not 0 <= columns[place] <= dim:
                return False
            count += columns[place] > 0
        if count != counts[row] or count * LOAD_OF > size * LOAD_PARTS:
            return False
        entries += count
        live += size  # type: ignore[assignment]
    for place in range(marks[TOP], len(columns)):
        if columns[place] != 0:
            return False
    return entries == marks[ENTRIES] and live == marks[LIVE]  # type: ignore[no-any-return]
