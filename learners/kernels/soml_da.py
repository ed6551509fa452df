"""SOML-DA steps: dual averaging with L1 regularisation of a diagonal metric (Gao et al., AAAI 2014; Xiao,
JMLR 11 (2010)).

With G the sum of subgradients and t* the last violating round, equation (16) is, multiplied out,
w_j = -sign(G_j) max(0, |G_j| / (gamma sqrt(t*)) - rho - sqrt(t*) lambda / gamma): two numbers per t*, and one
read of G per entry that an event needs. Nothing loops over the dimensions. What an event needs is found one
event ahead, because it does not depend on G, and asked for while the event before is worked on.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, PASSIVE, REJECTED, UPDATED
from learners.kernels.compile import CSR, DOUBLES, DOUBLES_OUT, ROWS, STEPS_OUT, Csr, Steps, inlined, kernel
from learners.kernels.prefetch import prefetch
from learners.kernels.soml_rows import (
    accept_dense,
    accept_sparse,
    longest,
    products_dense,
    products_sparse,
    verdict,
)

from numba import types  # isort: skip

ROUNDS = types.UniTuple(types.int64, 2)
SETTINGS = types.UniTuple(types.float64, 3)


@inlined
def _line(violated: Any, settings: Any) -> tuple[float, float]:
    """(slope, threshold) of |w_j| = max(0, slope |G_j| - threshold) after round t*; w = 0 before it."""
    gamma, rho, lam = settings
    if violated == 0:
        return 0.0, 0.0
    root = np.sqrt(np.float64(violated))
    return 1.0 / (gamma * root), rho + root * lam / gamma


@inlined
def _weight(total: float, line: Any) -> Any:
    """w_j of G_j."""
    slope, threshold = line
    size = max(0.0, slope * abs(total) - threshold)
    return -size if total > 0 else size


@inlined
def _margin(G: Any, line: Any, columns: Any, values: Any, start: Any, count: Any) -> float:
    """w^T g."""
    margin = 0.0
    for place in range(start, start + count):
        margin += _weight(G[columns[place]], line) * values[place]
    return margin


@inlined
def _add(G: Any, weight: float, columns: Any, values: Any, start: Any, count: Any) -> None:
    """G <- G - weight g."""
    for place in range(start, start + count):
        G[columns[place]] -= weight * values[place]


@inlined
def _ask(G: Any, columns: Any, start: Any, count: Any) -> None:
    for place in range(start, start + count):
        prefetch(G, np.uint64(columns[place]))


@inlined
def _take(G: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any) -> Any:
    """One accepted event: margin, outcome and, where it violates, G; the rounds after it."""
    outcome, loss, tau, _ = steps
    columns, values, start, count = here
    margin = _margin(G, _line(rounds[1], settings), columns, values, start, count)
    outcome[row], loss[row] = verdict(margin, weight)
    tau[row] = 0
    if outcome[row] == UPDATED:
        _add(G, weight, columns, values, start, count)
        tau[row] = weight
        return rounds[0] + 1, rounds[0] + 1
    counts = outcome[row] == PASSIVE and weight > 0
    return rounds[0] + np.int64(counts), rounds[1]


@kernel(ROUNDS(DOUBLES_OUT, ROUNDS, SETTINGS, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
def da_sparse(
    G: Any, rounds: Any, settings: Any, query: Csr, clicked: Csr, skipped: Csr, weights: Any, steps: Steps
) -> Any:
    """Apply triplets of CSR rows in order; the rounds after them.

    G: float64 [d], overwritten. rounds: (t, t*). settings: (gamma, rho, lambda). weights: float64 [n],
    scales the subgradient, or empty. steps: written per event. What is rejected, degenerate or of weight 0 is
    no round.
    """
    outcome, loss, tau, reason = steps
    room = np.uint64(longest(query) + 1)
    columns, values = np.empty(2 * room, np.uint32), np.empty(2 * room, np.float64)
    met = np.empty(room, np.float32), np.empty(room, np.float32)
    count = next_count = np.uint64(0)
    weight = next_weight = 1.0
    for t in range(-1, len(reason)):
        start, next_start = np.uint64(t & 1) * room, np.uint64((t + 1) & 1) * room
        count, weight, next_count = next_count, next_weight, np.uint64(0)
        if t + 1 < len(reason):
            reason[t + 1], next_weight = accept_sparse(len(G), query, clicked, skipped, weights, t + 1)
            if reason[t + 1] == NONE:
                next_count = products_sparse(query, clicked, skipped, t + 1, met, columns, values, next_start)
                _ask(G, columns, next_start, next_count)
        if t < 0:
            continue
        if reason[t] == NONE:
            here = (columns, values, start, count)
            rounds = _take(G, rounds, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return rounds


@kernel(ROUNDS(DOUBLES_OUT, ROUNDS, SETTINGS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
def da_dense(
    G: Any, rounds: Any, settings: Any, query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps
) -> Any:
    """As `da_sparse`, of dense rows."""
    outcome, loss, tau, reason = steps
    columns, values = np.empty(len(G) + 1, np.uint32), np.empty(len(G) + 1, np.float64)
    start = np.uint64(0)
    for t in range(len(reason)):
        reason[t], weight = accept_dense(query, clicked, skipped, weights, t)
        if reason[t] == NONE:
            count = products_dense(query, clicked, skipped, t, columns, values, start)
            rounds = _take(G, rounds, settings, weight, steps, t, (columns, values, start, count))
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return rounds


@kernel(types.void(DOUBLES, types.int64, SETTINGS, DOUBLES_OUT))
def da_weights(G: Any, violated: int, settings: Any, out: Any) -> None:
    """out = w of (G, t*), float64 [d], by the arithmetic of the steps."""
    line = _line(violated, settings)
    for column in range(len(G)):
        out[column] = _weight(G[column], line)
