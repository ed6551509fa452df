"""Values of m kernels, or of their mean, between given objects and a tile of kept ones; and what serving
forms over kept objects make of them: features and scores.

One sum per view serves all its kernels: the squared distance makes every RBF and the cosine, the inner
product the linear and polynomial kernels, the sum of the lesser numbers the histogram intersection. Each
number is one sum in a fixed order, so its bits do not depend on what else is asked for.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types

from learners.kernels.compile import DOUBLES_OUT, FLOATS, POINTERS, ROWS, ROWS_OUT, inlined, kernel, merged
from learners.kernels.kinds import (
    COSINE,
    INTERSECTION,
    LEAST,
    LINEAR,
    POLYNOMIAL,
    PRODUCTS,
    RBF,
    RBF_OF_OTHER,
    SQUARES,
)
from learners.kernels.tiles import (
    LANES,
    MANY,
    cosine_of_squares,
    fourth_power,
    inverse_lengths,
    least_of_many,
    least_of_one,
    least_of_two,
    products_of_many,
    products_of_one,
    products_of_two,
    rbf_of_squares,
    squares_of_many,
    squares_of_one,
    squares_of_two,
    stretched,
)


@inlined
def average(count: int, given: int, out: Any) -> None:
    """out[i, 0] = the mean of out[i, :count], for each of the given objects, lane by lane."""
    share = np.float32(1) / np.float32(count)
    for i in range(given):
        for lane in range(LANES):
            total = np.float32(0)
            for place in range(count):
                total += out[i, place, lane]
            out[i, 0, lane] = total * share


LARGEST = np.float32(1e12)
"""Kernel values are kept within +-LARGEST, and 0 where they are no number: so an object of absurd size in
the support set makes no later event's margin infinite."""

PLACES = types.Array(types.int64, 2, "C", readonly=True)
PLAN = types.Tuple((PLACES, types.UniTuple(PLACES, 3), ROWS, POINTERS))
TILES_OUT = types.float32[:, :, ::1]
GAPS_OUT = types.boolean[:, ::1]

Kept: TypeAlias = tuple[Any, Any, Any]
"""rows float32 [tiles, dim, LANES]; norms float32 [tiles, V, LANES], lengths per view, any above 0 where no
object is; gaps bool [tiles, V], whether one of the lengths is 0."""

Plan: TypeAlias = tuple[Any, Any, Any, Any]
"""views int64 [V, 3]: first and last column + 1, and which sums; kernels: three int64 [., 4], those by
distance, the others, and at most one mean, in the order in which they are worked out: place, view, kind,
place of the other (of the mean: how many there are; it takes place 0, and then only that one learns);
numbers float32 [places, 3] by place: rate 1/(gamma sigma^2) and stretch 1/(1 - what unrelated objects have),
0 where it is not centred, or scale, shift and degree of the polynomial;
view of each place, int64 [places]."""

_ONE, _ZERO = np.float32(1), np.float32(0)


@inlined
def _bounded(value: Any) -> Any:
    kept = min(max(value, -LARGEST), LARGEST)
    return kept if kept == kept else _ZERO  # noqa: PLR0124  (not so for NaN alone)


@inlined
def _power(base: Any, degree: int) -> Any:
    result = _ONE
    for _ in range(degree):
        result *= base
    return result


@merged
def _sums_of_many(rows: Any, tile: int, views: Any, view: int, given: Any, i: int, sums: Any) -> None:
    """What a view needs of MANY given objects, from given[i] on."""
    first, last, needed = views[view, 0], views[view, 1], views[view, 2]
    if needed & SQUARES:
        squares_of_many(rows, tile, first, last, given, i, sums, view, 0)
    if needed & PRODUCTS:
        products_of_many(rows, tile, first, last, given, i, sums, view, 1)
    if needed & LEAST:
        least_of_many(rows, tile, first, last, given, i, sums, view, 2)


@merged
def _sums_of_two(rows: Any, tile: int, views: Any, view: int, given: Any, i: int, sums: Any) -> None:
    """What a view needs of two."""
    first, last, needed = views[view, 0], views[view, 1], views[view, 2]
    if needed & SQUARES:
        squares_of_two(rows, tile, first, last, given, i, sums, view, 0)
    if needed & PRODUCTS:
        products_of_two(rows, tile, first, last, given, i, sums, view, 1)
    if needed & LEAST:
        least_of_two(rows, tile, first, last, given, i, sums, view, 2)


