"""OASIS steps on CSR rows taken again: W <- W + tau V(q, e), bit for bit what `oasis_sparse` added.

No margin is computed, so a replay reads and writes each touched entry of W once. It is bound by memory as the
step is, and asks for rows and pages ahead in the same way.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import MAX_DIFFERENCE
from learners.kernels.compile import (
    CSR,
    FLOATS,
    FLOATS_OUT,
    INDICES_OUT,
    POINTERS,
    POINTERS_OUT,
    Csr,
    inlined,
    kernel,
)
from learners.kernels.sparse_rows import add_row, add_symmetric, difference, prefetch_ahead

from numba import types  # isort: skip

CSR_OUT = types.Tuple((POINTERS_OUT, INDICES_OUT, FLOATS_OUT))


@inlined
def _sound(dim: int, rows: Csr, row: int) -> bool:
    """Whether a row has indices that stay inside W, and numbers that a difference of vectors may have."""
    previous = np.int64(-1)
    indptr, indices, values = rows
    for place in range(indptr[row], indptr[row + 1]):
        index = np.int64(indices[place])
        if index <= previous or index >= dim or not abs(values[place]) <= MAX_DIFFERENCE:
            return False
        previous = index
    return True


@inlined
def _add(W: Any, dim: Any, tau: Any, query: Csr, error: Csr, row: int, here: Any) -> None:
    """W <- W + tau q e^T, asking for what comes next, also of the next step."""
    q_ptr, q_ind, q_val = query
    e_ptr = error[0]
    last, reach = q_ptr[row + 1], q_ptr[row + 1]
    following = (np.uint64(e_ptr[row + 1]), np.uint64(0))
    if row + 2 < len(q_ptr):
        reach = q_ptr[row + 2]
        following = (following[0], np.uint64(e_ptr[row + 2] - e_ptr[row + 1]))
    for i in range(q_ptr[row], last):
        prefetch_ahead(W, dim, q_ind, i, last, reach, here, following)
        add_row(W, np.uint64(q_ind[i]) * dim, tau * q_val[i], here)


@kernel(types.int64(FLOATS_OUT, types.int64, types.boolean, FLOATS, CSR, CSR))
def replay_sparse(W: Any, dim: int, symmetric: bool, tau: Any, query: Csr, error: Csr) -> int:
    """Take steps again in order; how many were, fewer than given where the next one is malformed.

    W: float32 [dim * dim], row-major, overwritten. symmetric: add (V + V^T)/2. tau: float32 [n]. query,
    error = c - s: CSR rows; their pointers must be sound, all else is checked here.
    """
    e_ptr, e_ind, e_val = error
    for t in range(len(tau)):
        if not (_sound(dim, query, t) and _sound(dim, error, t) and np.isfinite(tau[t])):
            return t
        here = (e_ind, e_val, np.uint64(e_ptr[t]), np.uint64(e_ptr[t + 1] - e_ptr[t]))
        if symmetric:
            add_symmetric(W, np.uint64(dim), tau[t], query, t, here)
        else:
            _add(W, np.uint64(dim), tau[t], query, error, t, here)
    return len(tau)


@kernel(types.void(POINTERS, CSR, CSR, CSR, CSR_OUT, CSR_OUT))
def take_sparse(
    rows: Any, query: Csr, clicked: Csr, skipped: Csr, taken_query: Csr, taken_error: Csr
) -> None:
    """The queries and e = c - s of some rows, as the step merged them.

    rows: int64 [n] of rows that the step accepted. taken_query, taken_error: pointers [n + 1], beginning
    with 0, and room for the entries; overwritten.
    """
    q_ptr, q_ind, q_val = query
    q_ends, q_columns, q_values = taken_query
    e_ends, e_columns, e_values = taken_error
    for k in range(len(rows)):
        place = q_ends[k]
        for i in range(q_ptr[rows[k]], q_ptr[rows[k] + 1]):
            q_columns[place], q_values[place] = q_ind[i], q_val[i]
            place += 1
        q_ends[k + 1] = place
        entries, _ = difference(clicked, skipped, rows[k], e_columns, e_values, e_ends[k])
        e_ends[k + 1] = e_ends[k] + entries
