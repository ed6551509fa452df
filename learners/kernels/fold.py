"""Products with the symmetric part of W that never form it, and self scores, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compile import CSR, DOUBLES_OUT, ROWS, ROWS_OUT, Csr, kernel

from numba import types  # isort: skip


@kernel(types.void(ROWS, CSR, ROWS_OUT))
def fold_symmetric_sparse(W: Any, rows: Csr, out: Any) -> None:
    """out[n] = (W + W^T)/2 q_n for checked CSR rows q_n; W float32 [d, d], out float32 [n, d], overwritten.

    W is read once per block: the outer loop runs over its rows, which stay in the cache for all queries.
    """
    indptr, indices, values = rows
    out[:] = 0
    dim = W.shape[0]
    for row in range(dim):
        for n in range(len(indptr) - 1):
            dot = np.float64(0.0)
            for place in range(indptr[n], indptr[n + 1]):
                column = indices[place]
                dot += np.float64(W[row, column]) * np.float64(values[place])
            out[n, row] += np.float32(0.5 * dot)
    for n in range(len(indptr) - 1):
        for place in range(indptr[n], indptr[n + 1]):
            row, half = indices[place], np.float32(0.5) * values[place]
            for column in range(dim):
                out[n, column] += half * W[row, column]


@kernel(types.void(ROWS, CSR, DOUBLES_OUT))
def self_products_sparse(W: Any, rows: Csr, out: Any) -> None:
    """out[n] = p_n^T W p_n in float64 for checked CSR rows p_n; out float64 [n], overwritten."""
    indptr, indices, values = rows
    for n in range(len(indptr) - 1):
        total = 0.0
        for i in range(indptr[n], indptr[n + 1]):
            dot = 0.0
            for j in range(indptr[n], indptr[n + 1]):
                dot += np.float64(W[indices[i], indices[j]]) * np.float64(values[j])
            total += np.float64(values[i]) * dot
        out[n] = total
