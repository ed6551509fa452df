"""One pass over W: pending steps are added to it, and it is multiplied with the events that come next.

W is gone through in bands of columns, a band in strips of rows: a strip takes the steps, is put side by side
where the nearest cache holds it, and is multiplied with all events before the next one. So W is read once and
written once for all the steps that waited and all the events that come, and the next rows are asked of memory
while the tiles compute.

Every sum has one order: an entry of W takes the steps one after another; a product sums the rows of W in
float32, CHUNK at a time, and these sums in float64 by lane, one panel of WIDE columns after the other.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import FLOATS, ROWS, ROWS_OUT, inlined, kernel
from learners.kernels.delayed_tiles import (
    BAND,
    LINE,
    TALL,
    WIDE,
    ask_rows,
    copy_columns,
    mirror_tile,
    product_tile,
    update_tile,
    weigh_row,
)
from learners.kernels.tiles import WIDTH

CHUNK = 384
"""Rows of W that are summed in float32: part of what a margin is, to the last bit."""

STRIP = 96
"""Rows that are gone through together, a part of CHUNK: two panels of them stay in the nearest cache."""

AHEAD = 8
"""Rows beyond those that take steps which are asked of memory."""

HALVES = BAND // WIDE


@inlined
def workplace(dim: int, padded: int, terms: int, n: int) -> Any:
    """What a pass writes to on its way, for at most so many terms (two for each step where W is symmetric)
    and events: factors float32 [terms, padded + LINE], lest all rows lie in the same few places of the
    nearest cache; panels of steps, of W and of products; a tile."""
    tall, chunks = -(-n // TALL) * TALL, -(-dim // CHUNK)
    return (
        np.empty((terms, padded + LINE), np.float32),
        np.empty(HALVES * terms * WIDE, np.float32),
        np.empty(HALVES * STRIP * WIDE, np.float32),
        np.empty(HALVES * chunks * tall * WIDE, np.float32),
        np.empty(TALL * WIDE, np.float32),
    )


@inlined
def _scale(pairs: Any, count: int, tau: Any, symmetric: bool, factors: Any) -> None:
    """What each row of W multiplies the panel's rows with."""
    half = np.float32(0.5)
    for n in range(count):
        for column in range(pairs.shape[1]):
            if symmetric:
                factors[2 * n, column] = half * tau[n] * pairs[2 * n, column]
                factors[2 * n + 1, column] = half * tau[n] * pairs[2 * n + 1, column]
            else:
                factors[n, column] = tau[n] * pairs[2 * n, column]


@inlined
def _panel(pairs: Any, count: int, symmetric: bool, column: int, panel: Any, put: int) -> None:
    """The columns that the factors are multiplied with, WIDE of them, into panel[put..]."""
    flat, padded = pairs.reshape(-1), pairs.shape[1]
    for n in range(count):
        right = (2 * n + 1) * padded + column
        if symmetric:
            copy_columns(flat, right, panel, put + 2 * n * WIDE)
            copy_columns(flat, right - padded, panel, put + (2 * n + 1) * WIDE)
        else:
            copy_columns(flat, right, panel, put + n * WIDE)


@inlined
def _edge(W: Any, row: int, column: int, begin: int, adding: Any, panels: Any, put: int) -> None:
    """`update_tile` where W ends inside the tile; what lies beyond is 0."""
    factors, stride, steps, terms, tile = adding
    height, width = min(TALL, len(W) - row), min(WIDE, len(W) - column)
    tile[:] = 0
    for r in range(height):
        for j in range(width):
            tile[r * WIDE + j] = W[row + r, column + j]
    update_tile(tile, 0, WIDE, factors, row, stride, steps, begin, terms, panels, put)
    for r in range(height):
        for j in range(width):
            W[row + r, column + j] = tile[r * WIDE + j]


@inlined
def _take(W: Any, start: int, stop: int, column: int, halves: int, adding: Any, panels: Any) -> None:
    """Add the steps to rows start..stop - 1 of a band; the panels become these rows."""
    factors, stride, steps, terms, _ = adding
    flat, dim = W.reshape(-1), len(W)
    for row in range(start, stop, TALL):
        if terms > 0:
            ask_rows(flat, (row + AHEAD) * dim + column, dim, TALL)
        for half in range(halves):
            here, put = column + half * WIDE, (half * STRIP + row - start) * WIDE
            place, begin = row * dim + here, half * terms * WIDE
            if here + WIDE > dim or row + TALL > dim:
                _edge(W, row, here, begin, adding, panels, put)
            elif terms > 0:
                update_tile(flat, place, dim, factors, row, stride, steps, begin, terms, panels, put)
            else:
                for r in range(TALL):
                    copy_columns(flat, place + r * dim, panels, put + r * WIDE)


