"""Values of m kernels between given objects and a tile of kept ones.

One sum per view serves all its kernels: the squared distance makes every RBF and the cosine, the inner
product the linear and polynomial kernels, the sum of the lesser numbers the histogram intersection.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from learners.kernels.compile import POINTERS, ROWS, inlined
from learners.kernels.mean_kernel import average
from learners.kernels.tile_kernels import cosine_of_squares, fourth_power, rbf_of_squares
from learners.kernels.tiles import (
    LANES,
    least_of_one,
    least_of_two,
    products_of_one,
    products_of_two,
    squares_of_one,
    squares_of_two,
)

from numba import types  # isort: skip

RBF, RBF_OF_OTHER, COSINE, LINEAR, POLYNOMIAL, INTERSECTION, MEAN = range(7)
"""Kinds. RBF_OF_OTHER: an RBF of four times the rate of one already known, whose fourth power it is. MEAN:
that of all others."""

SQUARES, PRODUCTS, LEAST = 1, 2, 4
"""Which sums a view needs, as bits."""

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
numbers float32 [places, 3] by place: rate 1/(gamma sigma^2), or scale, shift and degree of the polynomial;
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


@inlined
def _view_sums(rows: Any, tile: int, views: Any, given: Any, sums: Any) -> None:
    """sums[view, kind, i, lane] of what each view needs, for two given objects at a time: a view of the tile
    then stays in the nearest cache for all of them."""
    for view in range(len(views)):
        first, last, needed = views[view, 0], views[view, 1], views[view, 2]
        for i in range(0, len(given) - 1, 2):
            if needed & SQUARES:
                squares_of_two(rows, tile, first, last, given[i:], sums[view, 0, i:])
            if needed & PRODUCTS:
                products_of_two(rows, tile, first, last, given[i:], sums[view, 1, i:])
            if needed & LEAST:
                least_of_two(rows, tile, first, last, given[i:], sums[view, 2, i:])
        if len(given) % 2:
            i = len(given) - 1
            if needed & SQUARES:
                squares_of_one(rows, tile, first, last, given[i:], sums[view, 0, i:])
            if needed & PRODUCTS:
                products_of_one(rows, tile, first, last, given[i:], sums[view, 1, i:])
            if needed & LEAST:
                least_of_one(rows, tile, first, last, given[i:], sums[view, 2, i:])


@inlined
def _by_distance(
    kernels: Any, numbers: Any, sums: Any, norms: Any, tile: int, lengths: Any, out: Any
) -> None:
    """The RBF and cosine kernels."""
    for step in range(len(kernels)):
        place, view, kind, other = kernels[step, 0], kernels[step, 1], kernels[step, 2], kernels[step, 3]
        rate = numbers[place, 0]
        for i in range(len(lengths)):
            if kind == RBF:
                rbf_of_squares(sums[view, 0, i], rate, out[i, place])
            elif kind == RBF_OF_OTHER:
                fourth_power(out[i, other], out[i, place])
            elif kind == COSINE:
                cosine_of_squares(sums[view, 0, i], lengths[i, view], norms[tile, view], out[i, place])


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


@inlined
def tile_values(plan: Plan, kept: Kept, tile: int, given: Any, lengths: Any, room: Any) -> None:
    """Kernel k between given[i] and lane `lane` of the tile, into the second array of `room`.

    given: float32 [n, dim]; lengths: float32 [n, V], of its views; room: see `values_room`. With several
    views, 0 where a view of either object is missing (all zero).
    """
    (views, kernels, numbers, places), (rows, norms, gaps), (sums, out) = plan, kept, room
    _view_sums(rows, tile, views, given, sums)
    _by_distance(kernels[0], numbers, sums, norms, tile, lengths, out)
    if len(kernels[1]) > 0:
        _by_product(kernels[1], numbers, sums, len(given), out)
    if len(views) > 1 and _lacking(gaps, tile, lengths):
        _silence(places, norms, tile, lengths, out)
    if len(kernels[2]) > 0:
        average(kernels[2][0, 3], len(given), out)


@inlined
def values_room(plan: Plan, given: int, width: int) -> Any:
    """Room for `tile_values` of so many given objects: float32 [V, 3, given, LANES], for its own use, and
    [given, at least width and all places of the plan, LANES]."""
    places = max(width, len(plan[3]))
    return np.empty((len(plan[0]), 3, given, LANES), np.float32), np.zeros((given, places, LANES), np.float32)


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
        gaps[tile, view] = False
        for other in range(LANES):
            gaps[tile, view] |= norms[tile, view, other] == 0
