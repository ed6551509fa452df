"""SOML-TG steps: truncated gradient on a diagonal metric (Gao et al., AAAI 2014; Langford, Li, Zhang, JMLR 10
(2009)).

On a violating round every coordinate shrinks towards 0 by eta lambda. It is not done: a coordinate remembers
after how many violating rounds it was last written, and is shrunk by all it has missed when it is next read.
T_1(T_1(v, a), b) = T_1(v, a + b), so nothing is lost, and a step costs what its event needs.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, REJECTED, UPDATED
from learners.kernels.compile import (
    CSR,
    DOUBLES,
    DOUBLES_OUT,
    POINTERS,
    POINTERS_OUT,
    ROWS,
    STEPS_OUT,
    Csr,
    Steps,
    inlined,
    kernel,
)
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

SETTINGS = types.UniTuple(types.float64, 2)
STATE_OUT = types.Tuple((DOUBLES_OUT, POINTERS_OUT))


@inlined
def _weight(state: Any, column: Any, violations: int, alpha: float) -> Any:
    """w_j after so many violating rounds, alpha = eta lambda each."""
    w, shrunk = state
    size = abs(w[column]) - np.float64(violations - shrunk[column]) * alpha
    return np.copysign(max(0.0, size), w[column])


@inlined
def _ask(state: Any, columns: Any, start: Any, count: Any) -> None:
    w, shrunk = state
    for place in range(start, start + count):
        prefetch(w, np.uint64(columns[place]))
        prefetch(shrunk, np.uint64(columns[place]))


@inlined
def _take(
    state: Any, violations: int, settings: Any, weight: float, steps: Steps, row: int, here: Any
) -> int:
    """One accepted event: margin, outcome and, where it violates, w; the violating rounds after it."""
    outcome, loss, tau, _ = steps
    w, shrunk = state
    columns, values, start, count = here
    eta, alpha = settings[0], settings[0] * settings[1]
    margin = 0.0
    for place in range(start, start + count):
        margin += _weight(state, columns[place], violations, alpha) * values[place]
    outcome[row], loss[row] = verdict(margin, weight)
    tau[row] = 0
    if outcome[row] != UPDATED:
        return violations
    tau[row] = eta * weight
    for place in range(start, start + count):
        column = columns[place]
        w[column] = _weight(state, column, violations, alpha) + eta * weight * values[place]
        shrunk[column] = violations
    return violations + 1


@kernel(types.int64(STATE_OUT, types.int64, SETTINGS, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
def tg_sparse(
    state: Any, violations: int, settings: Any,
    query: Csr, clicked: Csr, skipped: Csr, weights: Any, steps: Steps,
) -> int:  # fmt: skip
    """Apply triplets of CSR rows in order; the number of violating rounds after them.

    state: (w float64 [d], shrunk int64 [d]: the violating rounds that w_j has seen), overwritten. settings:
    (eta, lambda). weights: float64 [n], scales the gradient, or empty. steps: written per event.
    """
    outcome, loss, tau, reason = steps
    room, dim = np.uint64(longest(query) + 1), len(state[0])
    columns, values = np.empty(2 * room, np.uint32), np.empty(2 * room, np.float64)
    met = np.empty(room, np.float32), np.empty(room, np.float32)
    count = next_count = np.uint64(0)
    weight = next_weight = 1.0
    for t in range(-1, len(reason)):
        start, next_start = np.uint64(t & 1) * room, np.uint64((t + 1) & 1) * room
        count, weight, next_count = next_count, next_weight, np.uint64(0)
        if t + 1 < len(reason):
            reason[t + 1], next_weight = accept_sparse(dim, query, clicked, skipped, weights, t + 1)
            if reason[t + 1] == NONE:
                next_count = products_sparse(query, clicked, skipped, t + 1, met, columns, values, next_start)
                _ask(state, columns, next_start, next_count)
        if t < 0:
            continue
        if reason[t] == NONE:
            here = (columns, values, start, count)
            violations = _take(state, violations, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return violations


@kernel(types.int64(STATE_OUT, types.int64, SETTINGS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
def tg_dense(
    state: Any, violations: int, settings: Any,
    query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps,
) -> int:  # fmt: skip
    """As `tg_sparse`, of dense rows."""
    outcome, loss, tau, reason = steps
    room = query.shape[1] + 1
    columns, values = np.empty(room, np.uint32), np.empty(room, np.float64)
    start = np.uint64(0)
    for t in range(len(reason)):
        reason[t], weight = accept_dense(query, clicked, skipped, weights, t)
        if reason[t] == NONE:
            count = products_dense(query, clicked, skipped, t, columns, values, start)
            here = (columns, values, start, count)
            violations = _take(state, violations, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return violations


@kernel(types.void(DOUBLES, POINTERS, types.int64, SETTINGS, DOUBLES_OUT))
def tg_weights(w: Any, shrunk: Any, violations: int, settings: Any, out: Any) -> None:
    """out = w after all shrinking, float64 [d], by the arithmetic of the steps."""
    alpha = settings[0] * settings[1]
    for column in range(len(w)):
        out[column] = _weight((w, shrunk), column, violations, alpha)
