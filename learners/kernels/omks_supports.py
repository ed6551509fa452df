"""Steps of OMKS over a support set, one event after another (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), sec. 4).

Per event: the values of all kernels between its three objects and every kept one, tile by tile; the margin
S_i(q, c) - S_i(q, s) of each kernel over the kept triplets; a passive-aggressive step per kernel; one round
of the rule that weighs the kernels.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types

from learners.kernels.checks import NONE, REJECTED, UPDATED, step_size
from learners.kernels.compile import (
    DOUBLES,
    DOUBLES_OUT,
    POINTERS_OUT,
    ROWS,
    STEPS_OUT,
    Steps,
    inlined,
    kernel,
    merged,
)
from learners.kernels.kernel_values import (
    PLAN,
    Plan,
    empty_tile,
    put_lane,
    tile_values,
    values_room,
    view_norms,
)
from learners.kernels.omks_blocks import combined_loss, combined_outcome, weigh
from learners.kernels.support_slots import (
    BLOCK,
    INDEX,
    SUPPORT,
    Index,
    Support,
    join,
    used_tile,
    without_minus_zero,
)
from learners.kernels.tiles import (
    AT_ONCE,
    LANES,
    SIDE_BY_SIDE,
    borrowed,
    few_of_one,
    few_of_two,
    hold,
    many_of_one,
    many_of_two,
    turn_lanes,
)

TWO = 2
"""Events whose triplets are summed in one pass: kept taus are read once for both, and the kernel values of an
object lie side by side."""

LIMITS = types.Tuple((types.float64, types.int64))
VALUES = types.UniTuple(types.float32[:, :, ::1], 2)
RULE = types.Tuple((types.int64, types.float64, types.float64))

Values: TypeAlias = tuple[Any, Any]
"""of_query float32 [groups, slots, TWO * width], k_i(q, x) for each kept x, of TWO events side by side;
of_items, k_i(x, c) - k_i(x, s)."""

Given: TypeAlias = tuple[Any, Any, Any, Any]
"""The objects of a few events: queries float32 [events, dim]; lengths of their views, float32 [events, V];
items float32 [2 events, dim], clicked and skipped in turn; their lengths."""

Whole: TypeAlias = tuple[Any, Any]
"""Of as many events as are taken together: queries and then items, float32 [3 events, dim], and lengths."""


@merged
def _turn_queries(out: Any, tile: int, first: int, count: int, width: int, values: Any) -> None:
    """Kernel values of `count` queries, in the first rows of `out`, into their `values`."""
    for i in range(count):
        event = first + i
        turn_lanes(out, i, -1, width, values, event // TWO, tile * LANES, event % TWO * width)


@merged
def _turn_items(out: Any, tile: int, at: int, first: int, count: int, width: int, values: Any) -> None:
    """The same of the items of `count` events, from row `at` of `out` on: clicked less skipped."""
    for i in range(count):
        event, clicked = first + i, at + 2 * i
        column = event % TWO * width
        turn_lanes(out, clicked, clicked + 1, width, values, event // TWO, tile * LANES, column)


@inlined
def _support_values(
    plan: Plan, support: Support, index: Index, stale: Any, given: Given, whole: Whole, room: Any,
    values: Values, first: int,
) -> None:  # fmt: skip
    """Fill `values` of all given events, the first of which is event `first` there, for the stale tiles, as
    far as triplets use them; room: as `tile_values` takes it. Each tile is read from memory once for all
    events; whole: where these are all that are taken together, their queries and items at once."""
    kept, users, width = (support[0], index[0], index[1]), index[3], support[2].shape[1]
    (queries, of_queries, items, of_items), (objects, lengths), count = given, whole, len(given[0])
    for tile in range(len(support[0])):
        if not stale[tile]:
            continue
        asked, shown = used_tile(users, tile, 0), used_tile(users, tile, 1)
        both = asked and shown and 3 * count == len(objects)
        for role in range(2):  # one call alone, which is compiled into this loop
            if not (shown if role else asked) or (both and role):
                continue
            rows = objects if both else items if role else queries
            tile_values(plan, kept, tile, rows, lengths if both else of_items if role else of_queries, room)
            if not role:
                _turn_queries(room[1], tile, first, count, width, values[0])
            if role or both:
                _turn_items(room[1], tile, count if both else 0, first, count, width, values[1])


@inlined
def _sums_of_one(support: Support, values: Values, event: int, changed: Any, sums: Any) -> None:
    """sums[event % TWO, block, k] of one event for the changed blocks of triplets: sum over l of tau_l k(q,
    q_l) ((k(c_l, c) - k(c_l, s)) - (k(s_l, c) - k(s_l, s)))."""
    (_, triplets, tau, _), (of_query, of_items) = support, values
    width, group, e = tau.shape[1], event // TWO, event % TWO
    for block in range(len(changed)):
        if not changed[block]:
            continue
        first, k, at = block * BLOCK, 0, e * width
        last = min(first + BLOCK, len(triplets))
        while k + AT_ONCE * SIDE_BY_SIDE <= width:
            many_of_one(triplets, first, last, k, tau, of_query, of_items, group, at, sums, e, block)
            k += AT_ONCE * SIDE_BY_SIDE
        while k < width:
            few_of_one(triplets, first, last, k, tau, of_query, of_items, group, at, sums, e, block)
            k += SIDE_BY_SIDE


@inlined
def _sums_of_two(support: Support, values: Values, group: int, sums: Any) -> None:
    """`_sums_of_one` of both events of a group, for all blocks."""
    (_, triplets, tau, _), (of_query, of_items) = support, values
    for block in range(sums.shape[1]):
        first, k = block * BLOCK, 0
        last = min(first + BLOCK, len(triplets))
        while k + AT_ONCE * SIDE_BY_SIDE <= tau.shape[1]:
            many_of_two(triplets, first, last, k, tau, of_query, of_items, group, 0, sums, 0, block)
            k += AT_ONCE * SIDE_BY_SIDE
        while k < tau.shape[1]:
            few_of_two(triplets, first, last, k, tau, of_query, of_items, group, 0, sums, 0, block)
            k += SIDE_BY_SIDE


@inlined
def _add_blocks(sums: Any, at: int, margins: Any) -> None:
    """margins[k] += sum over blocks of sums[at, block, k], in their order."""
    for block in range(sums.shape[1]):
        for k in range(len(margins)):
            margins[k] += np.float64(sums[at, block, k])


@inlined
def _own_values(
    plan: Plan, objects: Any, lengths: Any, own: Any, room: Any, margins: Any, squares: Any
) -> None:
    """margins[k] = k(q, c) - k(q, s), squares[k] = k(q, q) (k(c, c) - 2 k(c, s) + k(s, s)), both float64.

    The three objects are lanes 0, 1, 2 of a tile of their own, so that these values have the bits that a kept
    copy would have.
    """
    out = room[1]
    for lane in range(3):
        put_lane(objects[lane], lengths[lane], own, lane)
    tile_values(plan, own, 0, objects, lengths, room)
    for k in range(len(margins)):
        margins[k] = np.float64(out[0, k, 1]) - np.float64(out[0, k, 2])
        squares[k] = max(0.0, np.float64(out[0, k, 0]))
        cc, cs, ss = np.float64(out[1, k, 1]), np.float64(out[1, k, 2]), np.float64(out[2, k, 2])
        squares[k] *= max(0.0, (cc - cs) + (ss - cs))


@inlined
def _wake(plan: Plan, lengths: Any, margins: Any, awake: Any) -> None:
    """A kernel sleeps while its view is missing in one of the three, where there are several views and it is
    no mean over them, and where its margin is no number."""
    views, places, mean = plan[0], plan[3], len(plan[1][2]) > 0
    for place in range(len(awake)):
        view = places[place]
        present = lengths[0, view] > 0 and lengths[1, view] > 0 and lengths[2, view] > 0
        awake[place] = (present or mean or len(views) == 1) and np.isfinite(margins[place])


@inlined
def _gather(
    plan: Plan, first: int, query: Any, clicked: Any, skipped: Any, reason: Any, events: Any, given: Given
) -> int:
    """Take the next events without a fault, from `first` on, as many as `events` holds: their numbers into
    `events`, their objects into `given`; how many there are."""
    count, t, (queries, of_queries, items, of_items) = 0, first, given
    while count < len(events) and t < len(query):
        if reason[t] == NONE:
            without_minus_zero(query, t, queries[count])
            without_minus_zero(clicked, t, items[2 * count])
            without_minus_zero(skipped, t, items[2 * count + 1])
            view_norms(plan, queries[count], of_queries[count])
            view_norms(plan, items[2 * count], of_items[2 * count])
            view_norms(plan, items[2 * count + 1], of_items[2 * count + 1])
            events[count] = t
            count += 1
        t += 1
    return count


@inlined
def _some(given: Given, first: int, last: int) -> Given:
    """Of those given, from the first on, without the last."""
    (queries, of_queries, items, of_items), start, end = given, 2 * first, 2 * last
    return queries[first:last], of_queries[first:last], items[start:end], of_items[start:end]


@inlined
def _one_event(given: Given, i: int, objects: Any, lengths: Any) -> None:
    """Query, clicked and skipped of event i of those given into objects and lengths, three rows each."""
    queries, of_queries, items, of_items = given
    objects[0], objects[1], objects[2] = queries[i], items[2 * i], items[2 * i + 1]
    lengths[0], lengths[1], lengths[2] = of_queries[i], of_items[2 * i], of_items[2 * i + 1]


@inlined
def _step_sizes(C: float, margins: Any, squares: Any, awake: Any, outcomes: Any, taus: Any) -> Any:
    """The outcome and tau of each kernel, 0 of one that sleeps; the largest tau."""
    largest = np.float32(0)
    for k in range(len(taus)):
        taus[k] = 0
        if awake[k]:
            outcomes[k], _, taus[k] = step_size(margins[k], squares[k], C)
            largest = max(largest, taus[k])
    return largest


@merged
def _three(arrays: Any) -> Any:
    return borrowed(arrays[0]), borrowed(arrays[1]), borrowed(arrays[2])


@merged
def _four(arrays: Any) -> Any:
    return borrowed(arrays[0]), borrowed(arrays[1]), borrowed(arrays[2]), borrowed(arrays[3])


@inlined
def _room(plan: Plan, together: int, dim: int, width: int) -> Any:
    """Objects of so many events and the lengths of their views; those of one; room for values of all, a tile
    of one event's own, and room for its values."""
    views = len(plan[0])
    return (
        np.empty((3 * together, dim), np.float32), np.empty((3 * together, views), np.float32),
        np.empty((3, dim), np.float32), np.empty((3, views), np.float32),
        values_room(plan, 3 * together, width), empty_tile(dim, views), values_room(plan, 3, width),
    )  # fmt: skip


