"""OASIS steps on dense rows taken again: W <- W + tau V(q, e), bit for bit what `oasis_dense` added."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import FLOATS, ROWS, ROWS_OUT, inlined, kernel
from learners.kernels.dense_rows import add, add_symmetric

from numba import types  # isort: skip


@inlined
def _finite(rows: Any, row: int) -> bool:
    """Whether a row holds finite numbers: as a difference of vectors it may be larger than they may."""
    finite = True
    for column in range(rows.shape[1]):
        finite &= np.isfinite(rows[row, column])
    return finite


@kernel(types.int64(ROWS_OUT, types.boolean, FLOATS, ROWS, ROWS))
def replay_dense(W: Any, symmetric: bool, tau: Any, query: Any, error: Any) -> int:
    """Take steps again in order; how many were, fewer than given where the next one is malformed.

    W: float32 [dim, dim], overwritten. symmetric: add (V + V^T)/2. tau: float32 [n]. query, error = c - s:
    float32 [n, dim].
    """
    for t in range(len(tau)):
        if not (_finite(query, t) and _finite(error, t) and np.isfinite(tau[t])):
            return t
        if symmetric:
            add_symmetric(W, tau[t], query, t, error[t])
        else:
            add(W, tau[t], query, t, error[t])
    return len(tau)