@merged
def _sums_of_one(rows: Any, tile: int, views: Any, view: int, given: Any, i: int, sums: Any) -> None:
    """What a view needs of one."""
    first, last, needed = views[view, 0], views[view, 1], views[view, 2]
    if needed & SQUARES:
        squares_of_one(rows, tile, first, last, given, i, sums, view, 0)
    if needed & PRODUCTS:
        products_of_one(rows, tile, first, last, given, i, sums, view, 1)
    if needed & LEAST:
        least_of_one(rows, tile, first, last, given, i, sums, view, 2)


@merged
def _view_sums(rows: Any, tile: int, views: Any, given: Any, sums: Any) -> None:
    """sums[view, kind, i, lane] of what each view needs, for several given objects at a time: a view of the
    tile then stays in the nearest cache for all of them."""
    for view in range(len(views)):
        i = 0
        while i + MANY <= len(given):
            _sums_of_many(rows, tile, views, view, given, i, sums)
            i += MANY
        while i + 2 <= len(given):
            _sums_of_two(rows, tile, views, view, given, i, sums)
            i += 2
        while i < len(given):
            _sums_of_one(rows, tile, views, view, given, i, sums)
            i += 1


@merged
def _by_distance(
    kernels: Any, numbers: Any, sums: Any, norms: Any, tile: int, lengths: Any, inverses: Any, out: Any
) -> None:
    """The RBF and cosine kernels."""
    for step in range(len(kernels)):
        place, view, kind, other = kernels[step, 0], kernels[step, 1], kernels[step, 2], kernels[step, 3]
        rate = numbers[place, 0]
        if kind == COSINE:
            inverse_lengths(norms, tile, view, inverses)
        for i in range(len(lengths)):
            if kind == RBF:
                rbf_of_squares(sums, view, i, rate, out, place)
            elif kind == RBF_OF_OTHER:
                fourth_power(out, i, other, place)
            elif kind == COSINE:
                cosine_of_squares(sums, view, i, lengths[i, view], norms, tile, inverses, out, place)


@merged
def _centre(kernels: Any, numbers: Any, count: int, out: Any) -> None:
    """Those that are centred: 1 - (1 - k) / (1 - unrelated), when no power of k is wanted any more."""
    for step in range(len(kernels)):
        place = kernels[step, 0]
        if numbers[place, 1] > 0:
            for i in range(count):
                stretched(out, i, place, numbers[place, 1])


@inlined
def _by_product(kernels: Any, numbers: Any, sums: Any, count: int, out: Any) -> None:
    """The linear, polynomial and intersection kernels."""
    for step in range(len(kernels)):
        place, view, kind = kernels[step, 0], kernels[step, 1], kernels[step, 2]
        scale, shift, degree = numbers[place, 0], numbers[place, 1], int(numbers[place, 2])
        for i in range(count):
            if kind == LINEAR:
                for lane in range(LANES):
                    out[i, place, lane] = _bounded(sums[view, 1, i, lane])
            elif kind == POLYNOMIAL:
                for lane in range(LANES):
                    out[i, place, lane] = _bounded(_power(scale * sums[view, 1, i, lane] + shift, degree))
            elif kind == INTERSECTION:
                for lane in range(LANES):
                    out[i, place, lane] = _bounded(sums[view, 2, i, lane])


@inlined
def _lacking(gaps: Any, tile: int, lengths: Any) -> Any:
    """Whether a view of a given or a kept object is missing."""
    for view in range(gaps.shape[1]):
        if gaps[tile, view]:
            return True
        for i in range(len(lengths)):
            if not lengths[i, view] > 0:
                return True
    return False


@inlined
def _silence(places: Any, norms: Any, tile: int, lengths: Any, out: Any) -> None:
    """0 for the values of a view that the given object or the kept one lacks."""
    for place in range(len(places)):
        view = places[place]
        for i in range(len(lengths)):
            for lane in range(LANES):
                if not norms[tile, view, lane] * lengths[i, view] > 0:
                    out[i, place, lane] = _ZERO


