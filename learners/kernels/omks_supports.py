"""Steps of OMKS over a support set, one event after another (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), sec. 4).

Per event: the values of all kernels between its three objects and every kept one, tile by tile; the margin
S_i(q, c) - S_i(q, s) of each kernel over the kept triplets; a passive-aggressive step per kernel; one round
of the rule that weighs the kernels.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from learners.kernels.checks import NONE, REJECTED, UPDATED, step_size
from learners.kernels.combined import combined_loss, combined_outcome
from learners.kernels.compile import (
    DOUBLES,
    DOUBLES_OUT,
    POINTERS_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Steps,
    inlined,
    kernel,
)
from learners.kernels.hedge import weigh
from learners.kernels.kernel_values import PLAN, Plan, put_lane, tile_values, view_norms
from learners.kernels.support_slots import (
    INDEX,
    SUPPORT,
    Index,
    Support,
    join,
    used_tile,
    without_minus_zero,
)
from learners.kernels.tiles import LANES, turn_lanes
from learners.kernels.triplet_sums import AT_ONCE, SIDE_BY_SIDE, sum_many_triplets, sum_triplets

from numba import types  # isort: skip

BLOCK = 64
"""Triplets whose terms are summed in float32 before they go into the float64 sum."""

LIMITS = types.Tuple((types.float64, types.int64))
VALUES = types.UniTuple(ROWS_OUT, 2)
RULE = types.Tuple((types.int64, types.float64, types.float64))

Values: TypeAlias = tuple[Any, Any]
"""of_query float32 [slots, width], k_i(q, x) for each kept x; of_items, k_i(x, c) - k_i(x, s)."""


@inlined
def support_values(
    plan: Plan, support: Support, index: Index, objects: Any, lengths: Any, room: Any, values: Values
) -> None:
    """Fill `values` for the slots in use; objects: float32 [3, dim]; lengths: float32 [3, V]; room: as
    `tile_values` takes it."""
    kept, users = (support[0], index[0], index[1]), index[3]
    out = room[1]
    for tile in range(len(support[0])):
        asked, offered = used_tile(users, tile, 0), used_tile(users, tile, 1)
        if asked and offered:
            tile_values(plan, kept, tile, objects, lengths, room)
            turn_lanes(out, 0, -1, tile * LANES, values[0])
            turn_lanes(out, 1, 2, tile * LANES, values[1])
        elif asked:
            tile_values(plan, kept, tile, objects[:1], lengths[:1], room)
            turn_lanes(out, 0, -1, tile * LANES, values[0])
        elif offered:
            tile_values(plan, kept, tile, objects[1:], lengths[1:], room)
            turn_lanes(out, 0, 1, tile * LANES, values[1])


@inlined
def _support_margins(support: Support, values: Values, sums: Any, margins: Any) -> None:
    """margins[k] += sum_l tau_l k(q, q_l) ((k(c_l, c) - k(c_l, s)) - (k(s_l, c) - k(s_l, s)))."""
    _, triplets, tau, _ = support
    of_query, of_items = values
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
    tile_values(plan, own, 0, objects, lengths, room)
    for k in range(len(margins)):
        margins[k] = np.float64(out[0, k, 1]) - np.float64(out[0, k, 2])
        cc, cs, ss = np.float64(out[1, k, 1]), np.float64(out[1, k, 2]), np.float64(out[2, k, 2])
        squares[k] = max(0.0, np.float64(out[0, k, 0])) * max(0.0, (cc - cs) + (ss - cs))


@inlined
def _wake(plan: Plan, lengths: Any, margins: Any, awake: Any) -> None:
    """A kernel sleeps while its view is missing in one of the three, where there are several views and it is
    no mean over them, and where its margin is no number."""
    views, places, mean = plan[0], plan[3], len(plan[1][2]) > 0
    for place in range(len(awake)):
        view = places[place]
        present = lengths[0, view] > 0 and lengths[1, view] > 0 and lengths[2, view] > 0
        awake[place] = (present or mean or len(views) == 1) and np.isfinite(margins[place])


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
    objects, lengths = np.empty((3, dim), np.float32), np.empty((3, views), np.float32)
    own = (
        np.zeros((1, dim, LANES), np.float32),
        np.ones((1, views, LANES), np.float32),
        np.zeros((1, views), np.bool_),
    )
    width = support[2].shape[1]
    places = max(width, len(plan[3]))
    room = (np.empty((views, 3, 3, LANES), np.float32), np.zeros((3, places, LANES), np.float32))
    sums = np.empty(width, np.float32)
    margins, squares, taus = np.empty(m), np.empty(m), np.empty(m, np.float32)
    outcomes, awake = np.empty(m, np.int64), np.empty(m, np.bool_)
    for t in range(len(query)):
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        without_minus_zero(query, t, objects[0])
        without_minus_zero(clicked, t, objects[1])
        without_minus_zero(skipped, t, objects[2])
        for lane in range(3):
            view_norms(plan, objects[lane], lengths[lane])
        _own_values(plan, objects, lengths, own, room, margins, squares)
        support_values(plan, support, index, objects, lengths, room, values)
        _support_margins(support, values, sums, margins)
        _wake(plan, lengths, margins, awake)
        tau[t] = 0
        for k in range(m):
            taus[k] = 0
            if awake[k]:
                outcomes[k], _, taus[k] = step_size(margins[k], squares[k], C * weights[t])
                tau[t] = max(tau[t], taus[k])
        outcome[t] = combined_outcome(weights[t], outcomes, awake)
        loss[t] = combined_loss(rule[0], standing, margins, awake)
        if outcome[t] == UPDATED:
            counts[0] += 1
            join(support, index, objects, lengths, taus, counts, eviction)
            weigh(rule[0], rule[1], rule[2], standing, margins, awake)
