"""The dense OASIS step as it was before its updates were delayed: a pass over W to read, one to write.

The rival of `dense_step`, on the same triplets; vectorised, both passes over rows of W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    UPDATED,
    rejected,
    scan_triplet_dense,
    scan_weight,
    step_size,
)
from learners.kernels.compile import (
    DOUBLES,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Steps,
    inlined,
    kernel,
    reassociated,
)


@reassociated
def _row_dot(W: Any, row: int, e: Any) -> Any:
    total = np.float32(0.0)
    for column in range(len(e)):
        total += W[row, column] * e[column]
    return total


@inlined
def _add(W: Any, tau: Any, query: Any, t: int, e: Any) -> None:
    for row in range(W.shape[0]):
        factor = tau * query[t, row]
        if factor != 0:
            for column in range(len(e)):
                W[row, column] += factor * e[column]


@kernel(types.void(ROWS_OUT, types.float64, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
def step_per_event(
    W: Any, C: float, query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps
) -> None:
    """Apply triplets in order. W: float32 [dim, dim], overwritten; query, clicked, skipped: float32 [n, dim];
    weights: float64 [n], or empty; steps: written per event."""
    outcome, loss, tau, reason = steps
    rows, dim = query.shape
    e = np.empty(dim, np.float32)
    for t in range(rows):
        reason[t], q_squared = scan_triplet_dense(query, clicked, skipped, t)
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        e_squared, margin = 0.0, 0.0
        for column in range(dim):
            e[column] = clicked[t, column] - skipped[t, column]
            e_squared += np.float64(e[column]) * np.float64(e[column])
        for row in range(dim):
            if query[t, row] != 0:
                margin += np.float64(query[t, row]) * np.float64(_row_dot(W, row, e))
        outcome[t], loss[t], tau[t] = step_size(margin, q_squared * e_squared, C * weight)
        if outcome[t] == UPDATED:
            _add(W, tau[t], query, t, e)
