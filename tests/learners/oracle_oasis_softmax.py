"""OASIS and softmax from the same events, each by its own oracle, scored by the mean of both matrices."""

from __future__ import annotations

import numpy as np

from .oracle_oasis import OasisOracle
from .oracle_softmax import SoftmaxOracle
from .oracle_step import Doubles, Step


class OasisSoftmaxOracle:
    """W = (W_o + (tr W_o / tr W_s) W_s) / 2; an event is what OASIS says of it."""

    def __init__(self, dim: int, C: float, *softmax: float) -> None:
        self._oasis, self._softmax = OasisOracle(dim, C), SoftmaxOracle(dim, *softmax)  # type: ignore[arg-type]

    @property
    def _W(self) -> Doubles:
        W_o, W_s = self._oasis.W, self._softmax.W
        return (W_o + max(0.0, float(np.trace(W_o))) / float(np.trace(W_s)) * W_s) / 2

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        self._softmax.step(q, c, s, weight)
        return self._oasis.step(q, c, s, weight)

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(q @ self._W @ p)
