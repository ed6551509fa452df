"""OASIS steps on dense rows taken again: W <- W + tau V(q, e), bit for bit what `oasis_dense` added."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import MAX_DIFFERENCE
from learners.kernels.compile import FLOATS, ROWS, ROWS_OUT, inlined, kernel
from learners.kernels.dense_rows import add, add_symmetric

from numba import types  # isort: skip


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
            add_symmetric(W, tau[t], query, t, error[t])
        else:
            add(W, tau[t], query, t, error[t])
    return len(tau)
