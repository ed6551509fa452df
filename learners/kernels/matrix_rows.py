"""What steps on CSR rows and their replays share: c - s, the margin, the update of W, prefetching ahead.

One arithmetic for both, so that replaying a step gives the bits of the step.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import Csr, inlined
from learners.kernels.intrinsics import prefetch

ROWS_AHEAD = 2
PAGES_AHEAD = 6
PAGE_FLOATS = 1024  # float32 values in a page of 4 KiB, the smallest there is


@inlined
def difference(
    clicked: Csr, skipped: Csr, row: int, columns: Any, values: Any, start: int
) -> tuple[int, float]:
    """Merge c - s of one accepted row into columns/values from `start`; (entries, ||c - s||^2 in float64)."""
    c_ptr, c_ind, c_val = clicked
    s_ptr, s_ind, s_val = skipped
    a, a_end, b, b_end = c_ptr[row], c_ptr[row + 1], s_ptr[row], s_ptr[row + 1]
    place, squares = start, 0.0
    while a < a_end or b < b_end:
        if b >= b_end or (a < a_end and c_ind[a] < s_ind[b]):
            column, value = c_ind[a], c_val[a]
            a += 1
        elif a >= a_end or s_ind[b] < c_ind[a]:
            column, value = s_ind[b], -s_val[b]
            b += 1
        else:
            column, value = c_ind[a], c_val[a] - s_val[b]
            a += 1
            b += 1
        if value != 0:
            columns[place] = np.uint32(column)
            values[place] = value
            squares += np.float64(value) * np.float64(value)
            place += 1
    return place - start, squares


@inlined
def _prefetch_row(W: Any, base: Any, columns: Any, start: Any, count: Any) -> None:
    for place in range(start, start + count):
        prefetch(W, base + np.uint64(columns[place]))


@inlined
def _prefetch_pages(W: Any, dim: Any, base: Any, columns: Any, start: Any, count: Any) -> None:
    """About one line of each page of a row: columns are sorted, so every k-th with k = columns in a page."""
    for place in range(start, start + count, max(np.uint64(1), count * np.uint64(PAGE_FLOATS) // dim)):
        prefetch(W, base + np.uint64(columns[place]))


@inlined
def prefetch_ahead(
    W: Any, dim: Any, q_ind: Any, i: Any, last: Any, reach: Any, here: Any, following: Any
) -> None:
    """While row i of a query is worked on, ask for pages and columns of rows to come, also of the next event.

    q_ind[i]: the row; `last`: where this query ends; `reach`: where the next one ends. here: (columns,
    values, start, count) of this event's c - s; following: (start, count) of the next one's.
    """
    columns, _, start, count = here
    next_start, next_count = following
    far = i + PAGES_AHEAD
    if far < last:
        _prefetch_pages(W, dim, np.uint64(q_ind[far]) * dim, columns, start, count)
    elif far < reach:
        _prefetch_pages(W, dim, np.uint64(q_ind[far]) * dim, columns, next_start, next_count)
    ahead = i + ROWS_AHEAD
    if ahead < last:
        _prefetch_row(W, np.uint64(q_ind[ahead]) * dim, columns, start, count)
    elif ahead < reach:
        _prefetch_row(W, np.uint64(q_ind[ahead]) * dim, columns, next_start, next_count)


@inlined
def _row_dot(W: Any, base: Any, columns: Any, values: Any, start: Any, count: Any) -> Any:
    """Row of W times c - s in float32: four interleaved sums, joined pairwise, in this fixed order."""
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    place, end = start, start + count
    body = start + (count & np.uint64(0xFFFFFFFFFFFFFFFC))
    sum0 = sum1 = sum2 = sum3 = np.float32(0.0)
    while place < body:
        sum0 += W[base + np.uint64(columns[place])] * values[place]
        sum1 += W[base + np.uint64(columns[place + one])] * values[place + one]
        sum2 += W[base + np.uint64(columns[place + two])] * values[place + two]
        sum3 += W[base + np.uint64(columns[place + three])] * values[place + three]
        place += four
    while place < end:
        sum0 += W[base + np.uint64(columns[place])] * values[place]
        place += one
    return (sum0 + sum1) + (sum2 + sum3)


@inlined
def margin_ahead(W: Any, dim: Any, query: Csr, row: int, here: Any, following: Any) -> float:
    """q^T W (c - s) of one row, prefetching rows and pages ahead, also of the next event.

    here, following: (columns, values, start, count) of c - s of this event and of the next; no count, no
    prefetch.
    """
    columns, values, start, count = here
    q_ptr, q_ind, q_val = query
    first, last = q_ptr[row], q_ptr[row + 1]
    reach = q_ptr[row + 2] if following[1] > 0 else last
    margin = 0.0
    for i in range(first, last):
        prefetch_ahead(W, dim, q_ind, i, last, reach, here, following)
        dot = _row_dot(W, np.uint64(q_ind[i]) * dim, columns, values, start, count)
        margin += np.float64(q_val[i]) * np.float64(dot)
    return margin


@inlined
def add_row(W: Any, base: Any, factor: Any, here: Any) -> None:
    """The row of W that begins at `base` <- itself + factor e^T, e = c - s."""
    columns, values, start, count = here
    for place in range(start, start + count):
        W[base + np.uint64(columns[place])] += factor * values[place]


@inlined
def add_sparse(W: Any, dim: Any, tau: Any, query: Csr, row: int, here: Any) -> None:
    """W <- W + tau q (c - s)^T."""
    q_ptr, q_ind, q_val = query
    for i in range(q_ptr[row], q_ptr[row + 1]):
        add_row(W, np.uint64(q_ind[i]) * dim, tau * q_val[i], here)


@inlined
def _union(query: Csr, row: int, here: Any) -> tuple[Any, Any, Any, int]:
    """Merge q and e = c - s: (column uint64, value in q and value in e float32, entries); a value is 0 where
    the vector has no entry."""
    columns, values, start, count = here
    q_ptr, q_ind, q_val = query
    i, i_end, place, end = q_ptr[row], q_ptr[row + 1], np.int64(start), np.int64(start + count)
    room = i_end - i + end - place
    index, of_query, of_error = (
        np.empty(room, np.uint64),
        np.zeros(room, np.float32),
        np.zeros(room, np.float32),
    )
    entries = 0
    while i < i_end or place < end:
        q_next = np.int64(q_ind[i]) if i < i_end else np.int64(2**31)
        e_next = np.int64(columns[place]) if place < end else np.int64(2**31)
        index[entries] = np.uint64(min(q_next, e_next))
        if q_next <= e_next:
            of_query[entries] = q_val[i]
            i += 1
        if e_next <= q_next:
            of_error[entries] = values[place]
            place += 1
        entries += 1
    return index, of_query, of_error, entries


@inlined
def add_symmetric_sparse(W: Any, dim: Any, tau: Any, query: Csr, row: int, here: Any) -> None:
    """W <- W + tau/2 (q e^T + e q^T), e = c - s; both terms are added to an entry at once, in an order that
    gives (i, j) and (j, i) the same bits: products rounded alone, then one commutative sum.

    A row of q alone changes in the columns of e, one of e alone in those of q, one of both in all of them.
    """
    index, of_query, of_error, entries = _union(query, row, here)
    whole = (index, np.uint64(0), np.uint64(entries))
    q_row = (query[1], np.uint64(query[0][row]), np.uint64(query[0][row + 1] - query[0][row]))
    e_row = (here[0], here[2], here[3])
    half = np.float32(0.5) * tau
    for a in range(entries):
        if a + PAGES_AHEAD < entries:
            _prefetch_pages(W, dim, index[a + PAGES_AHEAD] * dim, *whole)
        if a + ROWS_AHEAD < entries:
            _prefetch_columns(
                W, index[a + ROWS_AHEAD] * dim, of_query, of_error, a + ROWS_AHEAD, whole, q_row, e_row
            )
        base, q, e = index[a] * dim, of_query[a], of_error[a]
        if e == 0:
            _add_halves(W, base, half, q, here[1], e_row)
        elif q == 0:
            _add_halves(W, base, half, e, query[2], q_row)
        else:
            for b in range(entries):
                W[base + index[b]] += half * (q * of_error[b] + e * of_query[b])


@inlined
def _prefetch_columns(
    W: Any, base: Any, of_query: Any, of_error: Any, a: int, whole: Any, q_row: Any, e_row: Any
) -> None:
    """Ask for what changes in the row of entry a of a union."""
    if of_error[a] == 0:
        _prefetch_row(W, base, *e_row)
    elif of_query[a] == 0:
        _prefetch_row(W, base, *q_row)
    else:
        _prefetch_row(W, base, *whole)


@inlined
def _add_halves(W: Any, base: Any, half: Any, factor: Any, values: Any, row: Any) -> None:
    """The row of W that begins at `base` <- itself + half (factor x^T), x the row of those columns."""
    columns, start, count = row
    for place in range(start, start + count):
        W[base + np.uint64(columns[place])] += half * (factor * values[place])
