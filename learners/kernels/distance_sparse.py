"""Dissim-OASIS on CSR rows: what a triplet comes to, and the steps (Chechik et al., JMLR 11 (2010),
section 6).

The distance (a - b)^T W (a - b) sees a triplet as m = (q - c) + (q - s) and e = c - s: margin m^T W e for a
symmetric W, step W <- W + tau (e m^T + m e^T)/2. So after m is merged, a step is OASIS's symmetric one with m
in place of q, and bound by memory as that is.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, REJECTED, UPDATED, scan_sparse, scan_weight, step_size
from learners.kernels.compile import CSR, DOUBLES, FLOATS_OUT, STEPS_OUT, Csr, Steps, inlined, kernel
from learners.kernels.distance_dense import NORMS_OUT
from learners.kernels.replay_sparse import CSR_OUT
from learners.kernels.sparse_rows import add_symmetric, difference, margin_ahead

from numba import types  # isort: skip


@inlined
def _scan(dim: int, query: Csr, clicked: Csr, skipped: Csr, row: int) -> Any:
    """The first reason to refuse a triplet, or NONE."""
    reason, _ = scan_sparse(dim, query, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, clicked, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, skipped, row)
    return reason


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
        reason[row] = _scan(dim, query, clicked, skipped, row)
        m_entries = e_entries = 0
        norms[row, :] = 0.0
        if reason[row] == NONE:
            m_entries, norms[row, 0] = _sum_of_differences(
                query, clicked, skipped, row, sums[1], sums[2], sums[0][row]
            )
            e_entries, norms[row, 1] = difference(clicked, skipped, row, errors[1], errors[2], errors[0][row])
        sums[0][row + 1], errors[0][row + 1] = sums[0][row] + m_entries, errors[0][row] + e_entries
        norms[row, 2] = _product(sums, errors, row)


@kernel(
    types.UniTuple(types.int64, 2)(
        FLOATS_OUT, types.int64, types.float64, types.int64, CSR, CSR, DOUBLES, DOUBLES, STEPS_OUT
    )
)
def step_pairs_sparse(
    W: Any, dim: int, C: float, budget: int, sums: Csr, errors: Csr, squares: Any, weights: Any, steps: Steps
) -> tuple[int, int]:
    """Apply steps in order until `budget` events were accepted; (rows consumed, rows accepted).

    W: float32 [dim * dim], symmetric, overwritten. C: aggressiveness. sums, errors: m and e as `pairs_sparse`
    gives them; squares: ||V'||^2, float64 [n]. weights: float64 [n], scales C, or empty. steps: reason as
    `pairs_sparse` left it; all are written per event. Precision as in `oasis_sparse`.
    """
    outcome, loss, tau, reason = steps
    m_ptr, (e_ptr, e_ind, e_val) = sums[0], errors
    rows, stride = len(m_ptr) - 1, np.uint64(dim)
    accepted = 0
    for t in range(rows):
        if accepted == budget:
            return t, accepted
        fault, weight = scan_weight(weights, t)
        if reason[t] == NONE:
            reason[t] = fault
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        accepted += 1
        here = (e_ind, e_val, np.uint64(e_ptr[t]), np.uint64(e_ptr[t + 1] - e_ptr[t]))
        following = (np.uint64(e_ptr[t + 1]), np.uint64(0))
        if t + 1 < rows:
            following = (following[0], np.uint64(e_ptr[t + 2] - e_ptr[t + 1]))
        margin = margin_ahead(W, stride, sums, t, here, following)
        outcome[t], loss[t], tau[t] = step_size(margin, squares[t], C * weight)
        if outcome[t] == UPDATED:
            add_symmetric(W, stride, tau[t], sums, t, here)
    return rows, accepted
