"""The k best rows seen so far, as a heap in two arrays, and the exact score that decides about them."""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from learners.kernels.compile import FLOATS, POINTERS_OUT, ROWS_OUT, inlined, kernel

from numba import types  # isort: skip

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
