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
    INDEX,
    SUPPORT,
    Index,
    Support,
    join,
    used_tile,
    without_minus_zero,
)
from learners.kernels.tiles import AT_ONCE, LANES, SIDE_BY_SIDE, sum_many_triplets, sum_triplets, turn_lanes

BLOCK = 64
"""Triplets whose terms are summed in float32 before they go into the float64 sum."""

LIMITS = types.Tuple((types.float64, types.int64))
VALUES = types.UniTuple(types.float32[:, :, ::1], 2)
RULE = types.Tuple((types.int64, types.float64, types.float64))

Values: TypeAlias = tuple[Any, Any]
"""of_query float32 [events, slots, width], k_i(q, x) for each kept x; of_items, k_i(x, c) - k_i(x, s)."""

Given: TypeAlias = tuple[Any, Any, Any, Any]
"""The objects of a few events: queries float32 [events, dim]; lengths of their views, float32 [events, V];
items float32 [2 events, dim], clicked and skipped in turn; their lengths."""


@inlined
def _support_values(
    plan: Plan, support: Support, index: Index, stale: Any, given: Given, room: Any, values: Values
) -> None:
    """Fill `values` of all given events for the stale tiles, as far as triplets use them; room: as
    `tile_values` takes it. Each tile is read from memory once for all events."""
    kept, users = (support[0], index[0], index[1]), index[3]
    (queries, of_queries, items, of_items), out = given, room[1]
    for tile in range(len(support[0])):
        if not stale[tile]:
            continue
        if used_tile(users, tile, 0):
            tile_values(plan, kept, tile, queries, of_queries, room)
            for i in range(len(queries)):
                turn_lanes(out, i, -1, tile * LANES, values[0][i])
        if used_tile(users, tile, 1):
            tile_values(plan, kept, tile, items, of_items, room)
            for i in range(len(queries)):
                turn_lanes(out, 2 * i, 2 * i + 1, tile * LANES, values[1][i])


@inlined
def _support_margins(support: Support, of_query: Any, of_items: Any, sums: Any, margins: Any) -> None:
    """margins[k] += sum_l tau_l k(q, q_l) ((k(c_l, c) - k(c_l, s)) - (k(s_l, c) - k(s_l, s))), one event."""
    _, triplets, tau, _ = support
    for first in range(0, len(triplets), BLOCK):
        last = min(first + BLOCK, len(triplets))
        part = 0
        while part + AT_ONCE * SIDE_BY_SIDE <= len(sums):
            sum_many_triplets(triplets, first, last, part, tau, of_query, of_items, sums)
            part += AT_ONCE * SIDE_BY_SIDE
        while part < len(sums):
            sum_triplets(triplets, first, last, part, tau, of_query, of_items, sums)
            part += SIDE_BY_SIDE
        for k in range(len(margins)):
            margins[k] += np.float64(sums[k])


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
    tile_values(plan, own, 0, objects[:1], lengths[:1], room)
    for k in range(len(margins)):
        margins[k] = np.float64(out[0, k, 1]) - np.float64(out[0, k, 2])
        squares[k] = max(0.0, np.float64(out[0, k, 0]))
    tile_values(plan, own, 0, objects[1:], lengths[1:], room)
    for k in range(len(margins)):
        cc, cs, ss = np.float64(out[0, k, 1]), np.float64(out[0, k, 2]), np.float64(out[1, k, 2])
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
def _first(given: Given, count: int) -> Given:
    """The first of those given."""
    queries, of_queries, items, of_items = given
    return queries[:count], of_queries[:count], items[: 2 * count], of_items[: 2 * count]


@inlined
def _one_event(given: Given, i: int, objects: Any, lengths: Any) -> Given:
    """Event i of those given; its query, clicked and skipped into objects and lengths, three rows each."""
    queries, of_queries, items, of_items = given
    objects[0], objects[1], objects[2] = queries[i], items[2 * i], items[2 * i + 1]
    lengths[0], lengths[1], lengths[2] = of_queries[i], of_items[2 * i], of_items[2 * i + 1]
    return objects[:1], lengths[:1], objects[1:], lengths[1:]


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
    outcome, loss, tau, reason = steps
    (C, eviction), m, views, dim = limits, len(standing), len(plan[0]), query.shape[1]
    together, width, tiles = len(values[0]), support[2].shape[1], len(support[0])
    given = (
        np.empty((together, dim), np.float32), np.empty((together, views), np.float32),
        np.empty((2 * together, dim), np.float32), np.empty((2 * together, views), np.float32),
    )  # fmt: skip
    objects, lengths = np.empty((3, dim), np.float32), np.empty((3, views), np.float32)
    own, room = empty_tile(dim, views), values_room(plan, 2 * together, width)
    sums = np.empty(width, np.float32)
    margins, squares, taus = np.empty(m), np.empty(m), np.empty(m, np.float32)
    outcomes, awake = np.empty(m, np.int64), np.empty(m, np.bool_)
    events, stale = np.empty(together, np.int64), np.empty(tiles, np.bool_)
    outcome[:], loss[:], tau[:], start = REJECTED, 0, 0, 0
    while start < len(query):
        count = _gather(plan, start, query, clicked, skipped, reason, events, given)
        start = events[count - 1] + 1 if count == together else len(query)
        stale[:] = True
        _support_values(plan, support, index, stale, _first(given, count), room, values)
        stale[:] = False
        for i in range(count):
            t, alone = events[i], _one_event(given, i, objects, lengths)
            if i > 0:
                of_event = (values[0][i : i + 1], values[1][i : i + 1])
                _support_values(plan, support, index, stale, alone, room, of_event)
            _own_values(plan, objects, lengths, own, room, margins, squares)
            _support_margins(support, values[0][i], values[1][i], sums, margins)
            _wake(plan, lengths, margins, awake)
            tau[t] = _step_sizes(C * weights[t], margins, squares, awake, outcomes, taus)
            outcome[t] = combined_outcome(weights[t], outcomes, awake)
            loss[t] = combined_loss(rule[0], standing, margins, awake)
            if outcome[t] == UPDATED:
                counts[0] += 1
                join(support, index, objects, lengths, taus, counts, eviction, stale)
                weigh(rule[0], rule[1], rule[2], standing, margins, awake)
