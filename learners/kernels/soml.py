"""Steps on a diagonal metric: SOML by dual averaging or truncated gradient (Gao et al., AAAI 2014), the
passive-aggressive one of OASIS restricted to a diagonal, and the event loops that they share.

An event is g = q (.) (c - s), the few entries that a diagonal metric sees: only columns held by the query and
by c or s matter. On CSR rows the three sorted index lists are intersected without branches, since no
processor can predict them: one comparison moves one or both ends forward. Nothing loops over the dimensions.
What an event needs is found one event ahead, because it does not depend on the state, and asked of memory
while the event before is worked on.

DA (Xiao, JMLR 11 (2010)): with G the sum of subgradients and t* the last violating round, equation (16) is,
multiplied out, w_j = -sign(G_j) max(0, |G_j| / (gamma sqrt(t*)) - rho - sqrt(t*) lambda / gamma): two numbers
per t*, and one read of G per entry that an event needs.

TG (Langford, Li, Zhang, JMLR 10 (2009)): on a violating round every coordinate shrinks towards 0 by eta
lambda. It is not done: a coordinate remembers after how many violating rounds it was last written, and is
shrunk by all it has missed when it is next read. T_1(T_1(v, a), b) = T_1(v, a + b), so nothing is lost.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    DEGENERATE,
    MAX_MAGNITUDE,
    NONE,
    PASSIVE,
    UPDATED,
    rejected,
    scan_triplet_dense,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
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
from learners.kernels.intrinsics import prefetch

DUAL_AVERAGING, TRUNCATED_GRADIENT, PASSIVE_AGGRESSIVE = 0, 1, 2
"""The rules that `state`, `rounds` and `settings` belong to:

