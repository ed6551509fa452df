"""A matrix of which only touched entries are kept, in memory: a hash table of (column, value) for each row
that has any.

A row's table is a run of `sizes[row]` places, from `starts[row]` on, in one array that all rows share:
`cells`, int64, 0 where a place is free, else column + 1 above the 32 bits of the float32 value. Eight
neighbouring columns share their place in the hash, a cache line, so frequent columns with neighbouring ids
are fetched together; a taken place is passed by linear probing. A table is filled to LOAD at most; beyond
that a longer one is begun behind all others. Who adds to the matrix asks for room first (`lacks`), and
outside a kernel more is made: the tables are moved together, or the array becomes longer.

Where an entry lies depends on how the matrix grew, and nothing else does: not a sum, since each goes through
a row of W in the order of a vector; not what is dropped where there are too many entries, which goes by
magnitude, then row and column; and not what is saved, which are the entries by row and column (`gather`).

`marks`, int64: places taken by tables and by what they left behind; entries; places of tables alone; and what
the step that found no room wanted, in entries and in places.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import (
    FLOATS,
    FLOATS_OUT,
    INDICES,
    INDICES_OUT,
    POINTERS,
    POINTERS_OUT,
    inlined,
    kernel,
)

TABLES = types.Tuple(
    (POINTERS_OUT, INDICES_OUT, INDICES_OUT, POINTERS_OUT, INDICES_OUT, FLOATS_OUT, POINTERS_OUT)
)
"""starts int64 [dim], sizes int32 [dim], counts int32 [dim] (entries of each row), cells, the same memory as
int32 and as float32, of which place p has its value at 2 p and column + 1 at 2 p + 1, and marks."""

TOP, ENTRIES, LIVE, WANTED_ENTRIES, WANTED_PLACES = range(5)
MARKS = 5
GROUP = 8
"""Neighbouring columns with one place in the hash: a cache line of 64 bytes."""
LOAD_PARTS, LOAD_OF = 3, 4
"""The part of a table that is filled at most."""
WITHIN = 16
"""Bits of a float32 number by which entries of about one magnitude are counted together."""
MAGNITUDE, VALUE = 0x7FFFFFFF, 0xFFFFFFFF
"""Of a cell: its value's bits without the sign, and with it."""


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
def find(halves: Any, start: int, size: int, column: int) -> int:
    """The place of a column in a table of at least one free place, or -1 - the free one where it would be.
    halves: the cells as int32."""
    place, wanted = home(size, column), np.int32(column + 1)
    while True:
        there = halves[2 * (start + place) + 1]
        if there == wanted:
            return start + place  # type: ignore[no-any-return]
        if there == 0:
            return -1 - (start + place)  # type: ignore[no-any-return]
        place += 1
        if place == size:
            place = 0


@inlined
def _put(cells: Any, halves: Any, start: int, size: int, cell: int) -> None:
    """Put a cell whose column is not there yet into a table."""
    cells[-1 - find(halves, start, size, (cell >> 32) - 1)] = cell


