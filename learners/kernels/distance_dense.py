"""Dissim-OASIS on dense rows: what a triplet comes to, and the steps (Chechik et al., JMLR 11 (2010),
section 6).

The distance (a - b)^T W (a - b) sees a triplet as m = (q - c) + (q - s) and e = c - s: margin m^T W e for a
symmetric W, step W <- W + tau (e m^T + m e^T)/2.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, REJECTED, UPDATED, scan_dense, scan_weight, step_size
from learners.kernels.compile import DOUBLES, ROWS, ROWS_OUT, STEPS_OUT, Steps, inlined, kernel
from learners.kernels.matrix_rows import add_symmetric_dense, row_dot

from numba import types  # isort: skip

NORMS_OUT = types.float64[:, ::1]


@inlined
def _scan(query: Any, clicked: Any, skipped: Any, row: int) -> Any:
    """The first reason to refuse a triplet, or NONE."""
    reason, _ = scan_dense(query, row)
    if reason == NONE:
        reason, _ = scan_dense(clicked, row)
    if reason == NONE:
        reason, _ = scan_dense(skipped, row)
    return reason


@kernel(types.void(ROWS, ROWS, ROWS, ROWS_OUT, ROWS_OUT, NORMS_OUT, types.uint8[::1]))
def pairs_dense(
    query: Any, clicked: Any, skipped: Any, sums: Any, errors: Any, norms: Any, reason: Any
) -> None:
    """m and e of each triplet, zeros where it is refused, and norms float64 [n, 3]: ||m||^2, ||e||^2, e^T m.

    sums, errors: float32 [n, dim]; overwritten, as are norms and reason uint8 [n].
    """
    for row in range(query.shape[0]):
        reason[row] = _scan(query, clicked, skipped, row)
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
def margin_dense(W: Any, sums: Any, t: int, e: Any) -> float:
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
    outcome, loss, tau, reason = steps
    accepted = 0
    for t in range(len(sums)):
        if accepted == budget:
            return t, accepted
        fault, weight = scan_weight(weights, t)
        if reason[t] == NONE:
            reason[t] = fault
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        accepted += 1
        margin = margin_dense(W, sums, t, errors[t])
        outcome[t], loss[t], tau[t] = step_size(margin, squares[t], C * weight)
        if outcome[t] == UPDATED:
            add_symmetric_dense(W, tau[t], sums, t, errors[t])
    return len(sums), accepted