DUAL_AVERAGING: (G float64 [d], int64 [0]); (t, t*); (gamma, rho, lambda).
TRUNCATED_GRADIENT: (w float64 [d], int64 [d]: the violating rounds that w_j has seen); (violating rounds, 0);
(eta, lambda, 0).
PASSIVE_AGGRESSIVE: (w float64 [d], int64 [0]); (updates, 0); (C, 0, 0).
"""

STATE = types.Tuple((DOUBLES, POINTERS))
STATE_OUT = types.Tuple((DOUBLES_OUT, POINTERS_OUT))
ROUNDS = types.UniTuple(types.int64, 2)
SETTINGS = types.UniTuple(types.float64, 3)

LARGEST = np.float32(MAX_MAGNITUDE)
"""The largest float32 that is accepted."""


@inlined
def _sound(dim: int, rows: Csr, row: int) -> bool:
    """Whether `scan_sparse` finds no fault; without branches, so that many entries are read at once."""
    indptr, indices, values = rows
    one, first, last = np.uint64(1), np.uint64(indptr[row]), np.uint64(indptr[row + 1])
    if first == last:
        return True
    faults = np.int32(indices[first] < 0) | np.int32(indices[last - one] >= dim)
    for place in range(first + one, last):
        faults |= np.int32(indices[place] <= indices[place - one])
    for place in range(first, last):
        faults |= np.int32(not (abs(values[place]) <= LARGEST))
    return bool(faults == 0)


@inlined
def _scan_sparse(dim: int, query: Csr, clicked: Csr, skipped: Csr, row: int) -> Any:
    """The first reason to refuse a triplet of CSR rows, or NONE."""
    if _sound(dim, query, row) and _sound(dim, clicked, row) and _sound(dim, skipped, row):
        return NONE
    reason, _ = scan_triplet_sparse(dim, query, clicked, skipped, row)
    return reason


@inlined
def _meet(query: Csr, other: Csr, row: int, found: Any) -> None:
    """found[i] = the value of `other` at the column of entry i of the query, 0 where it holds none."""
    q_ptr, q_ind, _ = query
    o_ptr, o_ind, o_val = other
    base = np.uint64(q_ptr[row])
    i, i_end = base, np.uint64(q_ptr[row + 1])
    j, j_end = np.uint64(o_ptr[row]), np.uint64(o_ptr[row + 1])
    while i < i_end and j < j_end:
        mine, theirs = q_ind[i], o_ind[j]
        found[i - base] = o_val[j] if mine == theirs else np.float32(0.0)
        i += np.uint64(mine <= theirs)
        j += np.uint64(theirs <= mine)
    while i < i_end:
        found[i - base] = np.float32(0.0)
        i += np.uint64(1)


@inlined
def _products_sparse(
    query: Csr, clicked: Csr, skipped: Csr, row: int, met: Any, columns: Any, values: Any, start: Any
) -> Any:
    """Write the non-zero entries of g = q (.) (c - s) of an accepted row from `start`; how many there are.

    met: float32 scratch, two rows as long as any query. columns: uint32; values: float64, g without rounding
    c - s or the product to float32.
    """
    in_clicked, in_skipped = met
    _meet(query, clicked, row, in_clicked)
    _meet(query, skipped, row, in_skipped)
    q_ptr, q_ind, q_val = query
    base, length, place = np.uint64(q_ptr[row]), np.uint64(q_ptr[row + 1] - q_ptr[row]), start
    for i in range(length):
        error = np.float64(in_clicked[i]) - np.float64(in_skipped[i])
        product = np.float64(q_val[base + i]) * error
        columns[place] = np.uint32(q_ind[base + i])
        values[place] = product
        place += np.uint64(product != 0)
    return place - start


@inlined
def _products_dense(
    query: Any, clicked: Any, skipped: Any, row: int, columns: Any, values: Any, start: Any
) -> Any:
    """As `_products_sparse`, of dense rows."""
    place = start
    for column in range(query.shape[1]):
        error = np.float64(clicked[row, column]) - np.float64(skipped[row, column])
        product = np.float64(query[row, column]) * error
        columns[place] = np.uint32(column)
        values[place] = product
        place += np.uint64(product != 0)
    return place - start


@inlined
def _longest(rows: Csr) -> int:
    """The entries of the longest row."""
    indptr = rows[0]
    most = 0
    for row in range(len(indptr) - 1):
        most = max(most, indptr[row + 1] - indptr[row])
    return most


@inlined
def _verdict(margin: float, weight: float) -> tuple[int, Any]:
    """(outcome, loss float32) of an accepted event: updated is a violating round, one of loss above 0."""
    loss = max(0.0, 1.0 - margin)
    rounded = np.float32(loss)
    if not np.isfinite(margin) or not np.isfinite(rounded):
        return DEGENERATE, np.float32(0.0)
    if loss == 0.0 or weight == 0.0:
        return PASSIVE, rounded
    return UPDATED, rounded


@inlined
def _line(violated: Any, settings: Any) -> tuple[float, float]:
    """DA: (slope, threshold) of |w_j| = max(0, slope |G_j| - threshold) after round t*; w = 0 before it."""
    gamma, rho, lam = settings
    if violated == 0:
        return 0.0, 0.0
    root = np.sqrt(np.float64(violated))
    return 1.0 / (gamma * root), rho + root * lam / gamma


@inlined
def _averaged(total: float, line: Any) -> Any:
    """DA: w_j of G_j."""
    slope, threshold = line
    size = max(0.0, slope * abs(total) - threshold)
    return -size if total > 0 else size


@inlined
def _shrunk(state: Any, column: Any, violations: int, alpha: float) -> Any:
    """TG: w_j after so many violating rounds, alpha = eta lambda each."""
    w, seen = state
    size = abs(w[column]) - np.float64(violations - seen[column]) * alpha
    return np.copysign(max(0.0, size), w[column])


@inlined
def _average(state: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any) -> Any:
    """DA: one accepted event, its outcome and, where it violates, G <- G - weight g; the rounds after it."""
    outcome, loss, tau, _ = steps
    columns, values, start, count = here
    G, line, margin = state[0], _line(rounds[1], settings), 0.0
    for place in range(start, start + count):
        margin += _averaged(G[columns[place]], line) * values[place]
    outcome[row], loss[row] = _verdict(margin, weight)
    tau[row] = 0
    if outcome[row] == UPDATED:
        for place in range(start, start + count):
            G[columns[place]] -= weight * values[place]
        tau[row] = weight
        return rounds[0] + 1, rounds[0] + 1
    counts = outcome[row] == PASSIVE and weight > 0
    return rounds[0] + np.int64(counts), rounds[1]


@inlined
def _truncate(
    state: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any
) -> Any:
    """TG: one accepted event, its outcome and, where it violates, w; the violating rounds after it."""
    outcome, loss, tau, _ = steps
    w, seen = state
    columns, values, start, count = here
    violations, eta, alpha = rounds[0], settings[0], settings[0] * settings[1]
    margin = 0.0
    for place in range(start, start + count):
        margin += _shrunk(state, columns[place], violations, alpha) * values[place]
    outcome[row], loss[row] = _verdict(margin, weight)
    tau[row] = 0
    if outcome[row] != UPDATED:
        return violations, rounds[1]
    tau[row] = eta * weight
    for place in range(start, start + count):
        column = columns[place]
        w[column] = _shrunk(state, column, violations, alpha) + eta * weight * values[place]
        seen[column] = violations
    return violations + 1, rounds[1]


@inlined
def _aggress(state: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any) -> Any:
    """PA: one accepted event, its outcome and, where it violates, w <- w + tau g; the updates after it."""
    outcome, loss, tau, _ = steps
    columns, values, start, count = here
    w, margin, squared = state[0], 0.0, 0.0
    for place in range(start, start + count):
        margin += w[columns[place]] * values[place]
        squared += values[place] * values[place]
    outcome[row], loss[row], tau[row] = step_size(margin, squared, settings[0] * weight)
    if outcome[row] != UPDATED:
        return rounds
    size = np.float64(tau[row])
    for place in range(start, start + count):
        w[columns[place]] += size * values[place]
    return rounds[0] + 1, rounds[1]


@inlined
def _take(
    rule: int, state: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any
) -> Any:
    """One accepted event by the rule; the rounds after it."""
    if rule == DUAL_AVERAGING:
        return _average(state, rounds, settings, weight, steps, row, here)
    if rule == PASSIVE_AGGRESSIVE:
        return _aggress(state, rounds, settings, weight, steps, row, here)
    return _truncate(state, rounds, settings, weight, steps, row, here)


@inlined
def _ask(state: Any, columns: Any, start: Any, count: Any) -> None:
    """Ask for what an event will read."""
    values, seen = state
    for place in range(start, start + count):
        prefetch(values, np.uint64(columns[place]))
    if len(seen) > 0:
        for place in range(start, start + count):
            prefetch(seen, np.uint64(columns[place]))


@kernel(ROUNDS(types.int64, STATE_OUT, ROUNDS, SETTINGS, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
def soml_sparse(
    rule: int, state: Any, rounds: Any, settings: Any,
    query: Csr, clicked: Csr, skipped: Csr, weights: Any, steps: Steps,
) -> Any:  # fmt: skip
    """Apply triplets of CSR rows in order; the rounds after them.

    rule: see above, as are state, overwritten, rounds and settings. weights: float64 [n], scales the
    subgradient, or C, or empty. steps: written per event. What is rejected, degenerate or of weight 0 is no
    round.
    """
    reason, dim = steps[3], len(state[0])
    room = np.uint64(_longest(query) + 1)
    columns, values = np.empty(2 * room, np.uint32), np.empty(2 * room, np.float64)
    met = np.empty(room, np.float32), np.empty(room, np.float32)
    count = next_count = np.uint64(0)
    weight = next_weight = 1.0
    for t in range(-1, len(reason)):
        start, next_start = np.uint64(t & 1) * room, np.uint64((t + 1) & 1) * room
        count, weight, next_count = next_count, next_weight, np.uint64(0)
        if t + 1 < len(reason):
            reason[t + 1] = _scan_sparse(dim, query, clicked, skipped, t + 1)
            fault, next_weight = scan_weight(weights, t + 1)
            if not rejected(fault, t + 1, steps):
                next_count = _products_sparse(
                    query, clicked, skipped, t + 1, met, columns, values, next_start
                )
                _ask(state, columns, next_start, next_count)
        if t >= 0 and reason[t] == NONE:
            here = (columns, values, start, count)
            rounds = _take(rule, state, rounds, settings, weight, steps, t, here)
    return rounds


@kernel(ROUNDS(types.int64, STATE_OUT, ROUNDS, SETTINGS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
def soml_dense(
    rule: int, state: Any, rounds: Any, settings: Any,
    query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps,
) -> Any:  # fmt: skip
    """As `soml_sparse`, of dense rows."""
    reason, dim = steps[3], query.shape[1]
    columns, values = np.empty(dim + 1, np.uint32), np.empty(dim + 1, np.float64)
    start = np.uint64(0)
    for t in range(len(reason)):
        reason[t], _ = scan_triplet_dense(query, clicked, skipped, t)
        fault, weight = scan_weight(weights, t)
        if not rejected(fault, t, steps):
            here = columns, values, start, _products_dense(query, clicked, skipped, t, columns, values, start)
            rounds = _take(rule, state, rounds, settings, weight, steps, t, here)
    return rounds


@kernel(types.void(types.int64, STATE, ROUNDS, SETTINGS, DOUBLES_OUT))
def soml_weights(rule: int, state: Any, rounds: Any, settings: Any, out: Any) -> None:
    """out = w, float64 [d], by the arithmetic of the steps."""
    line, alpha = _line(rounds[1], settings), settings[0] * settings[1]
    for column in range(len(out)):
        if rule == DUAL_AVERAGING:
            out[column] = _averaged(state[0][column], line)
        elif rule == PASSIVE_AGGRESSIVE:
            out[column] = state[0][column]
        else:
            out[column] = _shrunk(state, column, rounds[0], alpha)
