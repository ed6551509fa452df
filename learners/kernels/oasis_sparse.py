"""OASIS steps on CSR rows, one event after another (Chechik et al., JMLR 11 (2010), section 2).

W <- W + tau q (c - s)^T touches |q|_0 x |c - s|_0 entries of W. At 70 non-zeros per vector in 10,000
dimensions each is a cache miss, so the kernel is bound by memory, not arithmetic: while row i of the query is
read, the columns of the row after next are prefetched, running over into the next event, whose c - s is
therefore merged one event ahead (it does not depend on W). Two rows ahead measured best; the accumulators are
four to keep four loads in flight. Six rows ahead one line per page is asked for: a row of W spans ten pages,
finding a page's address costs several memory accesses of its own (more in a virtual machine, whose huge pages
may lie on small ones), and those walks then run beside the loads: 25,500 -> 30,000 steps/s.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, REJECTED, UPDATED, scan_sparse, scan_weight, step_size
from learners.kernels.compile import CSR, DOUBLES, FLOATS_OUT, STEPS_OUT, Csr, Steps, inlined, kernel
from learners.kernels.sparse_rows import add, add_symmetric, difference, margin_ahead

from numba import types  # isort: skip


@inlined
def _accept(
    dim: int, query: Csr, clicked: Csr, skipped: Csr, weights: Any, row: int
) -> tuple[int, float, float]:
    """(reason, ||q||^2, weight) of one triplet."""
    reason, squares = scan_sparse(dim, query, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, clicked, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, skipped, row)
    fault, weight = scan_weight(weights, row)
    return (fault if reason == NONE else reason), squares, weight


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
            fault, q_squared, next_weight = _accept(dim, query, clicked, skipped, weights, t + 1)
            reason[t + 1] = fault
            if fault == NONE:
                entries, e_squared = difference(
                    clicked, skipped, t + 1, columns, values, np.int64(next_start)
                )
                next_count, next_squared = np.uint64(entries), q_squared * e_squared
        if t < 0:
            continue
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        accepted += 1
        here = (columns, values, start, count)
        margin = margin_ahead(W, stride, query, t, here, (next_start, next_count))
        outcome[t], loss[t], tau[t] = step_size(margin, squared, C * weight)
        if outcome[t] == UPDATED and symmetric:
            add_symmetric(W, stride, tau[t], query, t, here)
        elif outcome[t] == UPDATED:
            add(W, stride, tau[t], query, t, here)
    return rows, accepted
