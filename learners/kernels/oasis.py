"""OASIS steps and their replay on CSR rows (Chechik et al., JMLR 11 (2010), section 2); on dense ones:
`learners.kernels.delayed`.

A step touches |q|_0 x |c - s|_0 entries of W. At 70 non-zeros per vector in 10,000 dimensions each is a
cache miss, so the kernel is bound by memory, not arithmetic: while row i of the query is read, the columns of
the row after next are prefetched, running over into the next event, whose c - s is therefore merged one event
ahead (it does not depend on W). Two rows ahead measured best; the accumulators are four to keep four loads in
flight. Six rows ahead one line per page is asked for: a row of W spans ten pages, finding a page's address
costs several memory accesses of its own (more in a virtual machine, whose huge pages may lie on small ones),
and those walks then run beside the loads: 25,500 -> 30,000 steps/s.

A replay adds bit for bit what the step added. It computes no margin, so it reads and writes each touched
entry of W once, and prefetches as the step does.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    MAX_DIFFERENCE,
    NONE,
    UPDATED,
    rejected,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
from learners.kernels.compile import (
    CSR,
    DOUBLES,
    FLOATS,
    FLOATS_OUT,
    INDICES_OUT,
    POINTERS,
    POINTERS_OUT,
    STEPS_OUT,
    Csr,
    Steps,
    inlined,
    kernel,
)
from learners.kernels.matrix_rows import (
    add_row,
    add_sparse,
    add_symmetric_sparse,
    difference,
    margin_ahead,
    prefetch_ahead,
)

CSR_OUT = types.Tuple((POINTERS_OUT, INDICES_OUT, FLOATS_OUT))


@inlined
def _longest(clicked: Csr, skipped: Csr) -> int:
    """Room for c - s of any row."""
    longest = 0
    c, s = clicked[0], skipped[0]
    for row in range(len(c) - 1):
        longest = max(longest, c[row + 1] - c[row] + s[row + 1] - s[row])
    return longest


@kernel(
    types.UniTuple(types.int64, 2)(
        FLOATS_OUT, types.int64, types.float64, types.boolean, types.int64, CSR, CSR, CSR, DOUBLES, STEPS_OUT
    )
)
def step_sparse(
    W: Any, dim: int, C: float, symmetric: bool, budget: int,
    query: Csr, clicked: Csr, skipped: Csr, weights: Any, steps: Steps,
) -> tuple[int, int]:  # fmt: skip
    """Apply triplets in order until `budget` of them were accepted; (rows consumed, rows accepted).

    W: float32 [dim * dim], row-major, overwritten. C: aggressiveness. symmetric: add (V + V^T)/2 instead of
    V. query, clicked, skipped: CSR rows; their pointers must be sound, all else is checked here. weights:
    float64 [n], scales C, or empty. steps: written per event. A rejected or degenerate event leaves W as it
    is. Precision: rows of W times (c - s) in float32; their sum weighted by q, and both norms, in float64.
    """
    outcome, loss, tau, reason = steps
    rows, stride, room = len(query[0]) - 1, np.uint64(dim), _longest(clicked, skipped)
    columns, values = np.empty(2 * room, np.uint32), np.empty(2 * room, np.float32)
    accepted = 0
    count = next_count = np.uint64(0)
    squared, next_squared, weight, next_weight = 0.0, 0.0, 1.0, 1.0
    for t in range(-1, rows):
        if accepted == budget:
            return t, accepted
        start, next_start = np.uint64((t & 1) * room), np.uint64(((t + 1) & 1) * room)
        count, squared, weight, next_count = next_count, next_squared, next_weight, np.uint64(0)
        if t + 1 < rows:
            reason[t + 1], q_squared = scan_triplet_sparse(dim, query, clicked, skipped, t + 1)
            fault, next_weight = scan_weight(weights, t + 1)
            if not rejected(fault, t + 1, steps):
                entries, e_squared = difference(
                    clicked, skipped, t + 1, columns, values, np.int64(next_start)
                )
                next_count, next_squared = np.uint64(entries), q_squared * e_squared
        if t < 0 or reason[t] != NONE:
            continue
        accepted += 1
        here = (columns, values, start, count)
        margin = margin_ahead(W, stride, query, t, here, (next_start, next_count))
        outcome[t], loss[t], tau[t] = step_size(margin, squared, C * weight)
        if outcome[t] == UPDATED and symmetric:
            add_symmetric_sparse(W, stride, tau[t], query, t, here)
        elif outcome[t] == UPDATED:
            add_sparse(W, stride, tau[t], query, t, here)
    return rows, accepted


@inlined
def sound_difference(dim: int, rows: Csr, row: int) -> bool:
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
        if not (sound_difference(dim, query, t) and sound_difference(dim, error, t) and np.isfinite(tau[t])):
            return t
        here = (e_ind, e_val, np.uint64(e_ptr[t]), np.uint64(e_ptr[t + 1] - e_ptr[t]))
        if symmetric:
            add_symmetric_sparse(W, np.uint64(dim), tau[t], query, t, here)
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
