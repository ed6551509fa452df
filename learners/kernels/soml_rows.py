"""What SOML steps read of an event: g = q (.) (c - s), the few entries that a diagonal metric sees.

Only columns held by the query and by c or s matter. The three sorted index lists are intersected without
branches, since no processor can predict them: one comparison moves one or both ends forward.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import (
    DEGENERATE,
    MAX_MAGNITUDE,
    NONE,
    PASSIVE,
    UPDATED,
    scan_dense,
    scan_sparse,
    scan_weight,
)
from learners.kernels.compile import Csr, inlined

LARGEST = np.float32(MAX_MAGNITUDE)
"""The largest float32 that is accepted."""


@inlined
def _sound(dim: int, rows: Csr, row: int) -> bool:
    """Whether `scan_sparse` finds no fault; without branches, so that many entries are read at once."""
    indptr, indices, values = rows
    one, first, last = np.uint64(1), np.uint64(indptr[row]), np.uint64(indptr[row + 1])
    if first == last:
        return True
    faults = np.int32(indices[first] < 0) | np.int32(indices[last - one] >= dim)
    for place in range(first + one, last):
        faults |= np.int32(indices[place] <= indices[place - one])
    for place in range(first, last):
        faults |= np.int32(not (abs(values[place]) <= LARGEST))
    return bool(faults == 0)


@inlined
def accept_sparse(
    dim: int, query: Csr, clicked: Csr, skipped: Csr, weights: Any, row: int
) -> tuple[int, float]:
    """(reason, weight) of one triplet of CSR rows."""
    fault, weight = scan_weight(weights, row)
    if _sound(dim, query, row) and _sound(dim, clicked, row) and _sound(dim, skipped, row):
        return fault, weight
    reason, _ = scan_sparse(dim, query, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, clicked, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, skipped, row)
    return reason, weight


@inlined
def accept_dense(query: Any, clicked: Any, skipped: Any, weights: Any, row: int) -> tuple[int, float]:
    """(reason, weight) of one triplet of dense rows."""
    reason, _ = scan_dense(query, row)
    if reason == NONE:
        reason, _ = scan_dense(clicked, row)
    if reason == NONE:
        reason, _ = scan_dense(skipped, row)
    fault, weight = scan_weight(weights, row)
    return (fault if reason == NONE else reason), weight


@inlined
def _meet(query: Csr, other: Csr, row: int, found: Any) -> None:
    """found[i] = the value of `other` at the column of entry i of the query, 0 where it holds none."""
    q_ptr, q_ind, _ = query
    o_ptr, o_ind, o_val = other
    base = np.uint64(q_ptr[row])
    i, i_end = base, np.uint64(q_ptr[row + 1])
    j, j_end = np.uint64(o_ptr[row]), np.uint64(o_ptr[row + 1])
    while i < i_end and j < j_end:
        mine, theirs = q_ind[i], o_ind[j]
        found[i - base] = o_val[j] if mine == theirs else np.float32(0.0)
        i += np.uint64(mine <= theirs)
        j += np.uint64(theirs <= mine)
    while i < i_end:
        found[i - base] = np.float32(0.0)
        i += np.uint64(1)


@inlined
def products_sparse(
    query: Csr, clicked: Csr, skipped: Csr, row: int, met: Any, columns: Any, values: Any, start: Any
) -> Any:
    """Write the non-zero entries of g = q (.) (c - s) of an accepted row from `start`; how many there are.

    met: float32 scratch, two rows as long as any query. columns: uint32; values: float64, g without rounding
    c - s or the product to float32.
    """
    in_clicked, in_skipped = met
    _meet(query, clicked, row, in_clicked)
    _meet(query, skipped, row, in_skipped)
    q_ptr, q_ind, q_val = query
    base, length, place = np.uint64(q_ptr[row]), np.uint64(q_ptr[row + 1] - q_ptr[row]), start
    for i in range(length):
        error = np.float64(in_clicked[i]) - np.float64(in_skipped[i])
        product = np.float64(q_val[base + i]) * error
        columns[place] = np.uint32(q_ind[base + i])
        values[place] = product
        place += np.uint64(product != 0)
    return place - start


@inlined
def products_dense(
    query: Any, clicked: Any, skipped: Any, row: int, columns: Any, values: Any, start: Any
) -> Any:
    """As `products_sparse`, of dense rows."""
    place = start
    for column in range(query.shape[1]):
        error = np.float64(clicked[row, column]) - np.float64(skipped[row, column])
        product = np.float64(query[row, column]) * error
        columns[place] = np.uint32(column)
        values[place] = product
        place += np.uint64(product != 0)
    return place - start


@inlined
def longest(rows: Csr) -> int:
    """The entries of the longest row."""
    indptr = rows[0]
    most = 0
    for row in range(len(indptr) - 1):
        most = max(most, indptr[row + 1] - indptr[row])
    return most


@inlined
def verdict(margin: float, weight: float) -> tuple[int, Any]:
    """(outcome, loss float32) of an accepted event: updated is a violating round, one of loss above 0."""
    loss = max(0.0, 1.0 - margin)
    rounded = np.float32(loss)
    if not np.isfinite(margin) or not np.isfinite(rounded):
        return DEGENERATE, np.float32(0.0)
    if loss == 0.0 or weight == 0.0:
        return PASSIVE, rounded
    return UPDATED, rounded
