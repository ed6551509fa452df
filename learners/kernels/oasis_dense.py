"""OASIS steps on dense rows, one event after another (Chechik et al., JMLR 11 (2010), section 2).

One pass over W for the margin q^T W (c - s), row by row, and one for W <- W + tau q (c - s)^T; rows with q_i
= 0 are skipped in both. W of a few hundred dimensions stays in the cache, so both passes are vectorised.

OASIS steps on dense rows taken again: W <- W + tau V(q, e), bit for bit what `oasis_dense` added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import (
    MAX_DIFFERENCE,
    NONE,
    REJECTED,
    UPDATED,
    scan_dense,
    scan_weight,
    step_size,
)
from learners.kernels.compile import DOUBLES, FLOATS, ROWS, ROWS_OUT, STEPS_OUT, Steps, inlined, kernel
from learners.kernels.matrix_rows import add_dense, add_symmetric_dense, row_dot

from numba import types  # isort: skip


# ruff: noqa: PLR0917  (kernels take plain arrays)


@inlined
def _accept(query: Any, clicked: Any, skipped: Any, weights: Any, row: int) -> tuple[int, float, float]:
    """(reason, ||q||^2, weight) of one triplet."""
    reason, squares = scan_dense(query, row)
    if reason == NONE:
        reason, _ = scan_dense(clicked, row)
    if reason == NONE:
        reason, _ = scan_dense(skipped, row)
    fault, weight = scan_weight(weights, row)
    return (fault if reason == NONE else reason), squares, weight


@kernel(
    types.UniTuple(types.int64, 2)(
        ROWS_OUT, types.float64, types.boolean, types.int64, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT
    )
)
def step_dense(
    W: Any, C: float, symmetric: bool, budget: int,
    query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps,
) -> tuple[int, int]:  # fmt: skip
    """Apply triplets in order until `budget` of them were accepted; (rows consumed, rows accepted).

    W: float32 [dim, dim], overwritten. C: aggressiveness. symmetric: add (V + V^T)/2 instead of V.
    query, clicked, skipped: float32 [n, dim]. weights: float64 [n], scales C, or empty. steps: written per
    event. A rejected or degenerate event leaves W as it is.
    Precision: rows of W times (c - s) in float32; their sum weighted by q, and both norms, in float64.
    """
    outcome, loss, tau, reason = steps
    rows, dim = query.shape
    e = np.empty(dim, np.float32)
    accepted = 0
    for t in range(rows):
        if accepted == budget:
            return t, accepted
        reason[t], q_squared, weight = _accept(query, clicked, skipped, weights, t)
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        accepted += 1
        e_squared, margin = 0.0, 0.0
        for column in range(dim):
            e[column] = clicked[t, column] - skipped[t, column]
            e_squared += np.float64(e[column]) * np.float64(e[column])
        for row in range(dim):
            if query[t, row] != 0:
                margin += np.float64(query[t, row]) * np.float64(row_dot(W, row, e))
        outcome[t], loss[t], tau[t] = step_size(margin, q_squared * e_squared, C * weight)
        if outcome[t] == UPDATED and symmetric:
            add_symmetric_dense(W, tau[t], query, t, e)
        elif outcome[t] == UPDATED:
            add_dense(W, tau[t], query, t, e)
    return rows, accepted


@inlined
def _sound(rows: Any, row: int) -> bool:
    """Whether a row holds numbers that a difference of vectors may have."""
    sound = True
    for column in range(rows.shape[1]):
        sound &= abs(rows[row, column]) <= MAX_DIFFERENCE
    return sound


@kernel(types.int64(ROWS_OUT, types.boolean, FLOATS, ROWS, ROWS))
def replay_dense(W: Any, symmetric: bool, tau: Any, query: Any, error: Any) -> int:
    """Take steps again in order; how many were, fewer than given where the next one is malformed.

    W: float32 [dim, dim], overwritten. symmetric: add (V + V^T)/2. tau: float32 [n]. query, error = c - s:
    float32 [n, dim].
    """
    for t in range(len(tau)):
        if not (_sound(query, t) and _sound(error, t) and np.isfinite(tau[t])):
            return t
        if symmetric:
            add_symmetric_dense(W, tau[t], query, t, error[t])
        else:
            add_dense(W, tau[t], query, t, error[t])
    return len(tau)