@kernel(
    types.void(
        SUPPORT,
        INDEX,
        VALUES,
        PLAN,
        LIMITS,
        RULE,
        DOUBLES_OUT,
        POINTERS_OUT,
        ROWS,
        ROWS,
        ROWS,
        DOUBLES,
        STEPS_OUT,
    )
)
def step_supports(
    support: Support, index: Index, values: Values, plan: Plan,
    limits: tuple[float, int], rule: tuple[int, float, float],
    standing: Any, counts: Any, query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps,
) -> None:  # fmt: skip
    """Apply triplets in order.

    support, index, values, standing (float64 [m]): overwritten. limits: C and the rule of eviction. rule: see
    `learners.hedge`. counts: int64 [2], steps taken and triplets evicted, overwritten. query, clicked,
    skipped: float32 [n, dim]; rows with a fault in steps' reason are not read. weights: float64 [n], scales
    C. steps: outcome, loss (of the weighed sum) and tau (the largest of the kernels') are written.
    """
    support, index, values = _four(support), _four(index), (borrowed(values[0]), borrowed(values[1]))
    plan = borrowed(plan[0]), _three(plan[1]), borrowed(plan[2]), borrowed(plan[3])
    outcome, loss, tau, reason = steps
    (C, eviction), m, dim = limits, len(standing), query.shape[1]
    together, width, tiles = TWO * len(values[0]), support[2].shape[1], len(support[0])
    held = _room(plan, together, dim, width)
    whole, objects, lengths = (borrowed(held[0]), borrowed(held[1])), borrowed(held[2]), borrowed(held[3])
    given = whole[0][:together], whole[1][:together], whole[0][together:], whole[1][together:]
    room, own, own_room = _three(held[4]), _three(held[5]), _three(held[6])
    blocks = -(-len(support[1]) // BLOCK)
    sums = np.empty((TWO, blocks, width), np.float32)
    margins, squares, taus = np.empty(m), np.empty(m), np.empty(m, np.float32)
    outcomes, awake = np.empty(m, np.int64), np.empty(m, np.bool_)
    events, marks = np.empty(together, np.int64), (np.empty(tiles, np.bool_), np.empty(blocks, np.bool_))
    outcome[:], loss[:], tau[:], start = REJECTED, 0, 0, 0
    while start < len(query):
        count = _gather(plan, start, query, clicked, skipped, reason, events, given)
        start = events[count - 1] + 1 if count == together else len(query)
        marks[0][:] = True
        _support_values(plan, support, index, marks[0], _some(given, 0, count), whole, room, values, 0)
        marks[0][:] = False
        for i in range(count):
            pair = i % TWO == 0 and i + 1 < count
            last = i + 2 if pair else i + 1
            if i > 0:
                refreshed = _some(given, i, last)
                _support_values(plan, support, index, marks[0], refreshed, whole, room, values, i)
            if pair:
                _sums_of_two(support, values, i // TWO, sums)
            else:
                if i % TWO == 0:
                    marks[1][:] = True
                _sums_of_one(support, values, i, marks[1], sums)
            if i % TWO == 0:
                marks[0][:], marks[1][:] = False, False
            t = events[i]
            _one_event(given, i, objects, lengths)
            _own_values(plan, objects, lengths, own, own_room, margins, squares)
            _add_blocks(sums, i % TWO, margins)
            _wake(plan, lengths, margins, awake)
            tau[t] = _step_sizes(C * weights[t], margins, squares, awake, outcomes, taus)
            outcome[t] = combined_outcome(weights[t], outcomes, awake)
            loss[t] = combined_loss(rule[0], standing, margins, awake)
            if outcome[t] == UPDATED:
                counts[0] += 1
                join(support, index, objects, lengths, taus, counts, eviction, marks)
                weigh(rule[0], rule[1], rule[2], standing, margins, awake)
    hold(held)
