"""Averaged rankers: one state of several learners that were trained in parallel on different triplets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.errors import ConfigError, StateError
from learners.matrix_state import as_state, checked_matrix, state_events
from learners.scores import row_blocks


def average_states(
    states: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[float] | None = None
) -> dict[str, NDArray[Any]]:
    """One state of several learners of a matrix that learned alike from different triplets: W their weighted
    mean, in float64 and rounded once, `events` their sum.

    The hinge loss is convex in W, so on any triplets the mean's loss is at most the mean of the losses
    (Chechik et al., JMLR 11 (2010), section 5.4). weights: >= 0, of which one is not 0; equal by default.
    Raises StateError where there is no state, or one is of another shape or has other arrays, and
    ConfigError for other weights.
    """
    if not states:
        raise StateError("there is no state to average: give at least one")
    shares = np.ones(len(states)) if weights is None else np.asarray(weights, np.float64)
    if (
        shares.shape != (len(states),)
        or not np.isfinite(shares).all()
        or shares.min() < 0
        or not shares.any()
    ):
        raise ConfigError(f"weights must be {len(states)} finite numbers >= 0, one of them above 0")
    for number, state in enumerate(states):
        if set(state) != {"W", "events"}:
            raise StateError(f"state {number} has the arrays {sorted(state)}: only W and events are averaged")
    matrices = [checked_matrix(state) for state in states]
    if len({matrix.shape for matrix in matrices}) > 1:
        raise StateError("the matrices have different shapes: " + ", ".join(str(m.shape) for m in matrices))
    mean = np.empty_like(matrices[0])
    for rows in row_blocks(len(mean), len(mean)):
        parts = (
            matrix[rows].astype(np.float64) * share
            for matrix, share in zip(matrices, shares / shares.sum(), strict=True)
        )
        mean[rows] = sum(parts, np.zeros(mean[rows].shape))
    return as_state(sum(map(state_events, states)), W=mean)
