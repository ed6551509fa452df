"""The running average of OASIS's W: scores by the mean of W after each event so far."""

from __future__ import annotations

import numpy as np

from .oracle_oasis import OasisOracle
from .oracle_step import Doubles, Step


class AveragedOracle:
    """mean = (W_1 + ... + W_T) / T, all kept; W_0 = I before any event."""

    def __init__(self, dim: int, C: float = 0.1, symmetric: bool = False) -> None:
        self._learner = OasisOracle(dim, C, symmetric)
        self._all: list[Doubles] = []

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        step = self._learner.step(q, c, s, weight)
        self._all.append(self._learner.W)
        return step

    def score(self, q: Doubles, p: Doubles) -> float:
        mean = np.mean(self._all, axis=0) if self._all else self._learner.W
        return float(q @ mean @ p)
