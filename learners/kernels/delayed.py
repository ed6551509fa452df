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
margin is a sum of fixed order: with B as `learners.kernels.dense_sweep` says, then over the pending steps in
float64. How many events are multiplied at once is free, and follows how many of them update. A full room is
added in the pass over B that multiplies the events after it, or before the kernel returns.
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
    EVENTS,
    STEPS,
    TALL,
    WIDE,
    copy_columns,
    dot_tile,
    sides,
    sum_of_lanes,
)
from learners.kernels.dense_sweep import add_pending, sweep, workplace
from learners.kernels.tiles import WIDTH

BILINEAR, SYMMETRIC, DISTANCE, BY_QUERY = range(4)
"""What W is: any matrix; kept symmetric; that of a distance, symmetric too; any matrix, to which a full room
is added with the steps of one l in a row summed, l (sum tau_i r_i)^T: other last bits, fewer products."""

AT_ONCE = 64
"""Events that are multiplied with B at once, at most: where few of them update, passes over B are few."""

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
def _dots(
    flat: Any, room: int, waiting: int, symmetric: bool, left: Any, right: Any, start: int, padded: int,
    dots: Any,
) -> None:  # fmt: skip
    """The products of EVENTS events, whose sides begin at `start`, with `waiting` pending steps and with the
    steps that these events may become: dots[(side (room + STEPS) + place) EVENTS + event], a place beyond the
    room for each event. Sides: l . l_i and r . r_i; where W is symmetric l . r_i and r . l_i as well."""
    sides_of = (left, right)
    for side in range(4 if symmetric else 2):
        mine = side % 2
        other = mine if side < 2 else 1 - mine
        here = side * (room + STEPS)
        for n in range(0, waiting, STEPS):
            place, first = (here + n) * EVENTS, (2 * n + other) * padded
            dot_tile(flat, first, 2 * padded, sides_of[mine], start, padded, padded, dots, place)
        place = (here + room) * EVENTS
        dot_tile(sides_of[other], start, padded, sides_of[mine], start, padded, padded, dots, place)


@inlined
def _of_pending(tau: Any, places: Any, count: int, symmetric: bool, dots: Any, event: int) -> float:
    """What the pending steps add to the margin of an event, in float64. places: where in `dots` they are."""
    apart, more = len(dots) // 4, 0.0
    for n in range(count):
        place = places[n] * EVENTS + event
        product = dots[place] * dots[apart + place]
        if symmetric:
            product = 0.5 * (product + dots[3 * apart + place] * dots[2 * apart + place])
        more += np.float64(tau[n]) * product
    return more


@inlined
def _copy(row: Any, start: int, dim: int, triplet: Any, place: int) -> None:
    """triplet[place..] = row[start..], dim numbers."""
    whole = dim // WIDE * WIDE
    for column in range(0, whole, WIDE):
        copy_columns(row, start + column, triplet, place + column)
    for column in range(whole, dim):
        triplet[place + column] = row[start + column]


@inlined
def _alike(row: Any, start: int, other: Any, place: int, padded: int) -> bool:
    """Whether two rows hold the same numbers, so that products with them have the same bits."""
    if row[start] != other[place]:
        return False
    unlike = 0
    for column in range(padded):
        unlike += row[start + column] != other[place + column]
    return unlike == 0


@inlined
def _read(
    triplets: Any, done: int, size: int, row: int, first: int, dim: int, distance: bool, block: Any,
    padded: int,
) -> int:  # fmt: skip
    """l, r and ||V||^2 of the events that come next, and what is in their rows, which `sides` tells. Returns
    how many l are multiplied: one for events with the same l in a row, as those of a list are.

    triplets: their rows, flat, `row` long, of which dim columns from `first` on count.
    """
    query, clicked, skipped = triplets
    left, right, squares, held, _, _, _, lefts, which = block
    count = 0
    norms, triplet, most = np.empty(3), np.zeros(3 * padded, np.float32), np.float32(MAX_MAGNITUDE)
    for n in range(size):
        start = (done + n) * row + first
        _copy(query, start, dim, triplet, 0)
        _copy(clicked, start, dim, triplet, padded)
        _copy(skipped, start, dim, triplet, 2 * padded)
        held[n] = sides(triplet, padded, distance, most, left, right, n * padded, norms)
        squares[n] = norms[0] * norms[1]
        if distance:
            squares[n] = (squares[n] + norms[2] * norms[2]) / 2
        if count == 0 or not _alike(left, n * padded, lefts, (count - 1) * padded, padded):
            for column in range(0, padded, WIDE):
                copy_columns(left, n * padded + column, lefts, count * padded + column)
            count += 1
        which[n] = count - 1
    return count


@inlined
def _empty(tau: Any, pairs: Any, first: int, last: int) -> None:
    """Nothing waits in the places first..last - 1 any more."""
    tau[first:last] = 0
    pairs[2 * first : 2 * last] = 0


@inlined
def _summed(tau: Any, pairs: Any, count: int) -> int:
    """Sum the steps of one l in a row, in place: r becomes sum tau_i r_i, tau 1; how many there are then."""
    flat, padded, terms = pairs.reshape(-1), pairs.shape[1], 0
    for n in range(count):
        here, there = 2 * n * padded, 2 * (terms - 1) * padded
        if terms > 0 and _alike(flat, here, flat, there, padded):
            for column in range(padded, 2 * padded):
                flat[there + column] = tau[terms - 1] * flat[there + column] + tau[n] * flat[here + column]
            tau[terms - 1] = 1
            continue
        tau[terms] = tau[n]
        for column in range(0, 2 * padded, WIDE):
            copy_columns(flat, here + column, flat, 2 * terms * padded + column)
        terms += 1
    return terms


