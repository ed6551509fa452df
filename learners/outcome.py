"""What a step did with each triplet: outcomes, reasons, and the info of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Outcome(IntEnum):
    """updated: W changed. passive: nothing to learn (loss 0 or weight 0). degenerate: no step exists
    (||V|| = 0, or tau is 0 or not finite in float32). rejected: the event is malformed. Only `updated`
    changes W."""

    UPDATED = 0
    PASSIVE = 1
    DEGENERATE = 2
    REJECTED = 3


class Reason(IntEnum):
    """Why an event was rejected: the first fault met reading query, clicked, skipped, weight in this
    order; then, where models have keys, that it has none, or that there is no room for another."""

    NONE = 0
    NOT_FINITE = 1
    INDEX_OUT_OF_RANGE = 2
    INDICES_NOT_INCREASING = 3
    MAGNITUDE = 4
    KEY_MISSING = 5
    KEY_REFUSED = 6


UPDATED, PASSIVE, DEGENERATE, REJECTED = (np.uint8(outcome) for outcome in Outcome)


@dataclass(slots=True, eq=False, repr=False)
class StepInfo:
    """One entry per event, in order.

    outcome: uint8 [n], see Outcome. loss: float32 [n], the hinge loss before the step, 0 where rejected.
    tau: float32 [n], the step size as applied, 0 where W did not change. reason: uint8 [n], see Reason.
    projected: how many events came before each projection of W, ascending. first: how many events a
    learner that numbers them had numbered before. evicted: how many keys lost their model.
    """

    outcome: NDArray[np.uint8]
    loss: NDArray[np.float32]
    tau: NDArray[np.float32]
    reason: NDArray[np.uint8]
    projected: list[int] = field(default_factory=list)
    first: int = 0
    evicted: int = 0

    @classmethod
    def empty(cls, length: int) -> StepInfo:
        """Room for `length` events, all zero."""
        return cls(
            np.zeros(length, np.uint8),
            np.zeros(length, np.float32),
            np.zeros(length, np.float32),
            np.zeros(length, np.uint8),
        )

    def __len__(self) -> int:
        return len(self.outcome)

    def __repr__(self) -> str:
        counts = [f"{self.count(one)} {one.name.lower()}" for one in Outcome if self.count(one)]
        return f"StepInfo({len(self)} triplet{'s' * (len(self) != 1)}: {', '.join(counts)})"

    def count(self, outcome: Outcome) -> int:
        """How many events ended so."""
        return int(np.count_nonzero(self.outcome == outcome))


def joined(infos: Sequence[StepInfo]) -> StepInfo:
    """The infos of consecutive parts as one."""
    if len(infos) == 1:
        return infos[0]
    joined, at = StepInfo.empty(sum(map(len, infos))), 0
    joined.first, joined.evicted = infos[0].first if infos else 0, sum(info.evicted for info in infos)
    for info in infos:
        rows = slice(at, at + len(info))
        joined.outcome[rows], joined.loss[rows] = info.outcome, info.loss
        joined.tau[rows], joined.reason[rows] = info.tau, info.reason
        joined.projected += [at + place for place in info.projected]
        at += len(info)
    return joined
