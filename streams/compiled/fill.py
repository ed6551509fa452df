"""From the places of vectors to columns: their bytes copied one after another."""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, LONGS, SPANS, inlined, kernel

STARTS = types.Array(types.int64, 3, "C", readonly=True)
NUMBER = 4
"""Bytes of an index, and of a value."""


@inlined
def copy(data: Any, start: int, size: int, out: Any, at: int) -> None:
    """`out[at:at + size]` = `data[start:start + size]`.

    Unsigned places become one wide copy; signed ones do not, as each might count from the end.
    """
    source, target = np.uint64(start), np.uint64(at)
    for step in range(np.uint64(size)):
        out[target + step] = data[source + step]


@inlined
def clear(size: int, out: Any, at: int) -> None:
    """`out[at:at + size]` = 0."""
    target = np.uint64(at)
    for step in range(np.uint64(size)):
        out[target + step] = 0


@kernel(types.void(BYTES, SPANS, types.int64, types.int64, LONGS, STARTS, STARTS, types.uint8[::1]))
def fill(
    data: Any, spans: Any, first: int, last: int, sizes: Any, starts: Any, columns: Any, room: Any
) -> None:
    """Copy the vectors of the table's rows first .. last - 1, whose `spans` point into `data`, to `room`.

    sizes: as in SPACE. starts int64 [3, views, rows + 1]: how many numbers of a column are before each row's.
    columns int64 [3, views, 2]: the place in `room` of a column's indices (-1 in a dense view) and of its
    values (-1 where the role has no columns). A row without a vector becomes zeros in a dense view.
    """
    for row in range(first, last):
        for role in range(columns.shape[0]):
            for view in range(columns.shape[1]):
                indices, values = columns[role, view, 0], columns[role, view, 1]
                at, size = NUMBER * starts[role, view, row], spans[row, role, view, 2]
                if values < 0:
                    continue
                if indices >= 0:
                    copy(data, spans[row, role, view, 0], size, room, indices + at)
                    copy(data, spans[row, role, view, 1], size, room, values + at)
                elif size > 0:
                    copy(data, spans[row, role, view, 0], size, room, values + at)
                else:
                    clear(sizes[view], room, values + at)