@merged
def tile_values(plan: Plan, kept: Kept, tile: int, given: Any, lengths: Any, room: Any) -> None:
    """Kernel k between given[i] and lane `lane` of the tile, into the second array of `room`.

    given: float32 [n, dim]; lengths: float32 [n, V], of its views; room: see `values_room`. With several
    views, 0 where a view of either object is missing (all zero).
    """
    (views, kernels, numbers, places), (rows, norms, gaps), (sums, out, inverses) = plan, kept, room
    _view_sums(rows, tile, views, given, sums)
    _by_distance(kernels[0], numbers, sums, norms, tile, lengths, inverses, out)
    _centre(kernels[0], numbers, len(given), out)
    if len(kernels[1]) > 0:
        _by_product(kernels[1], numbers, sums, len(given), out)
    if len(views) > 1 and _lacking(gaps, tile, lengths):
        _silence(places, norms, tile, lengths, out)
    if len(kernels[2]) > 0:
        average(kernels[2][0, 3], len(given), out)


@inlined
def values_room(plan: Plan, given: int, width: int) -> Any:
    """Room for `tile_values` of so many given objects: float32 [V, 3, given, LANES], for its own use; [given,
    at least width and all places of the plan, LANES]; [1, LANES], for its own use."""
    places = max(width, len(plan[3]))
    sums = np.empty((len(plan[0]), 3, given, LANES), np.float32)
    return sums, np.zeros((given, places, LANES), np.float32), np.empty((1, LANES), np.float32)


@inlined
def empty_tile(dim: int, views: int) -> Kept:
    """One tile of no objects."""
    return (
        np.zeros((1, dim, LANES), np.float32),
        np.ones((1, views, LANES), np.float32),
        np.zeros((1, views), np.bool_),
    )


@inlined
def view_norms(plan: Plan, row: Any, out: Any) -> None:
    """out[view] = the length of a view of one object, summed in float64."""
    views = plan[0]
    for view in range(len(views)):
        total = 0.0
        for column in range(views[view, 0], views[view, 1]):
            total += np.float64(row[column]) * np.float64(row[column])
        out[view] = np.float32(np.sqrt(total))


@inlined
def put_lane(row: Any, lengths: Any, kept: Kept, slot: int) -> None:
    """Write one object into its slot, with the lengths float32 [V] of its views."""
    rows, norms, gaps = kept
    tile, lane = slot // LANES, slot % LANES
    for column in range(len(row)):
        rows[tile, column, lane] = row[column]
    for view in range(len(lengths)):
        norms[tile, view, lane] = lengths[view]
        if lengths[view] == 0:
            gaps[tile, view] = True
        elif gaps[tile, view]:  # it may have been this object's
            gaps[tile, view] = False
            for other in range(LANES):
                gaps[tile, view] |= norms[tile, view, other] == 0


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
    """out[i, j] = sum_k theta_k k_k(queries[i], items[j]) + sum_f asked[i, f] features[j, f], float32.

    asked: float32 [queries, F], the features of the queries times their weights. features: float32 [items, at
    least F].

    The items are in the lanes: usually one query asks for many of them, seldom the other way round.
    """
    views, m, width = len(plan[0]), len(theta), asked.shape[1]
    room, sums = values_room(plan, 1, 0), np.empty(LANES, np.float32)
    lengths, own = np.empty((len(queries), views), np.float32), np.empty(views, np.float32)
    for i in range(len(queries)):
        view_norms(plan, queries[i], lengths[i])
    tile, known = empty_tile(items.shape[1], views), np.zeros((width, LANES), np.float32)
    for first in range(0, len(items), LANES):
        count = min(LANES, len(items) - first)
        for lane in range(count):
            view_norms(plan, items[first + lane], own)
            put_lane(items[first + lane], own, tile, lane)
            for f in range(width):
                known[f, lane] = features[first + lane, f]
        for i in range(len(queries)):
            tile_values(plan, tile, 0, queries[i : i + 1], lengths[i : i + 1], room)
            sums[:] = 0
            for k in range(m):
                for lane in range(LANES):
                    sums[lane] += theta[k] * room[1][0, k, lane]
            for f in range(width):
                value = asked[i, f]
                for lane in range(LANES):
                    sums[lane] += value * known[f, lane]
            for lane in range(count):
                out[i, first + lane] = sums[lane]
