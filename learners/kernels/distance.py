"""Dissim-OASIS on dense and on CSR rows: what a triplet comes to, and the steps (Chechik et al., JMLR 11
(2010), section 6).

The distance (a - b)^T W (a - b) sees a triplet as m = (q - c) + (q - s) and e = c - s: margin m^T W e for a
symmetric W, step W <- W + tau (e m^T + m e^T)/2. A step is OASIS's symmetric one with m in place of q, and on
CSR rows bound by memory as that is: q, c and s of 70 entries each meet in four times as many entries of W as
q and e.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    NONE,
    UPDATED,
    rejected,
    scan_triplet_dense,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
from learners.kernels.compile import (
    CSR,
    DOUBLES,
    FLOATS_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Csr,
    Steps,
    inlined,
    kernel,
)
from learners.kernels.matrix_rows import (
    add_symmetric_dense,
    add_symmetric_sparse,
    difference,
    prefetch_ahead,
    row_dot,
)
from learners.kernels.oasis import CSR_OUT

NORMS_OUT = types.float64[:, ::1]


@kernel(types.void(ROWS, ROWS, ROWS, ROWS_OUT, ROWS_OUT, NORMS_OUT, types.uint8[::1]))
def pairs_dense(
    query: Any, clicked: Any, skipped: Any, sums: Any, errors: Any, norms: Any, reason: Any
) -> None:
    """m and e of each triplet, zeros where it is refused, and norms float64 [n, 3]: ||m||^2, ||e||^2, e^T m.

    sums, errors: float32 [n, dim]; overwritten, as are norms and reason uint8 [n].
    """
    for row in range(query.shape[0]):
        reason[row], _ = scan_triplet_dense(query, clicked, skipped, row)
        norms[row, :] = 0.0
        if reason[row] != NONE:
            sums[row, :], errors[row, :] = 0.0, 0.0
            continue
        for column in range(query.shape[1]):
            q, c, s = query[row, column], clicked[row, column], skipped[row, column]
            sums[row, column], errors[row, column] = (q - c) + (q - s), c - s
            m, e = np.float64(sums[row, column]), np.float64(errors[row, column])
            norms[row, 0] += m * m
            norms[row, 1] += e * e
            norms[row, 2] += m * e


@inlined
def _margin_dense(W: Any, sums: Any, t: int, e: Any) -> float:
    """m^T W e: rows of W times e in float32, their sum weighted by m in float64."""
    margin = 0.0
    for row in range(len(e)):
        if sums[t, row] != 0:
            margin += np.float64(sums[t, row]) * np.float64(row_dot(W, row, e))
    return margin


@kernel(
    types.UniTuple(types.int64, 2)(
        ROWS_OUT, types.float64, types.int64, ROWS, ROWS, DOUBLES, DOUBLES, STEPS_OUT
    )
)
def step_pairs_dense(
    W: Any, C: float, budget: int, sums: Any, errors: Any, squares: Any, weights: Any, steps: Steps
) -> tuple[int, int]:
    """Apply steps in order until `budget` events were accepted; (rows consumed, rows accepted).

    W: float32 [dim, dim], symmetric, overwritten. C: aggressiveness. sums, errors: m and e as `pairs_dense`
    gives them; squares: ||V'||^2, float64 [n]. weights: float64 [n], scales C, or empty. steps: reason as
    `pairs_dense` left it; all are written per event. Precision as in `oasis_dense`.
    """
    outcome, loss, tau, _ = steps
    accepted = 0
    for t in range(len(sums)):
        if accepted == budget:
            return t, accepted
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        margin = _margin_dense(W, sums, t, errors[t])
        outcome[t], loss[t], tau[t] = step_size(margin, squares[t], C * weight)
        if outcome[t] == UPDATED:
            add_symmetric_dense(W, tau[t], sums, t, errors[t])
    return len(sums), accepted


@inlined
def _at(rows: Csr, row: int, place: int) -> Any:
    """The index at a place, beyond all indices where the row has ended."""
    return np.int64(rows[1][place]) if place < rows[0][row + 1] else np.int64(2**31)


@inlined
def _sum_of_differences(
    query: Csr, clicked: Csr, skipped: Csr, row: int, columns: Any, values: Any, start: int
) -> tuple[int, float]:
    """Merge m = (q - c) + (q - s) into columns/values from `start`; (entries, ||m||^2 in float64)."""
    i, j, k = query[0][row], clicked[0][row], skipped[0][row]
    place, squares = start, 0.0
    while True:
        column = min(_at(query, row, i), _at(clicked, row, j), _at(skipped, row, k))
        if column == 2**31:
            return place - start, squares
        q = c = s = np.float32(0.0)
        if _at(query, row, i) == column:
            q = query[2][i]
            i += 1
        if _at(clicked, row, j) == column:
            c = clicked[2][j]
            j += 1
        if _at(skipped, row, k) == column:
            s = skipped[2][k]
            k += 1
        value = (q - c) + (q - s)
        if value != 0:
            columns[place], values[place] = np.int32(column), value
            squares += np.float64(value) * np.float64(value)
            place += 1


@inlined
def _product(left: Csr, right: Csr, row: int) -> float:
    """Inner product of two rows in float64."""
    i, j = left[0][row], right[0][row]
    total = 0.0
    while i < left[0][row + 1] and j < right[0][row + 1]:
        if left[1][i] < right[1][j]:
            i += 1
        elif right[1][j] < left[1][i]:
            j += 1
        else:
            total += np.float64(left[2][i]) * np.float64(right[2][j])
            i += 1
            j += 1
    return total


@kernel(types.void(types.int64, CSR, CSR, CSR, CSR_OUT, CSR_OUT, NORMS_OUT, types.uint8[::1]))
def pairs_sparse(
    dim: int, query: Csr, clicked: Csr, skipped: Csr, sums: Csr, errors: Csr, norms: Any, reason: Any
) -> None:
    """m and e of each triplet, empty where it is refused, and norms float64 [n, 3]: ||m||^2, ||e||^2, e^T m.

    sums, errors: CSR rows with pointers [n + 1] that begin with 0 and room for the entries; overwritten, as
    are norms and reason uint8 [n].
    """
    for row in range(len(query[0]) - 1):
        reason[row], _ = scan_triplet_sparse(dim, query, clicked, skipped, row)
        m_entries = e_entries = 0
        norms[row, :] = 0.0
        if reason[row] == NONE:
            m_entries, norms[row, 0] = _sum_of_differences(
                query, clicked, skipped, row, sums[1], sums[2], sums[0][row]
            )
            e_entries, norms[row, 1] = difference(clicked, skipped, row, errors[1], errors[2], errors[0][row])
        sums[0][row + 1], errors[0][row + 1] = sums[0][row] + m_entries, errors[0][row] + e_entries
        norms[row, 2] = _product(sums, errors, row)


@inlined
def _row_dot(W: Any, base: Any, rows: Csr, first: int, stop: int) -> float:
    """A row of W times some entries of CSR rows, in float64: four interleaved sums, joined pairwise."""
    _, columns, values = rows
    body = first + (stop - first) // 4 * 4
    sum0 = sum1 = sum2 = sum3 = 0.0
    for place in range(first, body, 4):
        sum0 += np.float64(W[base + np.uint64(columns[place])]) * np.float64(values[place])
        sum1 += np.float64(W[base + np.uint64(columns[place + 1])]) * np.float64(values[place + 1])
        sum2 += np.float64(W[base + np.uint64(columns[place + 2])]) * np.float64(values[place + 2])
        sum3 += np.float64(W[base + np.uint64(columns[place + 3])]) * np.float64(values[place + 3])
    for place in range(body, stop):
        sum0 += np.float64(W[base + np.uint64(columns[place])]) * np.float64(values[place])
    return (sum0 + sum1) + (sum2 + sum3)


@inlined
def _across(W: Any, dim: Any, left: Csr, right: Csr, t: int) -> float:
    """l^T W r of row t in float64, asking for rows and pages ahead."""
    l_ptr, l_ind, l_val = left
    r_ptr, r_ind, _ = right
    start, count = np.uint64(r_ptr[t]), np.uint64(r_ptr[t + 1] - r_ptr[t])
    here, nothing = (r_ind, l_val, start, count), (start, np.uint64(0))
    last, total = l_ptr[t + 1], 0.0
    for i in range(l_ptr[t], last):
        prefetch_ahead(W, dim, l_ind, i, last, last, here, nothing)
        base = np.uint64(l_ind[i]) * dim
        total += np.float64(l_val[i]) * _row_dot(W, base, right, r_ptr[t], r_ptr[t + 1])
    return total


@inlined
def _margin_sparse(W: Any, dim: Any, triplets: Any, errors: Csr, t: int) -> Any:
    """m^T W e = 2 q^T W e - c^T W c + s^T W s for a symmetric W: half as many entries of W as m and e meet
    in. In float64, since the self scores of objects nearly alike share most of their digits.
    """
    query, clicked, skipped = triplets
    own = _across(W, dim, skipped, skipped, t) - _across(W, dim, clicked, clicked, t)
    return 2.0 * _across(W, dim, query, errors, t) + own


@kernel(
    types.UniTuple(types.int64, 2)(
        FLOATS_OUT, types.int64, types.float64, types.int64,
        types.UniTuple(CSR, 3), CSR, CSR, DOUBLES, DOUBLES, STEPS_OUT,
    )
)  # fmt: skip
def step_pairs_sparse(
    W: Any, dim: int, C: float, budget: int,
    triplets: Any, sums: Csr, errors: Csr, squares: Any, weights: Any, steps: Steps,
) -> tuple[int, int]:  # fmt: skip
    """Apply steps in order until `budget` events were accepted; (rows consumed, rows accepted).

    W: float32 [dim * dim], symmetric, overwritten. C: aggressiveness. triplets: (query, clicked, skipped).
    sums, errors: m and e as `pairs_sparse` gives them; squares: ||V'||^2, float64 [n]. weights: float64 [n],
    scales C, or empty. steps: reason as `pairs_sparse` left it; all are written per event.
    """
    outcome, loss, tau, _ = steps
    e_ptr, e_ind, e_val = errors
    rows, stride = len(e_ptr) - 1, np.uint64(dim)
    accepted = 0
    for t in range(rows):
        if accepted == budget:
            return t, accepted
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        margin = _margin_sparse(W, stride, triplets, errors, t)
        outcome[t], loss[t], tau[t] = step_size(margin, squares[t], C * weight)
        if outcome[t] == UPDATED:
            here = (e_ind, e_val, np.uint64(e_ptr[t]), np.uint64(e_ptr[t + 1] - e_ptr[t]))
            add_symmetric_sparse(W, stride, tau[t], sums, t, here)
    return rows, accepted
