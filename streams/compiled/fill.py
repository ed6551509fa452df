"""From the places of vectors to columns: their bytes copied one after another."""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, LONGS, SPANS, inlined, kernel

OUT = types.uint8[::1]
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


@kernel(types.void(BYTES, SPANS, types.int64, types.int64, types.int64, types.int64, LONGS, OUT, OUT))
def fill_sparse(
    data: Any, spans: Any, first: int, last: int, role: int, view: int, indptr: Any, indices: Any, values: Any
) -> None:
    """The bytes of one role's indices and values of one view, for the rows first .. last - 1 of the table.

    `data` is what their spans point into; row i goes to the entries from `indptr[i]`.
    """
    for row in range(first, last):
        at, size = NUMBER * indptr[row], spans[row, role, view, 2]
        copy(data, spans[row, role, view, 0], size, indices, at)
        copy(data, spans[row, role, view, 1], size, values, at)


@kernel(types.void(BYTES, SPANS, types.int64, types.int64, types.int64, types.int64, types.int64, OUT))
def fill_dense(
    data: Any, spans: Any, first: int, last: int, role: int, view: int, width: int, values: Any
) -> None:
    """The bytes of one role's vectors of one dense view, `width` each, for the rows first .. last - 1; zeros
    where a row has no vector."""
    for row in range(first, last):
        if spans[row, role, view, 2] == width:
            copy(data, spans[row, role, view, 0], width, values, row * width)
        else:
            for place in range(row * width, (row + 1) * width):
                values[place] = 0