@inlined
def _added(W: Any, waiting: Any, pairs: Any, count: int, kind: int) -> int:
    """Add a full room to W; how many steps wait then. The places stay, to be overwritten or emptied."""
    if count < len(waiting):
        return count
    terms = _summed(waiting, pairs, count) if kind == BY_QUERY else count
    add_pending(W, waiting, pairs, terms, kind in (SYMMETRIC, DISTANCE))
    return 0


@inlined
def _faults(rows: Any, done: int, size: int, held: Any, reason: Any) -> None:
    """The fault of each event that comes next."""
    for n in range(size):
        reason[done + n] = NONE
        if held[n] & 0xFF:
            reason[done + n], _ = scan_triplet_dense(rows[0], rows[1], rows[2], done + n)


@inlined
def _append(flat: Any, padded: int, count: int, left: Any, right: Any, start: int) -> None:
    for column in range(0, padded, WIDE):
        copy_columns(left, start + column, flat, 2 * count * padded + column)
        copy_columns(right, start + column, flat, (2 * count + 1) * padded + column)


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


@inlined
def _places_of(most: int, padded: int, room: int) -> Any:
    """What is written of the events that are multiplied at once: l and r, ||V||^2, what is in their rows, the
    products by lane; the products with pending steps, and where those of a step are; each l once, and which
    of them is that of an event."""
    height = -(-most // TALL) * TALL
    below = (height + STEPS) * padded  # `dot_tile` reads whole tiles, also beyond the last event
    return (
        np.zeros(below, np.float32),
        np.zeros(below, np.float32),
        np.empty(height),
        np.empty(height, np.int64),
        np.empty(height * WIDTH),
        np.empty(4 * (room + STEPS) * EVENTS),
        np.empty(room, np.int64),
        np.zeros(height * padded, np.float32),
        np.empty(height, np.int64),
    )


@inlined
def _learn(
    done: int, size: int, count: int, budget: int, C: float, symmetric: bool, pending: Pending,
    weights: Any, steps: Steps, of_block: Any, block: Any,
) -> Any:  # fmt: skip
    """Take the steps of events that are multiplied with B, until the room or the budget is full: (events
    taken, steps that wait then, events accepted)."""
    outcome, loss, tau, _ = steps
    waiting, pairs = pending
    left, right, squares, held, sums, dots, places, _, _ = block
    flat, padded, room = pairs.reshape(-1), pairs.shape[1], len(waiting)
    alone, accepted = len(of_block[0]) == 0, 0
    for n in range(size):
        t, event = done + n, n % EVENTS
        if accepted == budget or count == room:
            return n, count, accepted
        if event == 0:
            _dots(flat, room, count, symmetric, left, right, n * padded, padded, dots)
            for place in range(count):
                places[place] = place
        fault, weight = scan_weight(weights, t)
        if _refused(t, held[n], alone, fault, steps, of_block):
            continue
        margin = sum_of_lanes(sums, n * WIDTH)
        if count > 0:
            margin += _of_pending(waiting, places, count, symmetric, dots, event)
        if not alone and not _awake(margin, held[n], t, of_block):
            continue
        accepted += 1
        outcome[t], loss[t], tau[t] = step_size(margin, squares[n], C * weight)
        if outcome[t] == UPDATED:
            waiting[count], places[count] = tau[t], room + event
            _append(flat, padded, count, left, right, n * padded)
            count += 1
    return size, count, accepted


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
    waiting, pairs = pending
    n_rows, dim, padded, room = len(rows[0]), len(W), pairs.shape[1], len(waiting)
    alone = len(of_block[0]) == 0
    distance, count = kind == DISTANCE, _waiting(waiting)
    symmetric = kind == SYMMETRIC or distance
    most = min(n_rows, AT_ONCE)
    block, passing = _places_of(most, padded, room), workplace(dim, padded, room, most)
    _, right, _, held, sums, _, _, lefts, which = block
    triplets = (rows[0].reshape(-1), rows[1].reshape(-1), rows[2].reshape(-1))
    accepted, done, updates, used = 0, 0, 0, count
    while done < n_rows and accepted < budget:
        if symmetric:  # only the upper half takes the steps, which a product needs whole
            count = _added(W, waiting, pairs, count, kind)
        to_come = (room - count % room) * (accepted + 1) / (updates + 1)
        size = min(n_rows - done, most, max(1, int(to_come)))
        several = _read(triplets, done, size, rows[0].shape[1], first, dim, distance, block, padded)
        if alone:
            _faults(rows, done, size, held, steps[3])
        full = count // room * room
        terms = _summed(waiting, pairs, full) if kind == BY_QUERY else full
        sweep(W, waiting, pairs, terms, False, lefts, several, which, right, size, sums, passing)
        before = count - full
        stop, count, more = _learn(
            done, size, before, budget - accepted, C, symmetric, pending, weights, steps, of_block, block
        )
        done, accepted, updates = done + stop, accepted + more, updates + count - before
        used = max(used, count)
    count = _added(W, waiting, pairs, count, kind)
    _empty(waiting, pairs, count, used)
    return done, accepted


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
            _empty(waiting, pairs, 0, count)
            count = 0
    return len(tau)
