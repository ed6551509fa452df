"""What a round over m kernels comes to: one outcome, and the loss of their weighed sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import DEGENERATE, PASSIVE, UPDATED
from learners.kernels.compile import inlined
from learners.kernels.hedge import MARGINS

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
