"""Passive-aggressive steps on dense rows as matrix products: the update of W is delayed, its result exact.

A step reads all of W for its margin and writes all of it. With steps i pending, W = B + sum tau_i l_i r_i^T,
so

    l^T W r  =  l^T B r  +  sum tau_i (l . l_i) (r . r_i):

the first part for a block of events is one product with B, the second needs two dot products for each pending
step. When as many are pending as there is room for, all of them are added to B in one product of that rank.
For W kept symmetric the term is tau_i / 2 ((l . l_i)(r . r_i) + (r . l_i)(l . r_i)), and what is added
(l_i r_i^T + r_i l_i^T) tau_i / 2: above the diagonal it is computed, below it is copied. The way of the block
Householder transformations of LAPACK (Bischof and Van Loan, 1987) and of delayed updates of inverses.

Here l is the query q and r is c - s; for a distance l is (q - c) + (q - s).

Bits. B changes where the room is full, never where a batch ends. An entry of B takes the steps one after
another, in order, one fused product each: so it is the same however they are cut, and whoever adds them up. A
margin is a sum of fixed order: over the rows of B in float32, CHUNK at a time, then over columns in float64,
then over the pending steps in float64. How many events are multiplied at once is free, and follows how many
of them update.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types

from learners.kernels.checks import (
    MAX_DIFFERENCE,
    MAX_MAGNITUDE,
    NONE,
    PASSIVE,
    UPDATED,
    rejected,
    scan_triplet_dense,
    scan_weight,
    step_size,
)
from learners.kernels.compile import (
    DOUBLES,
    FLOATS,
    FLOATS_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Steps,
    inlined,
    kernel,
)
from learners.kernels.delayed_tiles import (
    PAIRS,
    TALL,
    WIDE,
    across_first,
    across_next,
    copy_columns,
    dot_pairs,
    mirror_tile,
    scale_rows,
    sides,
    sum_of_lanes,
    update_tile,
)
from learners.kernels.tiles import WIDTH

BILINEAR, SYMMETRIC, DISTANCE = range(3)
"""What W is: any matrix; kept symmetric; that of a distance, symmetric too."""

AT_ONCE = 32
"""Events that are multiplied with B at once, at most."""

CHUNK = 384
"""Rows of B that are summed in float32; a panel of so many stays in the nearest cache."""

LARGEST = float(np.finfo(np.float32).max)

Pending: TypeAlias = tuple[Any, Any]
"""tau float32 [room], 0 from the first free place on; pairs float32 [2 room, padded], row 2 n is l of step n
and row 2 n + 1 its r, 0 beyond the dimension and in free places."""

PENDING_OUT = types.Tuple((FLOATS_OUT, ROWS_OUT))
TOLD_OUT = types.Tuple((types.float64[::1], types.boolean[::1]))


@inlined
def _waiting(tau: Any) -> int:
    """How many steps are pending."""
    count = 0
    while count < len(tau) and tau[count] != 0:
        count += 1
    return count


@inlined
def _factors(pairs: Any, count: int, tau: Any, symmetric: bool, groups: int, factors: Any) -> None:
    """What each row of W multiplies the panel's rows with, TALL rows of W side by side."""
    flat, padded, half = pairs.reshape(-1), pairs.shape[1], np.float32(0.5)
    for n in range(count):
        for group in range(groups):
            here = 2 * n * padded + group * TALL
            if symmetric:
                place = 2 * (group * count + n) * TALL
                scale_rows(flat, here, half * tau[n], factors, place)
                scale_rows(flat, here + padded, half * tau[n], factors, place + TALL)
            else:
                scale_rows(flat, here, tau[n], factors, (group * count + n) * TALL)


