"""Scans of dense and of sparse items for the best of some queries at once.

The k best rows seen so far are a heap in two arrays; the exact score decides about them. Dense rows are
scanned over 8-bit codes.

A row x is step * code + rest, its codes in -127..127; a query f is unit * code + rest likewise, in 16 bits.
The product of the codes is an exact integer, so that by Cauchy and Schwarz

    |f . x - unit step (codes . codes)|  <=  ||f rest|| ||x|| + ||unit codes|| ||x rest||,

all of whose norms are known beforehand. A quarter of the bytes is read; only where the bound reaches the
worst score kept so far, is the score itself computed, in float64, from the row itself, and offered.

Sparse items are scanned for the best of one query, or of 16 side by side: each row costs one quick float32
product. Only where that, with the most it can be wrong by, reaches the worst score kept so far, is the score
itself computed, in float64, and offered.
"""

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
    POINTERS_OUT,
    ROWS,
    ROWS_OUT,
    Csr,
    inlined,
    kernel,
)
from learners.kernels.intrinsics import QUERIES, dot_codes, dot_entries, dot_queries, prefetch, reached

# ruff: noqa: PLR0917  (kernels take plain arrays)


PLACES_OUT = types.int64[:, ::1]
MASK = types.Array(types.boolean, 1, "C", readonly=True)
BEST = types.Tuple((ROWS_OUT, PLACES_OUT, POINTERS_OUT))
TERMS = types.Tuple((FLOATS, FLOATS))
LARGEST = float(np.finfo(np.float32).max)

SMALLEST_STEP = np.float32(2.0**-120)
"""How far below the worst kept score a bound must lie to be left out: beyond what is lost where float32
numbers underflow (2^-149 each), and nothing beside any score of ordinary size."""

Best: TypeAlias = tuple[Any, Any, Any]
"""scores float32 [m, k], rows int64 [m, k], counts int64 [m]: the heaps of m queries."""

Terms: TypeAlias = tuple[Any, Any]
"""Of each row: scale float32 [n] or empty for 1, offset float32 [n] or empty for 0."""


@inlined
def terms_of(terms: Terms, row: int) -> tuple[Any, Any]:
    """(scale, offset) of one row, float32."""
    scale, offset = terms
    factor = scale[row] if len(scale) > 0 else np.float32(1.0)
    return factor, (offset[row] if len(offset) > 0 else np.float32(0.0))


@inlined
def rounded(total: float, scale: float, offset: float) -> Any:
    """The score: total * scale + offset in float64, kept within float32, rounded once; never -0.

    Each of these operations keeps order, so what bounds total * scale from above, moved by the same offset
    and rounded likewise, bounds the score.
    """
    return np.float32(min(max(total * scale + offset, -LARGEST), LARGEST)) + np.float32(0.0)


@inlined
def worse(score: Any, row: int, other_score: Any, other_row: int) -> Any:
    """Whether (score, row) comes after the other in an answer: lower score, or the same and a later row."""
    return score < other_score or (score == other_score and row > other_row)


@inlined
def _sink(scores: Any, rows: Any, count: int, place: int, score: Any, row: int) -> None:
    """Put (score, row) at `place` of a heap of `count` entries, the worst at 0, or below it."""
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and worse(scores[child + 1], rows[child + 1], scores[child], rows[child]):
            child += 1
        if worse(score, row, scores[child], rows[child]):
            break
        scores[place], rows[place] = scores[child], rows[child]
        place = child
    scores[place], rows[place] = score, row


@inlined
def offer(scores: Any, rows: Any, count: int, score: Any, row: int) -> int:
    """Offer one row to a heap of the len(scores) best; how many it holds then."""
    if count == len(scores):
        if count > 0 and worse(scores[0], rows[0], score, row):
            _sink(scores, rows, count, 0, score, row)
        return count
    place = count
    while place > 0:
        parent = (place - 1) // 2
        if not worse(score, row, scores[parent], rows[parent]):
            break
        scores[place], rows[place] = scores[parent], rows[parent]
        place = parent
    scores[place], rows[place] = score, row
    return count + 1


@inlined
def bar(scores: Any, count: int) -> Any:
    """What a bound must reach for its row to be looked at; -inf until the heap is full, and where its worst
    score is the least there is, which a bound below float32 may equal.
    """
    if count < len(scores) or scores[0] <= -LARGEST:
        return np.float32(-np.inf)
    return scores[0] - SMALLEST_STEP


@kernel(types.void(ROWS_OUT, PLACES_OUT, POINTERS_OUT))
def settle(scores: Any, rows: Any, counts: Any) -> None:
    """Turn each heap into its answer in place: best first. scores float32, rows int64 [m, k], counts int64
    [m]."""
    for query in range(len(counts)):
        for left in range(counts[query] - 1, 0, -1):
            score, row = scores[query, left], rows[query, left]
            scores[query, left], rows[query, left] = scores[query, 0], rows[query, 0]
            _sink(scores[query], rows[query], left, 0, score, row)


BYTES = types.Array(types.int8, 2, "C", readonly=True)
WORDS = types.Array(types.int16, 2, "C", readonly=True)
BOUNDS = types.Array(types.float64, 2, "C", readonly=True)
CODED = types.Tuple((ROWS, BYTES, BOUNDS))

AHEAD = 8
"""Chosen rows ahead of the one in use that are asked of memory: they lie anywhere."""

LINE, LINES = 64, 512
"""Bytes of a cache line, and of a row's codes that are asked for; the rest follows by itself."""

Coded: TypeAlias = tuple[Any, Any, Any]
"""rows float32 [n, d], codes int8 [n, p], bounds float64 [n, 3]: step, norm and norm of the rest of each
row."""