@inlined
def _size_for(count: int, dim: int, old: int) -> int:
    """Places of a table for so many entries, grown from `old`: half as many again, but no more than a full
    row needs."""
    most = -(-dim * LOAD_OF // (LOAD_PARTS * GROUP)) * GROUP + GROUP
    wanted = max(old + old // 2, count + count // 2)
    return min(most, -(-wanted // GROUP) * GROUP + (GROUP if wanted == 0 else 0))


@inlined
def lacks(tables: Any, tau: Any, query: Any, row: int, count: int, limit: int) -> bool:
    """Whether there may be no room for tau q e^T, of which e has `count` numbers: as if all its entries were
    new, so that the answer of `limit`, the most entries, follows from W and the step alone. What is wanted is
    in the marks then."""
    _, sizes, counts, cells, _, _, marks = tables
    q_ptr, q_ind, q_val = query
    dim, rows, places = len(sizes), 0, 0
    for i in range(q_ptr[row], q_ptr[row + 1]):
        if tau * q_val[i] != 0:
            own = np.int64(q_ind[i])
            needed, size = np.int64(counts[own]) + count, np.int64(sizes[own])
            rows += 1
            if needed * LOAD_OF > size * LOAD_PARTS:
                places += _size_for(needed, dim, size)
    marks[WANTED_ENTRIES], marks[WANTED_PLACES] = rows * count, places
    full = marks[ENTRIES] + rows * count > limit and marks[ENTRIES] > limit // 2
    return full or marks[TOP] + places > len(cells)  # type: ignore[no-any-return]


@inlined
def _grow(tables: Any, row: int, more: int) -> None:
    """Give a row a longer table where it has no room for so many entries more."""
    starts, sizes, counts, cells, halves, _, marks = tables
    needed, old = np.int64(counts[row]) + more, np.int64(sizes[row])
    if needed * LOAD_OF <= old * LOAD_PARTS:
        return
    size, start, top = _size_for(needed, len(sizes), old), starts[row], marks[TOP]
    for place in range(start, start + old):
        if cells[place] != 0:
            _put(cells, halves, top, size, cells[place])
    starts[row], sizes[row] = top, size
    marks[TOP] += size
    marks[LIVE] += size - old


@inlined
def add_to_row(tables: Any, row: int, factor: Any, error: Any, count: int, missing: Any) -> None:
    """The row <- itself + factor e^T, e the first `count` entries of `error` = (columns, values). There is
    room. missing: for as many numbers, overwritten."""
    starts, sizes, counts, _, halves, values, marks = tables
    e_columns, e_values = error
    absent, start, size = 0, starts[row], np.int64(sizes[row])
    for k in range(count):
        place = find(halves, start, size, np.int64(e_columns[k])) if size else np.int64(-1)
        if place >= 0:
            values[2 * place] += factor * e_values[k]
        else:
            missing[absent] = k
            absent += 1
    if absent == 0:
        return
    _grow(tables, row, absent)
    start, size = starts[row], np.int64(sizes[row])
    for n in range(absent):
        k = missing[n]
        place = -1 - find(halves, start, size, np.int64(e_columns[k]))
        halves[2 * place + 1], values[2 * place] = np.int32(e_columns[k] + 1), factor * e_values[k]
    counts[row] += absent
    marks[ENTRIES] += absent


@inlined
def _by_place(tables: Any) -> Any:
    """The rows that have a table, in the order of their places."""
    rows = np.flatnonzero(tables[1])
    return rows[np.argsort(tables[0][rows])]


@kernel(types.void(TABLES))
def move_together(tables: Any) -> None:
    """Move all tables to the front, over what longer ones left behind."""
    starts, sizes, _, cells, _, _, marks = tables
    top = 0
    for row in _by_place(tables):
        start = starts[row]
        for place in range(sizes[row]):
            cells[top + place] = cells[start + place]
        starts[row] = top
        top += sizes[row]
    cells[top : marks[TOP]] = 0
    marks[TOP] = top


@inlined
def _least_kept(tables: Any, most: int) -> tuple[int, int]:
    """(upper bits of a magnitude, how many entries with these may stay): those of larger ones are kept all,
    so that `most` are left."""
    starts, sizes, _, cells, _, _, _ = tables
    of_magnitude = np.zeros(1 << WITHIN, np.int64)
    for row in np.flatnonzero(sizes):
        for place in range(starts[row], starts[row] + sizes[row]):
            if cells[place] != 0:
                of_magnitude[(cells[place] & MAGNITUDE) >> WITHIN] += 1
    kept = 0
    for magnitude in range((1 << WITHIN) - 1, -1, -1):
        if kept + of_magnitude[magnitude] > most:
            return magnitude, most - kept
        kept += of_magnitude[magnitude]
    return -1, 0


@kernel(types.UniTuple(types.int64, 3)(TABLES, types.int64))
def cut_for(tables: Any, most: int) -> tuple[int, int, int]:
    """What leaves the `most` entries of largest magnitude, as far as its 15 upper bits tell, and of those
    that are alike the first by row and column: (the least bits that stay, row and column before which entries
    of these bits stay)."""
    least, of_least = _least_kept(tables, most)
    starts, sizes, counts, cells, _, _, _ = tables
    own = np.empty(max(1, counts.max()), np.int64)
    for row in np.flatnonzero(sizes):
        found = 0
        for place in range(starts[row], starts[row] + sizes[row]):
            if cells[place] != 0 and (cells[place] & MAGNITUDE) >> WITHIN == least:
                own[found] = (cells[place] >> 32) - 1
                found += 1
        if found > of_least:
            alike = own[:found]
            alike.sort()
            return least, np.int64(row), alike[of_least]  # type: ignore[return-value]
        of_least -= found
    return least, np.int64(len(sizes)), np.int64(0)  # type: ignore[return-value]


@kernel(types.int64(TABLES, types.UniTuple(types.int64, 3), types.boolean))
def drop_below(tables: Any, cut: tuple[int, int, int], transposed: bool) -> int:
    """Drop what `cut_for` leaves out, and rebuild each table at the front; how many were dropped. transposed:
    the cut was made of the transpose."""
    starts, sizes, counts, cells, halves, _, marks = tables
    least, last_row, last_column = cut
    old, top, before = np.empty(max(1, counts.max()), np.int64), 0, marks[ENTRIES]
    marks[ENTRIES] = 0
    for row in _by_place(tables):
        kept = 0
        for place in range(starts[row], starts[row] + sizes[row]):
            cell = cells[place]
            magnitude = (cell & MAGNITUDE) >> WITHIN
            if cell == 0 or magnitude < least:
                continue
            i, j = np.int64(row), (cell >> 32) - 1
            if transposed:
                i, j = j, i
            if magnitude == least and (i > last_row or (i == last_row and j >= last_column)):
                continue
            old[kept] = cell
            kept += 1
        size = min(np.int64(sizes[row]), _size_for(kept, len(sizes), 0)) if kept else np.int64(0)
        starts[row], sizes[row], counts[row] = top, size, kept
        cells[top : top + size] = 0
        for k in range(kept):
            _put(cells, halves, top, size, old[k])
        top += size  # type: ignore[assignment]
        marks[ENTRIES] += kept
    cells[top : marks[TOP]] = 0
    marks[TOP] = marks[LIVE] = top
    return before - marks[ENTRIES]  # type: ignore[no-any-return]


@kernel(types.void(TABLES, INDICES, POINTERS, INDICES_OUT, FLOATS_OUT))
def gather(tables: Any, rows: Any, pointers: Any, out_columns: Any, out_values: Any) -> None:
    """The entries of these rows by row and column; those of row i go from pointers[i] on."""
    starts, sizes, counts, cells, _, _, _ = tables
    out_bits = out_values.view(np.uint32)
    own = np.empty(max(1, counts.max()), np.int64)
    for i in range(len(rows)):
        start, count = starts[rows[i]], 0
        for place in range(start, start + sizes[rows[i]]):
            if cells[place] != 0:
                own[count] = cells[place]
                count += 1
        in_order = own[:count]
        in_order.sort()
        for k in range(count):
            out_columns[pointers[i] + k] = np.int32((own[k] >> 32) - 1)
            out_bits[pointers[i] + k] = np.uint32(own[k] & VALUE)


@kernel(types.int64(INDICES, POINTERS, types.int64))
def places_for(rows: Any, pointers: Any, dim: int) -> int:
    """The places that tables of these rows take when they are made at once."""
    places = np.int64(0)
    for i in range(len(rows)):
        places += _size_for(pointers[i + 1] - pointers[i], dim, 0)
    return places  # type: ignore[return-value]


@kernel(types.void(TABLES, INDICES, POINTERS, INDICES, FLOATS))
def fill(tables: Any, rows: Any, pointers: Any, in_columns: Any, in_values: Any) -> None:
    """Let empty tables hold these entries, of which no row has a column twice; there is room."""
    starts, sizes, counts, _, halves, values, marks = tables
    for i in range(len(rows)):
        row, count = rows[i], pointers[i + 1] - pointers[i]
        size, top = _size_for(count, len(sizes), 0), marks[TOP]
        starts[row], sizes[row], counts[row] = top, size, count
        for k in range(pointers[i], pointers[i + 1]):
            place = -1 - find(halves, top, size, np.int64(in_columns[k]))
            halves[2 * place + 1], values[2 * place] = np.int32(in_columns[k] + 1), in_values[k]
        marks[TOP] += size
        marks[LIVE] += size
        marks[ENTRIES] += count