@inlined
def _panel(pairs: Any, count: int, symmetric: bool, column: int, panel: Any) -> int:
    """The columns that the factors are multiplied with, WIDE of them; how many rows they have."""
    flat, padded = pairs.reshape(-1), pairs.shape[1]
    for n in range(count):
        right = (2 * n + 1) * padded + column
        if symmetric:
            copy_columns(flat, right, panel, 2 * n * WIDE)
            copy_columns(flat, right - padded, panel, (2 * n + 1) * WIDE)
        else:
            copy_columns(flat, right, panel, n * WIDE)
    return 2 * count if symmetric else count


@inlined
def _edge(W: Any, row: int, column: int, factors: Any, first: int, panel: Any, terms: int, tile: Any) -> None:
    """`update_tile` where W ends inside the tile."""
    height, width = min(TALL, len(W) - row), min(WIDE, len(W) - column)
    for r in range(height):
        for j in range(width):
            tile[r * WIDE + j] = W[row + r, column + j]
    update_tile(tile, 0, WIDE, factors, first, panel, terms)
    for r in range(height):
        for j in range(width):
            W[row + r, column + j] = tile[r * WIDE + j]


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


@kernel(types.void(ROWS_OUT, FLOATS, ROWS, types.int64, types.boolean))
def add_pending(W: Any, tau: Any, pairs: Any, count: int, symmetric: bool) -> None:
    """W <- W + tau_n l_n r_n^T for n < count in order, or their symmetric part; W: float32 [dim, dim]."""
    dim = len(W)
    flat, groups, terms = W.reshape(-1), (dim + TALL - 1) // TALL, 2 if symmetric else 1
    factors = np.empty(groups * TALL * count * terms, np.float32)
    panel, tile = np.empty(count * terms * WIDE, np.float32), np.zeros(TALL * WIDE, np.float32)
    _factors(pairs, count, tau, symmetric, groups, factors)
    for column in range(0, dim, WIDE):
        rows = _panel(pairs, count, symmetric, column, panel)
        last = min(groups, (column + WIDE + TALL - 1) // TALL) if symmetric else groups
        for group in range(last):
            row, first = group * TALL, group * rows * TALL
            if column + WIDE <= dim and row + TALL <= dim:
                update_tile(flat, row * dim + column, dim, factors, first, panel, rows)
            else:
                _edge(W, row, column, factors, first, panel, rows, tile)
    if symmetric:
        _mirror(W)


@inlined
def _across(W: Any, left: Any, right: Any, padded: int, n: int, panel: Any, sums: Any) -> None:
    """sums[t WIDTH..] = l_t^T W r_t by lane, for n events; left and right have a multiple of TALL rows."""
    flat, dim, groups = W.reshape(-1), len(W), (n + TALL - 1) // TALL
    for place in range(groups * TALL * WIDTH):
        sums[place] = 0.0
    for column in range(0, dim, WIDE):
        width = min(WIDE, dim - column)
        for start in range(0, dim, CHUNK):
            count = min(CHUNK, dim - start)
            if width == WIDE:
                place = start * dim + column
                across_first(left, start, padded, flat, place, dim, panel, count, right, column, sums, 0)
            else:
                for i in range(count):
                    for j in range(WIDE):
                        panel[i * WIDE + j] = W[start + i, column + j] if j < width else np.float32(0.0)
            for group in range(1 if width == WIDE else 0, groups):
                row, out = group * TALL * padded, group * TALL * WIDTH
                across_next(
                    left, row + start, padded, panel, 0, WIDE, panel, count, right, row + column, sums, out
                )


@inlined
def _of_pending(
    tau: Any, pairs: Any, count: int, symmetric: bool, left: Any, right: Any, start: int, dots: Any
) -> float:
    """What the pending steps add to the margin of the event whose sides begin at `start`, in float64."""
    flat, padded, turned, more = pairs.reshape(-1), pairs.shape[1], len(dots) // 2, 0.0
    for side in range(2 if symmetric else 1):
        even, odd = (left, right) if side == 0 else (right, left)
        for n in range(0, count, PAIRS):
            dot_pairs(flat, 2 * n * padded, padded, even, odd, start, padded, dots, side * turned + 2 * n)
    for n in range(count):
        product = dots[2 * n] * dots[2 * n + 1]
        if symmetric:
            product = 0.5 * (product + dots[turned + 2 * n] * dots[turned + 2 * n + 1])
        more += np.float64(tau[n]) * product
    return more


@inlined
def _sides(
    rows: Any, t: int, first: int, dim: int, distance: bool, left: Any, right: Any, place: int, work: Any
) -> Any:
    """Write l and r of one event; what `sides` tells of it. work: (norms float64 [3], overwritten; triplet
    float32 [3 padded], 0 beyond the dimension)."""
    norms, triplet = work
    padded = len(triplet) // 3
    for n in range(3):
        for column in range(dim):
            triplet[n * padded + column] = rows[n][t, first + column]
    return sides(triplet, padded, distance, np.float32(MAX_MAGNITUDE), left, right, place, norms)


@inlined
def _empty(tau: Any, pairs: Any) -> None:
    for n in range(len(tau)):
        tau[n] = 0
        for column in range(pairs.shape[1]):
            pairs[2 * n, column] = pairs[2 * n + 1, column] = 0


@inlined
def _read(
    rows: Any, done: int, size: int, first: int, dim: int, distance: bool, left: Any, right: Any,
    squares: Any, held: Any, reason: Any, work: Any,
) -> None:  # fmt: skip
    """l, r and ||V||^2 of the events that come next, and what is in their rows. reason: overwritten, or empty
    where it is known."""
    for n in range(size):
        held[n] = _sides(rows, done + n, first, dim, distance, left, right, n * (len(work[1]) // 3), work)
        norms = work[0]
        squares[n] = norms[0] * norms[1]
        if distance:
            squares[n] = (squares[n] + norms[2] * norms[2]) / 2
        if len(reason) > 0:
            reason[done + n] = NONE
            if held[n] & 0xFF:
                reason[done + n], _ = scan_triplet_dense(rows[0], rows[1], rows[2], done + n)


@inlined
def _append(pairs: Any, count: int, left: Any, right: Any, start: int) -> None:
    for column in range(pairs.shape[1]):
        pairs[2 * count, column] = left[start + column]
        pairs[2 * count + 1, column] = right[start + column]


@inlined
def _awake(margin: float, held: int, t: int, of_block: Any) -> bool:
    """Whether a block takes part in an event: none of its vectors is all zero. Its margin is told."""
    margins, awake = of_block
    if not abs(margin) < LARGEST:
        return False
    margins[t] = margin
    awake[t] = held & 0xFF0000 and held & 0xFF000000
    return bool(awake[t])


@inlined
def _refused(t: int, held: int, alone: bool, fault: int, steps: Steps, of_block: Any) -> bool:
    """Whether an event has no step for its faults, or in a block whose query is all zero; written then."""
    if alone:
        return bool(rejected(fault, t, steps))
    outcome, loss, tau, reason = steps
    of_block[0][t], of_block[1][t] = 0.0, False
    outcome[t], loss[t], tau[t] = PASSIVE, 0, 0
    return reason[t] != NONE or not held & 0xFF00


@kernel(
    types.UniTuple(types.int64, 2)(
        ROWS_OUT, PENDING_OUT, types.int64, types.float64, types.int64, types.int64,
        types.UniTuple(ROWS, 3), DOUBLES, STEPS_OUT, TOLD_OUT,
    )
)  # fmt: skip
def step_dense(
    W: Any, pending: Pending, kind: int, C: float, budget: int, first: int,
    rows: Any, weights: Any, steps: Steps, of_block: Any,
) -> tuple[int, int]:  # fmt: skip
    """Apply triplets in order until `budget` of them were accepted; (rows consumed, rows accepted).

    W: float32 [dim, dim], overwritten when the room of `pending`, overwritten, is full. kind: see above. C:
    aggressiveness. rows: query, clicked, skipped, float32 [n, at least first + dim], of which dim columns
    from `first` on count. weights: float64 [n], scales C, or empty. steps: written per event; a rejected or
    degenerate event changes nothing.

    of_block: (margins float64 [n], awake bool [n]), written, where W is one of several matrices side by side:
    reason of `steps` then holds the faults already, and a block where a vector is all zero, or whose margin
    float32 cannot hold, sleeps. Else both are empty.
    """
    outcome, loss, tau, reason = steps
    waiting, pairs = pending
    n_rows, dim, padded, room = len(rows[0]), len(W), pairs.shape[1], len(waiting)
    alone = len(of_block[0]) == 0
    symmetric, distance, count = kind != BILINEAR, kind == DISTANCE, _waiting(waiting)
    most = min(n_rows, AT_ONCE)
    height = (most + TALL - 1) // TALL * TALL
    left, right = np.zeros(height * padded, np.float32), np.zeros(height * padded, np.float32)
    panel, sums = np.empty(min(CHUNK, dim) * WIDE, np.float32), np.empty(height * WIDTH, np.float64)
    dots, squares, held = np.empty(4 * (room + PAIRS)), np.empty(height), np.empty(height, np.int64)
    work = (np.empty(3), np.zeros(3 * padded, np.float32))
    accepted, done, seen, updates = 0, 0, 1.0, 1.0
    while done < n_rows:
        size = min(n_rows - done, most, max(1, int((room - count) * seen / updates)))
        known = reason if alone else reason[:0]
        _read(rows, done, size, first, dim, distance, left, right, squares, held, known, work)
        _across(W, left, right, padded, size, panel, sums)
        stop = size
        for n in range(size):
            t = done + n
            if accepted == budget:
                return t, accepted
            fault, weight = scan_weight(weights, t)
            if _refused(t, held[n], alone, fault, steps, of_block):
                continue
            margin = sum_of_lanes(sums, n * WIDTH)
            if count > 0:
                margin += _of_pending(waiting, pairs, count, symmetric, left, right, n * padded, dots)
            if not alone and not _awake(margin, held[n], t, of_block):
                continue
            accepted += 1
            seen += 1
            outcome[t], loss[t], tau[t] = step_size(margin, squares[n], C * weight)
            if outcome[t] != UPDATED:
                continue
            updates += 1
            waiting[count] = tau[t]
            _append(pairs, count, left, right, n * padded)
            count += 1
            if count == room:
                add_pending(W, waiting, pairs, count, symmetric)
                _empty(waiting, pairs)
                count, stop = 0, n + 1
                break
        done += stop
    return n_rows, accepted


@inlined
def _sound(rows: Any, row: int) -> bool:
    """Whether a row holds numbers that a difference of vectors may have."""
    sound = True
    for column in range(rows.shape[1]):
        sound &= abs(rows[row, column]) <= MAX_DIFFERENCE
    return sound


@kernel(types.int64(ROWS_OUT, PENDING_OUT, types.boolean, FLOATS, ROWS, ROWS))
def replay_dense(W: Any, pending: Pending, symmetric: bool, tau: Any, query: Any, error: Any) -> int:
    """Take steps again in order; how many were, fewer than given where the next one is malformed.

    W: float32 [dim, dim], and `pending`: overwritten, as `step_dense` does. symmetric: add (V + V^T)/2. tau:
    float32 [n], a step of 0 is none. query, error: l and r, float32 [n, dim].
    """
    waiting, pairs = pending
    count = _waiting(waiting)
    for t in range(len(tau)):
        if not (_sound(query, t) and _sound(error, t) and np.isfinite(tau[t])):
            return t
        if tau[t] == 0:
            continue
        waiting[count] = tau[t]
        for column in range(len(W)):
            pairs[2 * count, column], pairs[2 * count + 1, column] = query[t, column], error[t, column]
        count += 1
        if count == len(waiting):
            add_pending(W, waiting, pairs, count, symmetric)
            _empty(waiting, pairs)
            count = 0
    return len(tau)
