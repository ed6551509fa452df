"""Products with the symmetric part of W that never form it, and self scores, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import (
    CSR,
    DOUBLES_OUT,
    FLOATS,
    FLOATS_OUT,
    ROWS,
    ROWS_OUT,
    Csr,
    kernel,
    reassociated,
)
from learners.kernels.intrinsics import prefetch

ROWS_AHEAD = 2
LINE = 16
"""float32 in a cache line."""


@kernel(types.void(FLOATS, types.int64, CSR, ROWS_OUT))
def fold_symmetric_sparse(W: Any, dim: Any, rows: Csr, out: Any) -> None:
    """out[n] = (W + W^T)/2 q_n for checked CSR rows q_n; W float32 [d * d], out float32 [n, d], overwritten.

    W is read once per block: the outer loop runs over its rows, which stay in the cache for all queries. What
    it reads of a row is far apart, so it is asked for two rows ahead: four times as fast for one query of 70
    entries at d = 10,000. Where the queries have many entries together, all of the row is.
    """
    indptr, indices, values = rows
    out[:] = 0
    first, last = indptr[0], indptr[-1]
    for row in range(dim):
        ahead = np.uint64(min(row + ROWS_AHEAD, dim - 1)) * np.uint64(dim)
        if last - first < dim // LINE:
            for place in range(first, last):
                prefetch(W, ahead + np.uint64(indices[place]))
        else:
            for column in range(0, dim, LINE):
                prefetch(W, ahead + np.uint64(column))
        base = np.uint64(row) * np.uint64(dim)
        for n in range(len(indptr) - 1):
            start, stop = indptr[n], indptr[n + 1]
            whole = start + (stop - start) // 4 * 4
            one = two = three = four = np.float64(0.0)  # four sums, so that none waits for another
            for place in range(start, whole, 4):
                one += np.float64(W[base + np.uint64(indices[place])]) * np.float64(values[place])
                two += np.float64(W[base + np.uint64(indices[place + 1])]) * np.float64(values[place + 1])
                three += np.float64(W[base + np.uint64(indices[place + 2])]) * np.float64(values[place + 2])
                four += np.float64(W[base + np.uint64(indices[place + 3])]) * np.float64(values[place + 3])
            for place in range(whole, stop):
                one += np.float64(W[base + np.uint64(indices[place])]) * np.float64(values[place])
            out[n, row] += np.float32(0.5 * ((one + two) + (three + four)))
    for n in range(len(indptr) - 1):
        for place in range(indptr[n], indptr[n + 1]):
            start_of_row = np.uint64(indices[place]) * np.uint64(dim)
            half = np.float32(0.5) * values[place]
            for column in range(dim):
                out[n, column] += half * W[start_of_row + np.uint64(column)]


@kernel(types.void(ROWS, types.UniTuple(types.int64, 2), CSR, CSR, DOUBLES_OUT))
def self_products_sparse(W: Any, span: tuple[int, int], rows: Csr, columns: Csr, out: Any) -> None:
    """out[n] += what the rows of W within span add to p_n^T W p_n, for checked CSR rows p_n; out float64 [n].

    columns: the same matrix by columns (CSC: pointers, row numbers, values), so that each row of W is read
    once and stays in the cache for all items that need it. All rows of W in order, in however many calls,
    give the same bits.
    """
    indptr, indices, values = rows
    starts, owners, weights = columns
    for row in range(span[0], span[1]):
        for entry in range(starts[row], starts[row + 1]):
            n = owners[entry]
            dot = np.float64(0.0)
            for place in range(indptr[n], indptr[n + 1]):
                dot += np.float64(W[row, indices[place]]) * np.float64(values[place])
            out[n] += np.float64(weights[entry]) * dot


@reassociated
def _row_product(W: Any, row: int, x: Any, out: Any) -> Any:
    """Row of W times x, while x[row] times the row is added to out: one reading of the row for both."""
    total, factor = np.float32(0.0), x[row]
    for column in range(len(x)):
        total += W[row, column] * x[column]
        out[column] += factor * W[row, column]
    return total


@kernel(types.void(ROWS, FLOATS, FLOATS_OUT))
def symmetric_product(W: Any, x: Any, out: Any) -> None:
    """out = (W + W^T)/2 x in float32, reading W once; x, out float32 [d], out overwritten."""
    out[:] = 0
    along = np.empty(len(x), np.float32)
    for row in range(len(x)):
        along[row] = _row_product(W, row, x, out)
    for row in range(len(x)):
        out[row] = np.float32(0.5) * (out[row] + along[row])


@kernel(types.float64(ROWS, FLOATS))
def squared_distance_to_diagonal(W: Any, diagonal: Any) -> float:
    """||W - diag(diagonal)||_F^2 in float64, row by row."""
    total = 0.0
    for row in range(W.shape[0]):
        along = 0.0
        for column in range(W.shape[1]):
            entry = np.float64(W[row, column]) - (np.float64(diagonal[row]) if row == column else 0.0)
            along += entry * entry
        total += along
    return total
