"""Scores of queries against items by kernels over a support set.

sum_i theta_i S_i(q, p) = sum_i theta_i k_i(q, p) + sum over kept objects o of a_i(o) k_i(o, p), with a_i(o) =
theta_i sum_l tau_l,i k_i(q, q_l) ([o = c_l] - [o = s_l]): a is worked out once per query, kernel values once
per item.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import FLOATS, ROWS, ROWS_OUT, inlined, kernel
from learners.kernels.kernel_values import (
    PLAN,
    Plan,
    empty_tile,
    put_lane,
    tile_values,
    values_room,
    view_norms,
)
from learners.kernels.support_slots import (
    CLICKED,
    EMPTY,
    INDEX,
    QUERY,
    SKIPPED,
    SUPPORT,
    Index,
    Support,
    used_tile,
)
from learners.kernels.tiles import LANES, turn_lanes

from numba import types  # isort: skip


@inlined
def _coefficients(support: Support, theta: Any, of_query: Any, out: Any) -> None:
    """out[tile, k, lane] = a_k(o) of the object in this slot; of_query: float32 [slots, width]."""
    _, triplets, tau, _ = support
    out[:] = 0
    for place in range(len(triplets)):
        query, clicked, skipped = triplets[place, QUERY], triplets[place, CLICKED], triplets[place, SKIPPED]
        if query == EMPTY:
            continue
        for k in range(len(theta)):
            term = theta[k] * tau[place, k] * of_query[query, k]
            out[clicked // LANES, k, clicked % LANES] += term
            out[skipped // LANES, k, skipped % LANES] -= term


@inlined
def _against(weights: Any, tile: int, values: Any, kernels: int, sums: Any) -> None:
    """sums[lane] += sum over k of weights[tile, k, lane] values[0, k, lane]."""
    for k in range(kernels):
        for lane in range(LANES):
            sums[lane] += weights[tile, k, lane] * values[0, k, lane]


@inlined
def _total(sums: Any) -> float:
    total = 0.0
    for lane in range(LANES):
        total += np.float64(sums[lane])
    return total


@kernel(types.void(SUPPORT, INDEX, PLAN, FLOATS, ROWS, ROWS, types.float32[:, :, :, ::1], ROWS_OUT))
def score_supports(
    support: Support, index: Index, plan: Plan, theta: Any, queries: Any, items: Any, weights: Any, out: Any
) -> None:
    """out[i, j] = sum_k theta_k S_k(queries[i], items[j]), float32, for at most LANES queries.

    weights: float32 [queries, tiles, width, LANES], overwritten. The bits of a score do not depend on which
    others are asked for with it.
    """
    kept, users = (support[0], index[0], index[1]), index[3]
    tiles, views, width, m = len(support[0]), len(plan[0]), support[2].shape[1], len(theta)
    room = values_room(plan, 1, width)
    asking = empty_tile(queries.shape[1], views)
    lengths, of_query = np.empty((1, views), np.float32), np.zeros((tiles * LANES, width), np.float32)
    for i in range(len(queries)):
        view_norms(plan, queries[i], lengths[0])
        put_lane(queries[i], lengths[0], asking, i)
        for tile in range(tiles):
            if used_tile(users, tile, 0):
                tile_values(plan, kept, tile, queries[i : i + 1], lengths, room)
                turn_lanes(room[1], 0, -1, tile * LANES, of_query)
        _coefficients(support, theta, of_query, weights[i])
    sums, first = np.empty((len(queries), LANES), np.float32), np.empty(len(queries), np.float64)
    for j in range(len(items)):
        view_norms(plan, items[j], lengths[0])
        tile_values(plan, asking, 0, items[j : j + 1], lengths, room)
        for i in range(len(queries)):
            first[i], sums[i, :] = 0.0, 0
            for k in range(m):
                first[i] += np.float64(theta[k]) * np.float64(room[1][0, k, i])
        for tile in range(tiles):
            if used_tile(users, tile, 1):
                tile_values(plan, kept, tile, items[j : j + 1], lengths, room)
                for i in range(len(queries)):
                    _against(weights[i], tile, room[1], m, sums[i])
        for i in range(len(queries)):
            out[i, j] = np.float32(first[i] + _total(sums[i]))
