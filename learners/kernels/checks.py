"""What makes an event unusable, checked inside the kernels before anything is indexed.

The outcome codes repeat `learners.outcome` as plain integers, which kernels can inline.

Which sparse rows every step refuses, told without a step; of dense ones: `omks_blocks.fault_dense`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import CSR, Csr, Steps, inlined, kernel
from learners.outcome import Outcome, Reason

UPDATED, PASSIVE, DEGENERATE, REJECTED = (int(outcome) for outcome in Outcome)
NONE, NOT_FINITE, OUT_OF_RANGE, NOT_INCREASING, MAGNITUDE = (int(reason) for reason in list(Reason)[:5])

MAX_MAGNITUDE = 1e18
"""Largest |value| accepted. float32 ends at 3.4e38. A product of two values is then at most 1e36, so a
float32 partial sum of a row of W times c - s stays finite for any sane W (say |W_ij| <= 1e12, 1e8 non-zeros),
and a float64 ||q||^2 ||c - s||^2, at most 4e72 times the squared number of non-zeros, never overflows. A
margin or loss that float32 cannot hold all the same makes the event degenerate."""
MAX_DIFFERENCE = np.float32(4) * np.float32(MAX_MAGNITUDE)
"""Largest |value| of 2q - c - s, of which steps are made where similarity is a distance."""


@inlined
def scan_value(value: float) -> int:
    """The reason to refuse one number, or NONE."""
    if not np.isfinite(value):
        return NOT_FINITE
    return MAGNITUDE if abs(value) > MAX_MAGNITUDE else NONE


@inlined
def scan_sparse(dim: int, rows: Csr, row: int) -> tuple[int, float]:
    """(reason, ||x||^2 in float64) of one CSR row."""
    indptr, indices, values = rows
    previous = np.int64(-1)
    squares = 0.0
    for place in range(indptr[row], indptr[row + 1]):
        index = np.int64(indices[place])
        if index < 0 or index >= dim:
            return OUT_OF_RANGE, 0.0
        if index <= previous:
            return NOT_INCREASING, 0.0
        previous = index
        value = np.float64(values[place])
        reason = scan_value(value)
        if reason != NONE:
            return reason, 0.0
        squares += value * value
    return NONE, squares


@inlined
def scan_dense(rows: Any, row: int) -> tuple[int, float]:
    """(reason, ||x||^2 in float64) of one dense row."""
    squares = 0.0
    for column in range(rows.shape[1]):
        value = np.float64(rows[row, column])
        reason = scan_value(value)
        if reason != NONE:
            return reason, 0.0
        squares += value * value
    return NONE, squares


@inlined
def scan_triplet_dense(query: Any, clicked: Any, skipped: Any, row: int) -> tuple[int, float]:
    """(the first reason to refuse a triplet of dense rows, or NONE; ||q||^2)."""
    reason, squares = scan_dense(query, row)
    if reason == NONE:
        reason, _ = scan_dense(clicked, row)
    if reason == NONE:
        reason, _ = scan_dense(skipped, row)
    return reason, squares


@inlined
def scan_triplet_sparse(dim: int, query: Csr, clicked: Csr, skipped: Csr, row: int) -> tuple[int, float]:
    """As `scan_triplet_dense`, of CSR rows."""
    reason, squares = scan_sparse(dim, query, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, clicked, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, skipped, row)
    return reason, squares


@inlined
def scan_weight(weights: Any, row: int) -> tuple[int, float]:
    """(reason, weight) of one event; no weights at all mean 1 each, a negative one is a wrong magnitude."""
    if len(weights) == 0:
        return NONE, 1.0
    weight = weights[row]
    return (MAGNITUDE if weight < 0 else scan_value(weight)), weight


@inlined
def rejected(fault: int, t: int, steps: Steps) -> bool:
    """Whether an event is refused: for what its rows were refused, else for `fault`; it is written then."""
    outcome, loss, tau, reason = steps
    if reason[t] == NONE:
        reason[t] = fault
    if reason[t] == NONE:
        return False
    outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return True


@inlined
def step_size(margin: float, squared_norm: float, aggressiveness: float) -> tuple[int, Any, Any]:
    """(outcome, loss, tau) of an accepted event: tau = min(aggressiveness, loss / ||V||^2).

    margin and squared_norm = ||V||^2 in float64; aggressiveness = C times the weight of the event. Where the
    norm is 0, or below it as that of an indefinite kernel may be, there is no direction to go. tau is rounded
    to float32 before it is applied, so that it can be stored and replayed.
    """
    zero = np.float32(0.0)
    loss = max(0.0, 1.0 - margin)
    if not np.isfinite(margin) or not np.isfinite(np.float32(loss)):
        return DEGENERATE, zero, zero
    if loss == 0.0 or aggressiveness == 0.0:
        return PASSIVE, np.float32(loss), zero
    if not squared_norm > 0.0:
        return DEGENERATE, np.float32(loss), zero
    tau = np.float32(min(aggressiveness, loss / squared_norm))
    if tau == zero or not np.isfinite(tau):
        return DEGENERATE, np.float32(loss), zero
    return UPDATED, np.float32(loss), tau


@kernel(types.void(types.int64, CSR, types.uint8[::1]))
def fault_sparse(dim: int, rows: Csr, reason: Any) -> None:
    """reason[row], where it is NONE, becomes the fault of the CSR row in `dim` columns."""
    for row in range(len(rows[0]) - 1):
        if reason[row] == NONE:
            reason[row], _ = scan_sparse(dim, rows, row)