@inlined
def _mirror(W: Any) -> None:
    """Below the diagonal W becomes what it is above it."""
    flat, dim = W.reshape(-1), len(W)
    whole = dim // WIDTH * WIDTH
    for row in range(0, whole, WIDTH):
        for i in range(row, row + WIDTH):
            for j in range(i + 1, row + WIDTH):
                W[j, i] = W[i, j]
        for column in range(row + WIDTH, whole, WIDTH):
            mirror_tile(flat, row * dim + column, column * dim + row, dim)
    for j in range(whole, dim):
        for i in range(j):
            W[j, i] = W[i, j]


@inlined
def _multiply(
    flat: Any, following: int, dim: int, start: int, count: int, halves: int, left: Any, padded: int,
    panels: Any, products: Any, tall: int,
) -> None:  # fmt: skip
    """Add what a strip of `count` rows from `start` on makes of the events to their products; meanwhile the
    strip at `following` is asked of memory."""
    each, chunks = -(-STRIP // max(1, HALVES * tall)), -(-dim // CHUNK)
    for half in range(halves):
        for group in range(tall):
            ask_rows(flat, following, dim, each)
            following += each * dim
            place = ((half * chunks + start // CHUNK) * tall + group) * TALL * WIDE
            first = group * TALL * padded + start
            product_tile(left, first, padded, panels, half * STRIP * WIDE, count, products, place)


@inlined
def sweep(
    W: Any, tau: Any, pairs: Any, count: int, symmetric: bool, left: Any, lefts: int, which: Any,
    right: Any, n: int, lanes: Any, work: Any,
) -> None:  # fmt: skip
    """W <- W + tau_i l_i r_i^T for i < count in order; then lanes[t WIDTH..] = l_t^T W r_t by lane, for n
    events, whose l_t is row which[t] of the `lefts` rows of left.

    left, right: float32, rows as long as those of `pairs`; of left a multiple of TALL. lanes: float64.
    symmetric: the symmetric part is added, on and above the diagonal; there are no events then. work: a
    `workplace`.
    """
    factors, steps, panels, products, tile = work
    flat, dim, padded = W.reshape(-1), len(W), pairs.shape[1]
    terms, tall, chunks = 2 * count if symmetric else count, -(-lefts // TALL), -(-dim // CHUNK)
    _scale(pairs, count, tau, symmetric, factors)
    adding = (factors.reshape(-1), factors.shape[1], steps, terms, tile)
    lanes[: n * WIDTH] = 0
    for column in range(0, dim, BAND):
        halves = min(HALVES, (padded - column) // WIDE)
        for half in range(halves):
            _panel(pairs, count, symmetric, column + half * WIDE, steps, half * terms * WIDE)
        products[: HALVES * chunks * tall * TALL * WIDE] = 0
        last = min(dim, column + BAND) if symmetric else dim
        for start in range(0, last, STRIP):
            stop = min(start + STRIP, last)
            _take(W, start, stop, column, halves, adding, panels)
            following = stop * dim + column if stop < dim else column + BAND
            _multiply(flat, following, dim, start, stop - start, halves, left, padded, panels, products, tall)
        for half in range(halves):
            here = column + half * WIDE
            for chunk in range(half * chunks, (half + 1) * chunks):
                for t in range(n):
                    place = (chunk * tall * TALL + which[t]) * WIDE
                    weigh_row(products, place, right, t * padded + here, lanes, t * WIDTH)


@kernel(types.void(ROWS_OUT, FLOATS, ROWS, types.int64, types.boolean))
def add_pending(W: Any, tau: Any, pairs: Any, count: int, symmetric: bool) -> None:
    """W <- W + tau_n l_n r_n^T for n < count in order, or their symmetric part; W: float32 [dim, dim]."""
    none, which = np.empty(0, np.float32), np.empty(0, np.int64)
    work = workplace(len(W), pairs.shape[1], 2 * count if symmetric else count, 0)
    sweep(W, tau, pairs, count, symmetric, none, 0, which, none, 0, np.empty(0), work)
    if symmetric:
        _mirror(W)
