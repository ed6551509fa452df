"""A walk over a graph of near neighbours to the rows that score best for a folded query.

The best-first search of HNSW's base layer (Malkov and Yashunin, IEEE TPAMI 42, 2020, algorithm 2), from
starting points that are scored first instead of through layers above it. What leads the walk is the score of
the form that asks, norms included, of 8-bit codes: links are of the objects as they are, and no form makes
them stale.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import FLOATS, FLOATS_OUT, INDICES, INDICES_OUT, inlined, kernel
from learners.kernels.intrinsics import dot_codes, prefetch
from learners.kernels.scan import BYTES, LINE, LINES, WORDS

LINKS = types.Array(types.int32, 2, "C", readonly=True)
WORDS_OUT = types.uint64[::1]
FLAGS_OUT = types.boolean[::1]


@inlined
def _quick(product: Any, row: int, unit: float, factors: Any, offsets: Any) -> Any:
    """The score of a row by the product of its codes with the query's, float32."""
    added = np.float64(offsets[row]) if len(offsets) > 0 else 0.0
    return np.float32(np.float64(product) * np.float64(factors[row]) * unit + added)


@inlined
def _insert(scores: Any, rows: Any, open_: Any, count: int, score: Any, row: int) -> tuple[int, int]:
    """Put (score, row) into a pool sorted by descending score: (its place, or the pool's length where it is
    worse than all of a full one; how many it holds then). Equal scores keep the order in which they came."""
    room = len(scores)
    if count == room and not score > scores[room - 1]:
        return room, count
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if scores[middle] >= score:
            low = middle + 1
        else:
            high = middle
    last = count if count < room else room - 1
    for place in range(last, low, -1):
        scores[place], rows[place], open_[place] = scores[place - 1], rows[place - 1], open_[place - 1]
    scores[low], rows[low], open_[low] = score, row, True
    return low, last + 1


@kernel(
    types.int64(
        WORDS, types.int64, types.float64, BYTES, LINKS, INDICES, BYTES, FLOATS, FLOATS,
        WORDS_OUT, FLOATS_OUT, INDICES_OUT, FLAGS_OUT, INDICES_OUT,
    )
)  # fmt: skip
def walk(
    coded: Any,
    n: int,
    unit: float,
    codes: Any,
    links: Any,
    starts: Any,
    start_codes: Any,
    factors: Any,
    offsets: Any,
    seen: Any,
    scores: Any,
    rows: Any,
    open_: Any,
    near: Any,
) -> int:
    """Fill the pool with the best rows that the walk for query n has come by; how many there are.

    coded: int16 [m, p], the queries' codes, unit: what one of them is worth; codes: int8 [N, p], of the rows;
    links: int32 [N, w], rows near each row, -1 behind the last; starts: int32 [e], rows where it begins, and
    their codes int8 [e, p] once more, side by side; factors: float32 [N], what a row's code is worth under
    the form; offsets: float32 [N] or empty. Overwritten: seen: uint64 [(N + 63) // 64]; the pool: scores
    float32 [ef], rows int32 [ef], open_ bool [ef]; near: int32 [w].
    """
    seen[:] = 0
    count = 0
    for start in range(len(starts)):
        row = starts[start]
        score = _quick(dot_codes(start_codes, start, coded, n), row, unit, factors, offsets)
        _, count = _insert(scores, rows, open_, count, score, row)
        seen[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    flat = codes.reshape(codes.size)
    flat_links = links.reshape(links.size)
    width = codes.shape[1]
    place = 0
    while place < count:
        if not open_[place]:
            place += 1
            continue
        open_[place] = False
        row = rows[place]
        found = 0
        for link in range(links.shape[1]):
            other = links[row, link]
            if other < 0:
                break
            bit = np.uint64(1) << np.uint64(other & 63)
            if seen[other >> 6] & bit:
                continue
            seen[other >> 6] |= bit
            near[found] = other
            found += 1
            base = np.int64(other) * width
            for line in range(0, min(width, LINES), LINE):
                prefetch(flat, base + line)
            prefetch(factors, other)
            if len(offsets) > 0:
                prefetch(offsets, other)
        best = place + 1
        for i in range(found):
            other = near[i]
            score = _quick(dot_codes(codes, other, coded, n), other, unit, factors, offsets)
            at, count = _insert(scores, rows, open_, count, score, other)
            if at < len(scores):
                best = min(best, at)
                prefetch(flat_links, np.int64(other) * links.shape[1])
                prefetch(flat_links, np.int64(other) * links.shape[1] + 16)
        place = best
    return count


HASHES_OUT = types.uint64[::1]
BITS = types.Array(types.uint32, 2, "C", readonly=True)


@kernel(types.void(BITS, HASHES_OUT))
def hash_rows(rows: Any, out: Any) -> None:
    """out[i] = 64 bits that name the content of row i: FNV-1a over 32-bit words, finished as in MurmurHash3.

    rows: uint32 [n, d], the bits of float32 numbers; out: uint64 [n], overwritten.
    """
    for row in range(len(rows)):
        value = np.uint64(0xCBF29CE484222325)
        for column in range(rows.shape[1]):
            value = (value ^ np.uint64(rows[row, column])) * np.uint64(0x100000001B3)
        value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        out[row] = value ^ (value >> np.uint64(33))
