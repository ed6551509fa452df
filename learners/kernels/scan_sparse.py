"""Scan of sparse items for the best of one query, or of 16 side by side.

Each row costs one quick float32 product. Only where that, with the most it can be wrong by, reaches the worst
score kept so far, is the score itself computed, in float64, and offered.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types

from learners.kernels.compile import (
    CSR,
    DOUBLES_OUT,
    FLOATS,
    FLOATS_OUT,
    POINTERS,
    ROWS,
    Csr,
    inlined,
    kernel,
)
from learners.kernels.intrinsics import QUERIES, dot_entries, dot_queries, reached
from learners.kernels.scan_dense import BEST, MASK, TERMS, Best, Terms, bar, offer, rounded, terms_of

SHORTS = types.Array(types.uint16, 1, "C", readonly=True)
LONGS = types.Array(types.uint32, 1, "C", readonly=True)

SLACK = np.float32(2.0**-22)

Padded: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""pointers int64 [n + 1], columns uint16 or uint32, values float32, radius float32 [n], order int64 [n]: row
order[i] lies at place i, padded as `learners.kernels.intrinsics` wants it; its quick product with f is
wrong by at most radius[i] ||f||, but for underflow. Rows of equal length lie together, so that the
processor foresees
where each ends."""


def _pad(dim: int, rows: Csr, pointers: Any, order: Any, columns: Any, values: Any, norms: Any) -> int:
    """Fill columns and values from CSR rows, row order[i] from pointers[i] on, and norms float64 [n] by
    place; -1, or a row with a value that is not finite or an index outside [0, dim), where it stops.

    columns and values come as zeros, which is what the padding stays.
    """
    indptr, indices, given = rows
    for i in range(len(order)):
        row, place, squares = order[i], pointers[i], 0.0
        for source in range(indptr[row], indptr[row + 1]):
            index, value = indices[source], given[source]
            if index < 0 or index >= dim or not np.isfinite(value):
                return int(row)
            columns[place], values[place] = index, value
            squares += np.float64(value) * np.float64(value)
            place += 1
        norms[i] = np.sqrt(squares)
    return -1


@inlined
def raised(offset: Any) -> Any:
    """An offset as bounds take it: a little larger, for what a scaled bound loses where it underflows."""
    return offset + abs(offset) * SLACK


@inlined
def score_entries(
    query: Any, columns: Any, values: Any, start: int, stop: int, scale: float, offset: float
) -> Any:
    """The score of one row: a float64 sum in the order of its entries, scaled, moved and rounded once."""
    total = np.float64(0.0)
    for place in range(start, stop):
        total += np.float64(query[columns[place]]) * np.float64(values[place])
    return rounded(total, scale, offset)


def _scan_one(
    query: Any, length: Any, floor: Any, items: Padded, terms: Terms, allowed: Any, at: int, best: Best
) -> None:
    """Offer all allowed rows to heap `at`.

    query: float32 [d]; length: its norm, rounded up; floor: what underflow may take from a product; terms:
    scale and offset; allowed: bool [n] or empty for all.
    """
    pointers, columns, values, radius, order = items
    scores, rows, count = best[0][at], best[1][at], best[2][at]
    least = bar(scores, count)
    for i in range(len(order)):
        row = order[i]
        if len(allowed) > 0 and not allowed[row]:
            continue
        factor, added = terms_of(terms, row)
        start, stop = pointers[i], pointers[i + 1]
        quick = dot_entries(query, columns, values, start, stop)
        if (quick + (radius[i] * length + floor)) * factor + raised(added) < least:  # never true of NaN
            continue
        score = score_entries(query, columns, values, start, stop, np.float64(factor), np.float64(added))
        count = offer(scores, rows, count, score, row)
        least = bar(scores, count)
    best[2][at] = count


def _scan_many(
    side_by_side: Any,
    lengths: Any,
    floor: Any,
    queries: Any,
    items: Padded,
    terms: Terms,
    allowed: Any,
    best: Best,
) -> None:
    """Offer all allowed rows to the heaps of up to 16 queries.

    side_by_side: float32 [d * 16], zeros beyond the m queries; lengths: float32 [16]; queries: the same
    float32 [m, d]. Else as `_scan_one`.
    """
    pointers, columns, values, radius, order = items
    scores, rows, counts = best
    quick, least = np.empty(QUERIES, np.float32), np.full(QUERIES, np.inf, np.float32)
    for n in range(len(queries)):
        least[n] = bar(scores[n], counts[n])
    for i in range(len(order)):
        row = order[i]
        if len(allowed) > 0 and not allowed[row]:
            continue
        factor, added = terms_of(terms, row)
        start, stop = pointers[i], pointers[i + 1]
        dot_queries(side_by_side, columns, values, start, stop, quick)
        bits = reached(quick, lengths, least, radius[i], floor, factor, raised(added))
        if bits == 0:
            continue
        scale, offset = np.float64(factor), np.float64(added)
        for n in range(len(queries)):
            if bits & (1 << n):
                score = score_entries(queries[n], columns, values, start, stop, scale, offset)
                counts[n] = offer(scores[n], rows[n], counts[n], score, row)
                least[n] = bar(scores[n], counts[n])


def _score_places(query: Any, items: Padded, terms: Terms, places: Any, out: Any) -> None:
    """out[i] = the score of the row at places[i]; out float32, overwritten."""
    pointers, columns, values, _, order = items
    for i in range(len(places)):
        start, stop = pointers[places[i]], pointers[places[i] + 1]
        factor, added = terms_of(terms, order[places[i]])
        out[i] = score_entries(query, columns, values, start, stop, np.float64(factor), np.float64(added))


def _padded(columns: Any) -> Any:
    return types.Tuple((POINTERS, columns, FLOATS, FLOATS, POINTERS))


def _filling(columns: Any) -> Any:
    return types.int64(types.int64, CSR, POINTERS, POINTERS, columns, FLOATS_OUT, DOUBLES_OUT)


def _one(columns: Any) -> Any:
    return types.void(FLOATS, types.float32, types.float32, _padded(columns), TERMS, MASK, types.int64, BEST)


def _many(columns: Any) -> Any:
    return types.void(FLOATS, FLOATS, types.float32, ROWS, _padded(columns), TERMS, MASK, BEST)


def _chosen(columns: Any) -> Any:
    return types.void(FLOATS, _padded(columns), TERMS, POINTERS, FLOATS_OUT)


pad_short, pad_long = kernel(_filling(types.uint16[::1]))(_pad), kernel(_filling(types.uint32[::1]))(_pad)
scan_one_short, scan_one_long = (kernel(_one(kind))(_scan_one) for kind in (SHORTS, LONGS))
scan_many_short, scan_many_long = (kernel(_many(kind))(_scan_many) for kind in (SHORTS, LONGS))
score_places_short, score_places_long = (kernel(_chosen(kind))(_score_places) for kind in (SHORTS, LONGS))
