"""OASIS steps and their replay on CSR rows, where of W - W_0 only touched entries are kept, and its products.

The steps of `learners.kernels.oasis` (Chechik et al., JMLR 11 (2010), section 2), on `row_tables`.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    MAX_DIFFERENCE,
    UPDATED,
    rejected,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
from learners.kernels.compile import CSR, DOUBLES, DOUBLES_OUT, FLOATS, ROWS_OUT, STEPS_OUT, inlined, kernel
from learners.kernels.intrinsics import prefetch
from learners.kernels.matrix_rows import difference
from learners.kernels.row_tables import TABLES, add_to_row, find, home

ROWS_AHEAD = 1
"""Rows of a query ahead of which their tables are asked of memory."""


@inlined
def _ask(tables: Any, row: int, e_columns: Any, count: int) -> None:
    """Ask memory for the places where the search for each column begins."""
    from_, size = tables[0][row], np.int64(tables[1][row])
    if size:
        for k in range(0, count, 2):
            place = from_ + home(size, np.int64(e_columns[k]))
            prefetch(tables[3], place)
            prefetch(tables[4], place)


@inlined
def _row_dot(tables: Any, row: int, e_columns: Any, e_values: Any, count: int) -> float:
    """Row of W - W_0 times e, in float64 in the order of e."""
    start, size, columns, values = tables[0][row], np.int64(tables[1][row]), tables[3], tables[4]
    total = 0.0
    if size:
        for k in range(count):
            place = find(columns, start, size, np.int64(e_columns[k]))
            if place >= 0:
                total += np.float64(values[place]) * np.float64(e_values[k])
    return total


@inlined
def _margin(
    tables: Any, diagonal: Any, query: Any, row: int, e_columns: Any, e_values: Any, count: int
) -> float:
    """q^T W e of one query, in float64."""
    q_ptr, q_ind, q_val = query
    margin, k = 0.0, 0
    for i in range(q_ptr[row], q_ptr[row + 1]):
        if i + ROWS_AHEAD < q_ptr[row + 1]:
            _ask(tables, q_ind[i + ROWS_AHEAD], e_columns, count)
        dot = _row_dot(tables, q_ind[i], e_columns, e_values, count)
        while k < count and np.int64(e_columns[k]) < q_ind[i]:
            k += 1
        if k < count and np.int64(e_columns[k]) == q_ind[i]:
            dot += np.float64(diagonal[q_ind[i]]) * np.float64(e_values[k])
        margin += np.float64(q_val[i]) * dot
    return margin


@inlined
def _add(
    tables: Any, tau: Any, query: Any, row: int, error: Any, first: int, last: int, limit: int, missing: Any
) -> None:
    """W <- W + tau q e^T; stored zeros of q touch nothing."""
    q_ptr, q_ind, q_val = query
    for i in range(q_ptr[row], q_ptr[row + 1]):
        factor = tau * q_val[i]
        if factor != 0:
            dim, own = len(tables[0]), np.int64(q_ind[i])
            add_to_row(tables, dim, own, factor, error, first, last, limit, missing)


@kernel(types.int64(TABLES, FLOATS, types.float64, types.int64, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
def step_rows(
    tables: Any, diagonal: Any, C: float, limit: int, query: Any, clicked: Any, skipped: Any, weights: Any,
    steps: Any,
) -> int:  # fmt: skip
    """Apply triplets in order; how many were accepted.

    tables: of W - W_0, overwritten. diagonal: of W_0, float32 [dim]. C: aggressiveness. limit: most entries
    kept. query, clicked, skipped: CSR rows; their pointers must be sound, all else is checked here. weights:
    float64 [n], scales C, or empty. steps: written per event. A rejected or degenerate event leaves W as it
    is. Margins and norms are in float64.
    """
    outcome, loss, tau, reason = steps
    dim, room, accepted = len(tables[0]), 0, 0
    for t in range(len(query[0]) - 1):
        longest = clicked[0][t + 1] - clicked[0][t] + skipped[0][t + 1] - skipped[0][t]
        room = max(room, longest)
    columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
    missing = np.empty(room, np.int64)
    for t in range(len(query[0]) - 1):
        reason[t], q_squared = scan_triplet_sparse(dim, query, clicked, skipped, t)
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        count, e_squared = difference(clicked, skipped, t, columns, values, 0)
        margin = _margin(tables, diagonal, query, t, columns, values, count)
        outcome[t], loss[t], tau[t] = step_size(margin, q_squared * e_squared, C * weight)
        if outcome[t] == UPDATED:
            _add(tables, tau[t], query, t, (columns, values), 0, count, limit, missing)
    return accepted


@inlined
def _sound(dim: int, rows: Any, row: int) -> bool:
    previous = np.int64(-1)
    indptr, indices, values = rows
    for place in range(indptr[row], indptr[row + 1]):
        index = np.int64(indices[place])
        if index <= previous or index >= dim or not abs(values[place]) <= MAX_DIFFERENCE:
            return False
        previous = index
    return True


@kernel(types.int64(TABLES, types.int64, FLOATS, CSR, CSR))
def replay_rows(tables: Any, limit: int, tau: Any, query: Any, error: Any) -> int:
    """Take steps again in order; how many were, fewer than given where the next one is malformed.

    tau: float32 [n]. query, error = c - s: CSR rows; their pointers must be sound, all else is checked here.
    """
    dim, room = len(tables[0]), 0
    for t in range(len(tau)):
        room = max(room, error[0][t + 1] - error[0][t])
    missing = np.empty(room, np.int64)
    for t in range(len(tau)):
        if not (_sound(dim, query, t) and _sound(dim, error, t) and np.isfinite(tau[t])):
            return t
        _add(tables, tau[t], query, t, (error[1], error[2]), error[0][t], error[0][t + 1], limit, missing)
    return len(tau)


@kernel(types.void(TABLES, FLOATS, CSR, ROWS_OUT))
def fold_rows(tables: Any, diagonal: Any, rows: Any, out: Any) -> None:
    """out[n] = W^T q_n for checked CSR rows q_n, float32 [n, dim], overwritten; it reads the tables of the
    rows that q_n touches."""
    starts, sizes, _, columns, values, _, _ = tables
    indptr, indices, of = rows
    out[:] = 0
    for n in range(len(indptr) - 1):
        for i in range(indptr[n], indptr[n + 1]):
            row = indices[i]
            for place in range(starts[row], starts[row] + sizes[row]):
                if columns[place] > 0:
                    out[n, columns[place] - 1] += of[i] * values[place]
            out[n, row] += of[i] * diagonal[row]


@kernel(types.void(TABLES, FLOATS, CSR, DOUBLES_OUT))
def self_products_rows(tables: Any, diagonal: Any, rows: Any, out: Any) -> None:
    """out[n] = p_n^T W p_n for checked CSR rows p_n, float64 [n]."""
    indptr, indices, values = rows
    for n in range(len(indptr) - 1):
        first, last = indptr[n], indptr[n + 1]
        out[n] = _margin(tables, diagonal, rows, n, indices[first:last], values[first:last], last - first)


@kernel(types.void(TABLES, types.int64, CSR))
def add_entries(tables: Any, limit: int, rows: Any) -> None:
    """Add a CSR matrix [dim, dim] to that of the tables; the columns of each row ascend."""
    indptr, indices, values = rows
    dim, room = len(indptr) - 1, 0
    for row in range(dim):
        room = max(room, indptr[row + 1] - indptr[row])
    missing = np.empty(room, np.int64)
    for row in range(dim):
        if indptr[row + 1] > indptr[row]:
            first, last = indptr[row], indptr[row + 1]
            add_to_row(tables, dim, row, np.float32(1.0), (indices, values), first, last, limit, missing)
