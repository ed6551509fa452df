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
from learners.kernels.tiles import (
    LANES,
    least_of_one,
    least_of_three,
    least_of_two,
    products_of_one,
    products_of_three,
    products_of_two,
    squares_of_one,
    squares_of_three,
    squares_of_two,
    times_power_of_two,
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

_ONE, _HALF, _ZERO = np.float32(1), np.float32(0.5), np.float32(0)
_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LEAST_EXPONENT = np.float32(-87.0)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / n) for n in (2, 6, 24, 120, 720, 5040))


@inlined
def exponential(x: Any) -> Any:
    """exp(x) of a float32 x <= 0 to about 1e-7 of itself, and 0 below -87: x = n ln 2 + r, |r| <= ln(2)/2,
    exp(r) by its series to r^7, whose next term is below 5e-9. Plain float32 arithmetic, so that it is done
    for many lanes at once and has the same bits everywhere."""
    inside = max(x, _LEAST_EXPONENT)
    n = np.floor(inside * _LOG2_E + _HALF)
    r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    series = _C6 + r * _C7
    series = _C5 + r * series
    series = _C4 + r * series
    series = _C3 + r * series
    series = _C2 + r * series
    series = _ONE + r * (_ONE + r * series)
    return times_power_of_two(series, n) if x >= _LEAST_EXPONENT else _ZERO


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
def _cosine(squares: Any, norm: Any, other: Any) -> Any:
    """0.5 cos + 0.5 from the squared distance and both lengths; 0.5 where a length is 0.

    1 - (d^2 - (|x| - |y|)^2) / (4 |x| |y|): exact for equal objects, where a rounded cosine is not.
    """
    scale = np.float32(4) * norm * other
    gap = norm - other
    value = _ONE - np.divide(squares - gap * gap, scale)  # the operator would check for 0 lane by lane
    value = min(max(value, _ZERO), _ONE)
    return value if scale > 0 else _HALF


@inlined
def _squares(rows: Any, tile: int, first: int, last: int, given: Any, out: Any) -> None:
    if len(given) == 3:
        squares_of_three(rows, tile, first, last, given, out)
    elif len(given) == 2:
        squares_of_two(rows, tile, first, last, given, out)
    else:
        squares_of_one(rows, tile, first, last, given, out)


@inlined
def _products(rows: Any, tile: int, first: int, last: int, given: Any, out: Any) -> None:
    if len(given) == 3:
        products_of_three(rows, tile, first, last, given, out)
    elif len(given) == 2:
        products_of_two(rows, tile, first, last, given, out)
    else:
        products_of_one(rows, tile, first, last, given, out)


@inlined
def _least(rows: Any, tile: int, first: int, last: int, given: Any, out: Any) -> None:
    if len(given) == 3:
        least_of_three(rows, tile, first, last, given, out)
    elif len(given) == 2:
        least_of_two(rows, tile, first, last, given, out)
    else:
        least_of_one(rows, tile, first, last, given, out)


@inlined
def _view_sums(rows: Any, tile: int, views: Any, given: Any, sums: Any) -> None:
    """sums[view, kind, i, lane] of what each view needs, for one to three given objects."""
    for view in range(len(views)):
        first, last, needed = views[view, 0], views[view, 1], views[view, 2]
        if needed & SQUARES:
            _squares(rows, tile, first, last, given, sums[view, 0])
        if needed & PRODUCTS:
            _products(rows, tile, first, last, given, sums[view, 1])
        if needed & LEAST:
            _least(rows, tile, first, last, given, sums[view, 2])


@inlined
def _by_distance(
    kernels: Any, numbers: Any, sums: Any, norms: Any, tile: int, lengths: Any, out: Any
) -> None:
    """The RBF and cosine kernels."""
    for step in range(len(kernels)):
        place, view, kind, other = kernels[step, 0], kernels[step, 1], kernels[step, 2], kernels[step, 3]
        rate = numbers[place, 0]
        for i in range(len(lengths)):
            norm = lengths[i, view]
            if kind == RBF:
                for lane in range(LANES):
                    out[i, place, lane] = exponential(-np.sqrt(sums[view, 0, i, lane]) * rate)
            elif kind == RBF_OF_OTHER:
                for lane in range(LANES):
                    square = out[i, other, lane] * out[i, other, lane]
                    out[i, place, lane] = square * square
            elif kind == COSINE:
                for lane in range(LANES):
                    out[i, place, lane] = _cosine(sums[view, 0, i, lane], norm, norms[tile, view, lane])


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

    given: float32 [1..3, dim]; lengths: float32 [1..3, V], of its views; room: float32 [V, 3, 3, LANES], for
    its own use, and [3, at least all places of the plan, LANES], overwritten. With several views, 0 where a
    view of either object is missing (all zero).
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
