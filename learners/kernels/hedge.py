"""The weights of m kernels after one round, in the log domain; see `learners.hedge` for the rules.

What a round over m kernels comes to: one outcome, and the loss of their weighed sum.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import DEGENERATE, PASSIVE, UPDATED
from learners.kernels.compile import DOUBLES_OUT, inlined, kernel

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
