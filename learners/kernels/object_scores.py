"""What serving forms over kept objects need: kernel values, features made of them, and scores.

Each number is one sum in a fixed order, so its bits do not depend on what else is asked for.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import DOUBLES_OUT, FLOATS, ROWS, ROWS_OUT, kernel
from learners.kernels.kernel_values import (
    GAPS_OUT,
    PLAN,
    TILES_OUT,
    Kept,
    Plan,
    empty_tile,
    put_lane,
    tile_values,
    values_room,
    view_norms,
)
from learners.kernels.tiles import LANES

from numba import types  # isort: skip

AT_ONCE = 8
"""Items whose features are worked out together: vectors are read once for all of them."""

KEPT = types.Tuple((TILES_OUT, TILES_OUT, GAPS_OUT))
FOURFOLD = types.Array(types.float32, 4, "C", readonly=True)


@kernel(types.void(PLAN, ROWS, KEPT))
def fill_tiles(plan: Plan, objects: Any, kept: Kept) -> None:
    """Write each object into its slot, with the lengths of its views; `kept` holds none before: rows of 0,
    norms of 1."""
    lengths = np.empty(len(plan[0]), np.float32)
    for slot in range(len(objects)):
        view_norms(plan, objects[slot], lengths)
        put_lane(objects[slot], lengths, kept, slot)


@kernel(types.void(PLAN, KEPT, ROWS, types.float32[:, :, ::1]))
def object_values(plan: Plan, kept: Kept, items: Any, out: Any) -> None:
    """out[j, k, slot] = k_k(items[j], the object in this slot), float32 [items, m, slots]."""
    views, m = len(plan[0]), out.shape[1]
    room, lengths = values_room(plan, 1, 0), np.empty((1, views), np.float32)
    for j in range(len(items)):
        view_norms(plan, items[j], lengths[0])
        for tile in range(len(kept[0])):
            tile_values(plan, kept, tile, items[j : j + 1], lengths, room)
            for k in range(m):
                for lane in range(LANES):
                    out[j, k, tile * LANES + lane] = room[1][0, k, lane]


@kernel(types.void(PLAN, KEPT, FOURFOLD, ROWS, types.float32[:, :, ::1]))
def object_features(plan: Plan, kept: Kept, vectors: Any, items: Any, out: Any) -> None:
    """out[j, k] = sum over kept objects o of k_k(items[j], o) vectors[o, k], float32 [items, m, r].

    vectors: float32 [tiles, m, LANES, r], by the slot of an object.
    """
    views, m = len(plan[0]), out.shape[1]
    room, lengths = values_room(plan, 1, 0), np.empty((AT_ONCE, views), np.float32)
    values = np.empty((AT_ONCE, m, LANES), np.float32)
    out[:] = 0
    for first in range(0, len(items), AT_ONCE):
        count = min(AT_ONCE, len(items) - first)
        for i in range(count):
            view_norms(plan, items[first + i], lengths[i])
        for tile in range(len(kept[0])):
            for i in range(count):
                tile_values(plan, kept, tile, items[first + i : first + i + 1], lengths[i : i + 1], room)
                values[i] = room[1][0, :m]
            for k in range(m):
                for lane in range(LANES):
                    for i in range(count):
                        value = values[i, k, lane]
                        for r in range(out.shape[2]):
                            out[first + i, k, r] += value * vectors[tile, k, lane, r]


@kernel(types.void(PLAN, FLOATS, ROWS, DOUBLES_OUT))
def own_values(plan: Plan, theta: Any, items: Any, out: Any) -> None:
    """out[j] = sum_k theta_k k_k(items[j], items[j])."""
    views, m = len(plan[0]), len(theta)
    room, lengths = values_room(plan, 1, 0), np.empty((1, views), np.float32)
    own = empty_tile(items.shape[1], views)
    for j in range(len(items)):
        view_norms(plan, items[j], lengths[0])
        put_lane(items[j], lengths[0], own, 0)
        tile_values(plan, own, 0, items[j : j + 1], lengths, room)
        out[j] = 0
        for k in range(m):
            out[j] += np.float64(theta[k]) * np.float64(room[1][0, k, 0])


@kernel(types.void(PLAN, FLOATS, ROWS, ROWS, ROWS, ROWS, ROWS_OUT))
def score_features(
    plan: Plan, theta: Any, queries: Any, items: Any, asked: Any, features: Any, out: Any
) -> None:
    """out[i, j] = sum_k theta_k k_k(queries[i], items[j]) + sum_f asked[f, i] features[j, f], float32, for at
    most LANES queries.

    asked: float32 [F, LANES], the features of the queries times their weights. features: float32 [items, F].
    """
    views, m = len(plan[0]), len(theta)
    room, lengths = values_room(plan, 1, 0), np.empty((1, views), np.float32)
    asking = empty_tile(queries.shape[1], views)
    for i in range(len(queries)):
        view_norms(plan, queries[i], lengths[0])
        put_lane(queries[i], lengths[0], asking, i)
    sums = np.empty(LANES, np.float32)
    for j in range(len(items)):
        view_norms(plan, items[j], lengths[0])
        tile_values(plan, asking, 0, items[j : j + 1], lengths, room)
        sums[:] = 0
        for k in range(m):
            for lane in range(LANES):
                sums[lane] += theta[k] * room[1][0, k, lane]
        for f in range(len(asked)):
            value = features[j, f]
            for lane in range(LANES):
                sums[lane] += asked[f, lane] * value
        for i in range(len(queries)):
            out[i, j] = sums[i]