@kernel(types.int64(ROWS, types.int8[:, ::1], types.float64[:, ::1]))
def encode(rows: Any, codes: Any, bounds: Any) -> int:
    """Fill codes int8 [n, p], p >= d, and bounds float64 [n, 3] for rows float32 [n, d]; -1, or the first
    row that is not finite, where it stops.

    step = max |x| / 127; a row of zeros has step 0. Norms in float64; the padding of the codes is 0.
    """
    for row in range(rows.shape[0]):
        largest, squares = np.float32(0.0), 0.0
        for column in range(rows.shape[1]):
            value = rows[row, column]
            if not np.isfinite(value):
                return row
            largest = max(largest, abs(value))
            squares += np.float64(value) * np.float64(value)
        step = np.float64(largest) / 127.0
        inverse = 1.0 / step if step > 0 else 0.0
        rest = 0.0
        codes[row, :] = 0
        for column in range(rows.shape[1]):
            value = np.float64(rows[row, column])
            code = np.rint(value * inverse)
            codes[row, column] = np.int8(code)
            rest += (value - step * code) * (value - step * code)
        bounds[row, 0], bounds[row, 1], bounds[row, 2] = step, np.sqrt(squares), np.sqrt(rest)
    return -1


@kernel(
    types.void(ROWS, types.int64, types.float64, types.float64, types.int16[:, ::1], types.float64[:, ::1])
)
def encode_queries(queries: Any, most: int, slack: float, up: float, codes: Any, weights: Any) -> None:
    """Fill codes int16 [m, p], p >= d, with -most..most for finite queries float32 [m, d], and weights
    float64 [m, 3]: unit = max |f| / most, (||rest|| + slack ||f||) up and ||unit codes|| up. Queries of
    most = 0 are all rest.
    """
    for n in range(len(queries)):
        largest = np.float32(0.0)
        for column in range(queries.shape[1]):
            largest = max(largest, abs(queries[n, column]))
        unit = np.float64(largest) / most if most > 0 else 0.0
        inverse = 1.0 / unit if unit > 0 else 0.0
        squares = kept = rest = 0.0
        codes[n, :] = 0
        for column in range(queries.shape[1]):
            value = np.float64(queries[n, column])
            code = np.rint(value * inverse)
            codes[n, column] = np.int16(code)
            squares += value * value
            kept += unit * code * (unit * code)
            rest += (value - unit * code) * (value - unit * code)
        weights[n, 0] = unit
        weights[n, 1] = (np.sqrt(rest) + slack * np.sqrt(squares)) * up
        weights[n, 2] = np.sqrt(kept) * up


@inlined
def score_row(query: Any, values: Any, row: int, scale: float, offset: float) -> Any:
    """The score of one row: a float64 sum in the order of its columns, scaled, moved and rounded once."""
    total = np.float64(0.0)
    for column in range(len(query)):
        total += np.float64(query[column]) * np.float64(values[row, column])
    return rounded(total, scale, offset)


@kernel(types.void(ROWS, WORDS, BOUNDS, CODED, TERMS, MASK, POINTERS, BEST))
def scan(
    queries: Any, coded: Any, weights: Any, items: Coded, terms: Terms, allowed: Any, chosen: Any, best: Best
) -> None:
    """Offer the allowed ones of the chosen rows to the heaps of m queries.

    queries: float32 [m, d]; coded: their codes, int16 [m, p], so small that a product of codes fits 32 bits;
    weights: float64 [m, 3]: unit, what to multiply a row's norm with, and its rest's; terms: scale and
    offset; allowed: bool [n] or empty for all; chosen: int64 rows, or empty for all. A row is read from
    memory once for all queries.
    """
    values, codes, bounds = items
    scores, rows, counts = best
    least = np.empty(len(queries), np.float64)
    for n in range(len(queries)):
        least[n] = bar(scores[n], counts[n])
    flat, flat_bounds = codes.reshape(codes.size), bounds.reshape(bounds.size)
    for place in range(len(chosen) if len(chosen) > 0 else len(codes)):
        row = chosen[place] if len(chosen) > 0 else place
        if place + AHEAD < len(chosen):
            soon = chosen[place + AHEAD]
            prefetch(flat_bounds, soon * bounds.shape[1])
            for line in range(0, min(codes.shape[1], LINES), LINE):
                prefetch(flat, soon * codes.shape[1] + line)
        if len(allowed) > 0 and not allowed[row]:
            continue
        scale, offset = terms_of(terms, row)
        factor, added = np.float64(scale), np.float64(offset)
        step, norm, rest = bounds[row, 0], bounds[row, 1], bounds[row, 2]
        for n in range(len(queries)):
            quick = np.float64(dot_codes(codes, row, coded, n)) * step * weights[n, 0]
            bound = (quick + weights[n, 1] * norm + weights[n, 2] * rest) * factor + added
            if np.float32(bound) < least[n]:  # rounded as the score is; never true of NaN
                continue
            score = score_row(queries[n], values, row, factor, added)
            counts[n] = offer(scores[n], rows[n], counts[n], score, row)
            least[n] = bar(scores[n], counts[n])


@kernel(types.void(FLOATS, ROWS, TERMS, POINTERS, FLOATS_OUT))
def score_rows_dense(query: Any, values: Any, terms: Terms, chosen: Any, out: Any) -> None:
    """out[i] = the score of row chosen[i]; out float32, overwritten."""
    for i in range(len(chosen)):
        factor, added = terms_of(terms, chosen[i])
        out[i] = score_row(query, values, chosen[i], np.float64(factor), np.float64(added))


# ruff: noqa: PLR0917  (kernels take plain arrays)


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
