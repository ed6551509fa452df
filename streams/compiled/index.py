"""A catalog's rows by the bytes of their ids: open addressing, linear probing, at most half full."""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, LONGS, inlined, kernel
from streams.compiled.hashing import xxh64

INDEX = types.Tuple((BYTES, LONGS, types.Array(types.int32, 1, "C", readonly=True)))
"""ids uint8: all ids one after another; bounds int64 [n + 1]: where each begins and the last ends; slots
int32: a power of two of rows, -1 where there is none; no slots at all where there is no catalog."""


@inlined
def first_slot(data: Any, start: int, stop: int, slots: Any) -> Any:
    """Where looking for these bytes begins."""
    return np.int64(xxh64(data, start, stop) & np.uint64(len(slots) - 1))


@inlined
def same(data: Any, start: int, stop: int, other: Any, begin: int, end: int) -> Any:
    """Whether two ranges of bytes are equal."""
    if stop - start != end - begin:
        return False
    for step in range(stop - start):  # noqa: SIM110  (numba has no all)
        if data[start + step] != other[begin + step]:
            return False
    return True


@kernel(types.void(BYTES, LONGS, types.int32[::1]))
def fill_slots(ids: Any, bounds: Any, slots: Any) -> None:
    """Enter every row into `slots`, given as -1 throughout and at least twice as many as rows; ids differ."""
    for row in range(len(bounds) - 1):
        slot = first_slot(ids, bounds[row], bounds[row + 1], slots)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = row


@inlined
def find_row(data: Any, start: int, stop: int, index: Any) -> Any:
    """The row of the id in [start, stop), or -1."""
    ids, bounds, slots = index
    if len(slots) == 0:
        return -1
    slot = first_slot(data, start, stop, slots)
    while slots[slot] >= 0:
        row = np.int64(slots[slot])
        if same(data, start, stop, ids, bounds[row], bounds[row + 1]):
            return row
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@kernel(types.void(BYTES, LONGS, INDEX, types.int64[::1]))
def find_each(data: Any, bounds: Any, index: Any, rows: Any) -> None:
    """`rows[i]` = the row of the id in `data[bounds[i]:bounds[i + 1]]`, or -1."""
    for place in range(len(rows)):
        rows[place] = find_row(data, bounds[place], bounds[place + 1], index)
