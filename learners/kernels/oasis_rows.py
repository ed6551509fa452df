"""OASIS steps and their replay on CSR rows, where of W - W_0 only touched entries are kept, and its products.

The steps of `learners.kernels.oasis` (Chechik et al., JMLR 11 (2010), section 2), on `row_tables`. A kernel
that finds no room for a step returns before it has changed anything; who called makes room and calls again.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    DEGENERATE,
    UPDATED,
    rejected,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
from learners.kernels.compile import CSR, DOUBLES, DOUBLES_OUT, FLOATS, ROWS_OUT, STEPS_OUT, inlined, kernel
from learners.kernels.intrinsics import prefetch
from learners.kernels.matrix_rows import difference
from learners.kernels.oasis import sound_difference
from learners.kernels.row_tables import TABLES, add_to_row, find, home, lacks

ROWS_AHEAD = 1
"""Rows of a query ahead of which their tables are asked of memory."""


@inlined
def _ask(tables: Any, row: int, e_columns: Any, count: int) -> None:
    """Ask memory for the places where the search for each column begins."""
    start, size = tables[0][row], np.int64(tables[1][row])
    if size:
        for k in range(0, count, 2):
            prefetch(tables[3], start + home(size, np.int64(e_columns[k])))


@inlined
def _row_dot(tables: Any, row: int, e_columns: Any, e_values: Any, count: int) -> float:
    """Row of W - W_0 times e, in float64 in the order of e."""
    start, size, halves, values = tables[0][row], np.int64(tables[1][row]), tables[4], tables[5]
    total = 0.0
    if size:
        for k in range(count):
            place = find(halves, start, size, np.int64(e_columns[k]))
            if place >= 0:
                total += np.float64(values[2 * place]) * np.float64(e_values[k])
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
def _add(tables: Any, tau: Any, query: Any, row: int, error: Any, count: int, missing: Any) -> None:
    """W <- W + tau q e^T; stored zeros of q touch nothing."""
    q_ptr, q_ind, q_val = query
    for i in range(q_ptr[row], q_ptr[row + 1]):
        factor = tau * q_val[i]
        if factor != 0:
            add_to_row(tables, np.int64(q_ind[i]), factor, error, count, missing)


@inlined
def _fits(query: Any, row: int, count: int, limit: int) -> bool:
    """Whether a step touches at most half of the entries that may be kept."""
    return (query[0][row + 1] - query[0][row]) * count <= limit // 2  # type: ignore[no-any-return]


@kernel(
    types.UniTuple(types.int64, 2)(
        TABLES,
        FLOATS,
        types.float64,
        types.int64,
        types.int64,
        types.boolean,
        CSR,
        CSR,
        CSR,
        DOUBLES,
        STEPS_OUT,
    )
)
def step_rows(
    tables: Any, diagonal: Any, C: float, limit: int, first: int, decided: bool,
    query: Any, clicked: Any, skipped: Any, weights: Any, steps: Any,
) -> tuple[int, int]:  # fmt: skip
    """Apply triplets from `first` on in order, until there is no room for a step; (the event whose step is to
    be taken when there is, or the number of events; how many were accepted).

    tables: of W - W_0, overwritten. diagonal: of W_0, float32 [dim]. C: aggressiveness. limit: most entries
    kept; a step of more than half of them is not taken. decided: the outcome of event `first` is written
    already, and counted. query, clicked, skipped: CSR rows; their pointers must be sound, all else is checked
    here. weights: float64 [n], scales C, or empty. steps: written per event. A rejected or degenerate event
    leaves W as it is. Margins and norms are in float64.
    """
    outcome, loss, tau, reason = steps
    dim, room, accepted, number = len(tables[0]), np.int64(0), 0, len(query[0]) - 1
    for t in range(first, number):
        longest = clicked[0][t + 1] - clicked[0][t] + skipped[0][t + 1] - skipped[0][t]
        room = max(room, longest)
    columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
    missing = np.empty(room, np.int64)
    for t in range(first, number):
        known = decided and t == first
        q_squared, weight = 0.0, 1.0
        if not known:
            reason[t], q_squared = scan_triplet_sparse(dim, query, clicked, skipped, t)
            fault, weight = scan_weight(weights, t)
            if rejected(fault, t, steps):
                continue
            accepted += 1
        count, e_squared = difference(clicked, skipped, t, columns, values, 0)
        if not known:
            if not _fits(query, t, count, limit):
                outcome[t], loss[t], tau[t] = DEGENERATE, 0, 0
                continue
            margin = _margin(tables, diagonal, query, t, columns, values, count)
            outcome[t], loss[t], tau[t] = step_size(margin, q_squared * e_squared, C * weight)
        if outcome[t] == UPDATED:
            if lacks(tables, tau[t], query, t, count, limit):
                return t, accepted
            _add(tables, tau[t], query, t, (columns, values), count, missing)
    return number, accepted


@kernel(types.UniTuple(types.int64, 2)(TABLES, types.int64, types.int64, FLOATS, CSR, CSR))
def replay_rows(tables: Any, limit: int, first: int, tau: Any, query: Any, error: Any) -> tuple[int, int]:
    """Take steps again from `first` on in order; (the step that was not taken, or how many there are; whether
    it is malformed: 1, or waits for room: 0).

    tau: float32 [n]. query, error = c - s: CSR rows; their pointers must be sound, all else is checked here.
    Zeros among an error are left out, as in the step.
    """
    dim, room = len(tables[0]), np.int64(0)
    for t in range(first, len(tau)):
        room = max(room, error[0][t + 1] - error[0][t])
    columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
    missing = np.empty(room, np.int64)
    for t in range(first, len(tau)):
        if not (sound_difference(dim, query, t) and sound_difference(dim, error, t) and np.isfinite(tau[t])):
            return t, 1
        count = 0
        for place in range(error[0][t], error[0][t + 1]):
            if error[2][place] != 0:
                columns[count], values[count] = error[1][place], error[2][place]
                count += 1
        if not _fits(query, t, count, limit):
            return t, 1
        if lacks(tables, tau[t], query, t, count, limit):
            return t, 0
        _add(tables, tau[t], query, t, (columns, values), count, missing)
    return len(tau), 0


@kernel(types.void(TABLES, types.float32, CSR, ROWS_OUT))
def add_fold(tables: Any, share: float, rows: Any, out: Any) -> None:
    """out[n] += share times T^T q_n for checked CSR rows q_n, T what the tables hold, float32 [n, dim]; it
    reads the tables of the rows that q_n touches."""
    starts, sizes, _, _, halves, values, _ = tables
    indptr, indices, of = rows
    for n in range(len(indptr) - 1):
        for i in range(indptr[n], indptr[n + 1]):
            row, factor = indices[i], share * of[i]
            for place in range(starts[row], starts[row] + sizes[row]):
                if halves[2 * place + 1] != 0:
                    out[n, halves[2 * place + 1] - 1] += factor * values[2 * place]


@kernel(types.void(TABLES, FLOATS, CSR, DOUBLES_OUT))
def self_products_rows(tables: Any, diagonal: Any, rows: Any, out: Any) -> None:
    """out[n] = p_n^T W p_n for checked CSR rows p_n, float64 [n]."""
    indptr, indices, values = rows
    for n in range(len(indptr) - 1):
        first, last = indptr[n], indptr[n + 1]
        out[n] = _margin(tables, diagonal, rows, n, indices[first:last], values[first:last], last - first)
