"""What SOML steps read of an event: g = q (.) (c - s), the few entries that a diagonal metric sees.

Only columns held by the query and by c or s matter. The three sorted index lists are intersected without
branches, since no processor can predict them: one comparison moves one or both ends forward.

SOML-DA steps: dual averaging with L1 regularisation of a diagonal metric (Gao et al., AAAI 2014; Xiao,
JMLR 11 (2010)).

With G the sum of subgradients and t* the last violating round, equation (16) is, multiplied out,
w_j = -sign(G_j) max(0, |G_j| / (gamma sqrt(t*)) - rho - sqrt(t*) lambda / gamma): two numbers per t*, and one
read of G per entry that an event needs. Nothing loops over the dimensions. What an event needs is found one
event ahead, because it does not depend on G, and asked for while the event before is worked on.

SOML-TG steps: truncated gradient on a diagonal metric (Gao et al., AAAI 2014; Langford, Li, Zhang, JMLR 10
(2009)).

On a violating round every coordinate shrinks towards 0 by eta lambda. It is not done: a coordinate remembers
after how many violating rounds it was last written, and is shrunk by all it has missed when it is next read.
T_1(T_1(v, a), b) = T_1(v, a + b), so nothing is lost, and a step costs what its event needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import (
    DEGENERATE,
    MAX_MAGNITUDE,
    NONE,
    PASSIVE,
    REJECTED,
    UPDATED,
    scan_dense,
    scan_sparse,
    scan_weight,
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

from numba import types  # isort: skip


# ruff: noqa: PLR0917  (kernels take plain arrays)


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
def accept_sparse(
    dim: int, query: Csr, clicked: Csr, skipped: Csr, weights: Any, row: int
) -> tuple[int, float]:
    """(reason, weight) of one triplet of CSR rows."""
    fault, weight = scan_weight(weights, row)
    if _sound(dim, query, row) and _sound(dim, clicked, row) and _sound(dim, skipped, row):
        return fault, weight
    reason, _ = scan_sparse(dim, query, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, clicked, row)
    if reason == NONE:
        reason, _ = scan_sparse(dim, skipped, row)
    return reason, weight


@inlined
def accept_dense(query: Any, clicked: Any, skipped: Any, weights: Any, row: int) -> tuple[int, float]:
    """(reason, weight) of one triplet of dense rows."""
    reason, _ = scan_dense(query, row)
    if reason == NONE:
        reason, _ = scan_dense(clicked, row)
    if reason == NONE:
        reason, _ = scan_dense(skipped, row)
    fault, weight = scan_weight(weights, row)
    return (fault if reason == NONE else reason), weight


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
def products_sparse(
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
def products_dense(
    query: Any, clicked: Any, skipped: Any, row: int, columns: Any, values: Any, start: Any
) -> Any:
    """As `products_sparse`, of dense rows."""
    place = start
    for column in range(query.shape[1]):
        error = np.float64(clicked[row, column]) - np.float64(skipped[row, column])
        product = np.float64(query[row, column]) * error
        columns[place] = np.uint32(column)
        values[place] = product
        place += np.uint64(product != 0)
    return place - start


@inlined
def longest(rows: Csr) -> int:
    """The entries of the longest row."""
    indptr = rows[0]
    most = 0
    for row in range(len(indptr) - 1):
        most = max(most, indptr[row + 1] - indptr[row])
    return most


@inlined
def verdict(margin: float, weight: float) -> tuple[int, Any]:
    """(outcome, loss float32) of an accepted event: updated is a violating round, one of loss above 0."""
    loss = max(0.0, 1.0 - margin)
    rounded = np.float32(loss)
    if not np.isfinite(margin) or not np.isfinite(rounded):
        return DEGENERATE, np.float32(0.0)
    if loss == 0.0 or weight == 0.0:
        return PASSIVE, rounded
    return UPDATED, rounded


# ruff: noqa: PLR0917  (kernels take plain arrays)


ROUNDS = types.UniTuple(types.int64, 2)
DA_SETTINGS = types.UniTuple(types.float64, 3)


@inlined
def _line(violated: Any, settings: Any) -> tuple[float, float]:
    """(slope, threshold) of |w_j| = max(0, slope |G_j| - threshold) after round t*; w = 0 before it."""
    gamma, rho, lam = settings
    if violated == 0:
        return 0.0, 0.0
    root = np.sqrt(np.float64(violated))
    return 1.0 / (gamma * root), rho + root * lam / gamma


@inlined
def _weight_da(total: float, line: Any) -> Any:
    """w_j of G_j."""
    slope, threshold = line
    size = max(0.0, slope * abs(total) - threshold)
    return -size if total > 0 else size


@inlined
def _margin(G: Any, line: Any, columns: Any, values: Any, start: Any, count: Any) -> float:
    """w^T g."""
    margin = 0.0
    for place in range(start, start + count):
        margin += _weight_da(G[columns[place]], line) * values[place]
    return margin


@inlined
def _add(G: Any, weight: float, columns: Any, values: Any, start: Any, count: Any) -> None:
    """G <- G - weight g."""
    for place in range(start, start + count):
        G[columns[place]] -= weight * values[place]


@inlined
def _ask_da(G: Any, columns: Any, start: Any, count: Any) -> None:
    for place in range(start, start + count):
        prefetch(G, np.uint64(columns[place]))


@inlined
def _take_da(G: Any, rounds: Any, settings: Any, weight: float, steps: Steps, row: int, here: Any) -> Any:
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


@kernel(ROUNDS(DOUBLES_OUT, ROUNDS, DA_SETTINGS, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
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
                _ask_da(G, columns, next_start, next_count)
        if t < 0:
            continue
        if reason[t] == NONE:
            here = (columns, values, start, count)
            rounds = _take_da(G, rounds, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return rounds


@kernel(ROUNDS(DOUBLES_OUT, ROUNDS, DA_SETTINGS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
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
            rounds = _take_da(G, rounds, settings, weight, steps, t, (columns, values, start, count))
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return rounds


@kernel(types.void(DOUBLES, types.int64, DA_SETTINGS, DOUBLES_OUT))
def da_weights(G: Any, violated: int, settings: Any, out: Any) -> None:
    """out = w of (G, t*), float64 [d], by the arithmetic of the steps."""
    line = _line(violated, settings)
    for column in range(len(G)):
        out[column] = _weight_da(G[column], line)


# ruff: noqa: PLR0917  (kernels take plain arrays)


TG_SETTINGS = types.UniTuple(types.float64, 2)
STATE_OUT = types.Tuple((DOUBLES_OUT, POINTERS_OUT))


@inlined
def _weight_tg(state: Any, column: Any, violations: int, alpha: float) -> Any:
    """w_j after so many violating rounds, alpha = eta lambda each."""
    w, shrunk = state
    size = abs(w[column]) - np.float64(violations - shrunk[column]) * alpha
    return np.copysign(max(0.0, size), w[column])


@inlined
def _ask_tg(state: Any, columns: Any, start: Any, count: Any) -> None:
    w, shrunk = state
    for place in range(start, start + count):
        prefetch(w, np.uint64(columns[place]))
        prefetch(shrunk, np.uint64(columns[place]))


@inlined
def _take_tg(
    state: Any, violations: int, settings: Any, weight: float, steps: Steps, row: int, here: Any
) -> int:
    """One accepted event: margin, outcome and, where it violates, w; the violating rounds after it."""
    outcome, loss, tau, _ = steps
    w, shrunk = state
    columns, values, start, count = here
    eta, alpha = settings[0], settings[0] * settings[1]
    margin = 0.0
    for place in range(start, start + count):
        margin += _weight_tg(state, columns[place], violations, alpha) * values[place]
    outcome[row], loss[row] = verdict(margin, weight)
    tau[row] = 0
    if outcome[row] != UPDATED:
        return violations
    tau[row] = eta * weight
    for place in range(start, start + count):
        column = columns[place]
        w[column] = _weight_tg(state, column, violations, alpha) + eta * weight * values[place]
        shrunk[column] = violations
    return violations + 1


@kernel(types.int64(STATE_OUT, types.int64, TG_SETTINGS, CSR, CSR, CSR, DOUBLES, STEPS_OUT))
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
                _ask_tg(state, columns, next_start, next_count)
        if t < 0:
            continue
        if reason[t] == NONE:
            here = (columns, values, start, count)
            violations = _take_tg(state, violations, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return violations


@kernel(types.int64(STATE_OUT, types.int64, TG_SETTINGS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
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
            violations = _take_tg(state, violations, settings, weight, steps, t, here)
        else:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
    return violations


@kernel(types.void(DOUBLES, POINTERS, types.int64, TG_SETTINGS, DOUBLES_OUT))
def tg_weights(w: Any, shrunk: Any, violations: int, settings: Any, out: Any) -> None:
    """out = w after all shrinking, float64 [d], by the arithmetic of the steps."""
    alpha = settings[0] * settings[1]
    for column in range(len(w)):
        out[column] = _weight_tg((w, shrunk), column, violations, alpha)
