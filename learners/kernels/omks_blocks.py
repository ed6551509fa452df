"""Hedge that weighs m kernels, of which each has taken its own step.

One block k of the columns is one kernel as an explicit map: its OASIS step (`learners.kernels.delayed`) is
the kernel's OKS step, in constant memory (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 4, over maps phi_k
with k(x, y) ~ phi_k(x)^T phi_k(y)). No block's step depends on another block or on the weights, so a block
takes all events of a batch before the next one. After each round the weights change in the log domain; see
`learners.hedge` for the rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    DEGENERATE,
    MAX_MAGNITUDE,
    NONE,
    PASSIVE,
    REJECTED,
    UPDATED,
    scan_dense,
    scan_sparse,
)
from learners.kernels.compile import (
    CSR,
    DOUBLES,
    DOUBLES_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Csr,
    Steps,
    inlined,
    kernel,
)

# ruff: noqa: PLR0917  (kernels take plain arrays)


HEDGE, SHARE, DISCOUNT, MARGINS, FIXED = range(5)
"""Rules. FIXED: weights that never change."""

_MARGINS = types.Array(types.float64, 2, "C", readonly=True)
_AWAKE = types.Array(types.boolean, 2, "C", readonly=True)


@inlined
def _log_mass(standing: Any, awake: Any) -> Any:
    """ln of the sum of exp(standing) over the kernels that are awake; -inf where none is."""
    largest = -np.inf
    for i in range(len(standing)):
        if awake[i] and standing[i] > largest:
            largest = standing[i]
    if not np.isfinite(largest):
        return largest
    total = 0.0
    for i in range(len(standing)):
        if awake[i]:
            total += np.exp(standing[i] - largest)
    return largest + np.log(total)


@inlined
def _hedge(rule: int, ln_beta: float, rate: float, standing: Any, margins: Any, awake: Any) -> None:
    """Log weights after one round. The kernels awake keep their mass together, so that one that sleeps
    neither wins nor loses by sleeping."""
    before = _log_mass(standing, awake)
    if not np.isfinite(before):
        return
    count = 0
    for i in range(len(standing)):
        if awake[i]:
            count += 1
            if rule == DISCOUNT:
                standing[i] *= rate
            if not margins[i] > 0:
                standing[i] += ln_beta
    shift = before - _log_mass(standing, awake)
    for i in range(len(standing)):
        if awake[i]:
            standing[i] += shift
    if rule == SHARE and rate > 0:
        given = before + np.log(rate / count)
        kept = np.log(1.0 - rate) if rate < 1 else -np.inf
        for i in range(len(standing)):
            if awake[i]:
                own = standing[i] + kept
                high, low = max(own, given), min(own, given)
                standing[i] = high + np.log1p(np.exp(low - high))


@inlined
def _margin_step(C: float, standing: Any, margins: Any, awake: Any) -> None:
    """theta <- max(0, theta + tau M), tau = min(C, l / ||M||^2), over the kernels awake."""
    total, squares = 0.0, 0.0
    for i in range(len(standing)):
        if awake[i]:
            total += standing[i] * margins[i]
            squares += margins[i] * margins[i]
    loss = 1.0 - total
    if not (loss > 0 and squares > 0 and np.isfinite(loss) and np.isfinite(squares)):
        return
    tau = min(C, loss / squares)
    for i in range(len(standing)):
        if awake[i]:
            standing[i] = max(0.0, standing[i] + tau * margins[i])


@inlined
def weigh(rule: int, ln_beta: float, rate: float, standing: Any, margins: Any, awake: Any) -> None:
    """One round: `standing` float64 [m] is overwritten (ln theta; theta itself under MARGINS).

    rate: share, discount or C by the rule. margins: float64 [m], S_i(q, c) - S_i(q, s) before the step.
    awake: bool [m]; a kernel whose view is missing sleeps, and neither its margin nor its weight counts.
    """
    if rule == MARGINS:
        _margin_step(rate, standing, margins, awake)
    elif rule != FIXED:
        _hedge(rule, ln_beta, rate, standing, margins, awake)


@kernel(types.void(types.int64, types.float64, types.float64, DOUBLES_OUT, _MARGINS, _AWAKE))
def weigh_rounds(rule: int, ln_beta: float, rate: float, standing: Any, margins: Any, awake: Any) -> None:
    """`weigh` for each round in order; margins float64 [rounds, m], awake bool [rounds, m]."""
    for t in range(len(margins)):
        weigh(rule, ln_beta, rate, standing, margins[t], awake[t])


LARGEST = float(np.finfo(np.float32).max)


@inlined
def combined_loss(rule: int, standing: Any, margins: Any, awake: Any) -> Any:
    """The hinge loss of sum theta_i S_i before the step, theta of sum 1 over the kernels awake, as far as
    float32 goes. One that sleeps has nothing to say of the event, so the loss has the same scale however many
    do."""
    largest = -np.inf
    for i in range(len(standing)):
        if awake[i]:
            largest = max(largest, standing[i])
    total, mass = 0.0, 0.0
    for i in range(len(standing)):
        if awake[i]:
            theta = standing[i] if rule == MARGINS else np.exp(standing[i] - largest)
            total += theta * margins[i]
            mass += theta
    loss = max(0.0, 1.0 - (total / mass if mass > 0 else 0.0))
    return np.float32(loss if loss < LARGEST else LARGEST)


@inlined
def combined_outcome(weight: float, outcomes: Any, awake: Any) -> int:
    """passive for a weight of 0; updated when a kernel is; degenerate when none is and one has no step, or
    when all sleep."""
    if weight == 0:
        return PASSIVE
    found, asleep = PASSIVE, True
    for k in range(len(awake)):
        if awake[k]:
            asleep = False
            if outcomes[k] == UPDATED:
                return UPDATED
            if outcomes[k] == DEGENERATE:
                found = DEGENERATE
    return DEGENERATE if asleep else found


# ruff: noqa: PLR0917  (kernels take plain arrays)


_RULE = types.Tuple((types.int64, types.float64, types.float64))
_OUTCOMES = types.Array(types.uint8, 2, "C", readonly=True)


@kernel(types.void(ROWS, types.uint8[::1]))
def fault_dense(rows: Any, reason: Any) -> None:
    """reason[row], where it is NONE, becomes the fault of the row."""
    for row in range(len(rows)):
        wrong = 0
        for column in range(rows.shape[1]):  # side by side: which fault it is, is looked up only where one is
            wrong += not abs(rows[row, column]) <= np.float32(MAX_MAGNITUDE)
        if wrong and reason[row] == NONE:
            reason[row], _ = scan_dense(rows, row)


@kernel(types.void(CSR, types.uint8[::1], ROWS_OUT))
def scatter_sparse(rows: Csr, reason: Any, out: Any) -> None:
    """CSR rows into dense rows of zeros; reason[row], where it is NONE, becomes the fault of the row, which
    stays 0 then."""
    indptr, indices, values = rows
    for row in range(len(out)):
        fault, _ = scan_sparse(out.shape[1], rows, row)
        if reason[row] == NONE:
            reason[row] = fault
        if fault == NONE:
            for place in range(indptr[row], indptr[row + 1]):
                out[row, indices[place]] = values[place]


@kernel(types.void(_RULE, DOUBLES_OUT, _MARGINS, ROWS, _OUTCOMES, _AWAKE, DOUBLES, STEPS_OUT))
def weigh_steps(
    rule: tuple[int, float, float], standing: Any,
    margins: Any, taus: Any, outcomes: Any, awake: Any, weights: Any, steps: Steps,
) -> None:  # fmt: skip
    """What the steps of m blocks come to, event by event: one round of Hedge where a block stepped.

    rule: see `learners.hedge`; standing: float64 [m], overwritten. margins, before the step, taus, outcomes
    and whether a block is awake, all [m, n], as `step_dense` tells them of each block. weights: float64 [n].
    steps: outcome, loss and tau (the largest of the blocks) are written; reason [n] holds the faults.
    """
    outcome, loss, tau, reason = steps
    of_event, present = np.empty(len(standing), np.float64), np.empty(len(standing), np.bool_)
    for t in range(len(reason)):
        if reason[t] != NONE:
            outcome[t], loss[t], tau[t] = REJECTED, 0, 0
            continue
        of_event[:], present[:] = margins[:, t], awake[:, t]
        loss[t] = combined_loss(rule[0], standing, of_event, present)
        outcome[t], tau[t] = combined_outcome(weights[t], outcomes[:, t], present), np.max(taus[:, t])
        if outcome[t] == UPDATED:
            weigh(rule[0], rule[1], rule[2], standing, of_event, present)
