"""A matrix pulled back towards W = I, by the formula.

After every so many events W <- I + (1 - decay) (W - I), then the nearest matrix in ||W - I||_F <= radius.
"""

from __future__ import annotations

import numpy as np

from .oracle_lego import LegoOracle
from .oracle_oasis import DissimOracle, OasisOracle
from .oracle_step import Doubles, Step


class TetheredOracle:
    """Any of them, every event of which counts. radius 0: no ball."""

    def __init__(
        self, inner: OasisOracle | DissimOracle | LegoOracle, every: int, decay: float, radius: float
    ) -> None:
        self._inner, self._every, self._decay, self._radius = inner, every, decay, radius
        self._name, self._events = "A" if isinstance(inner, LegoOracle) else "W", 0

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        step = self._inner.step(q, c, s, weight)
        self._events += 1
        if self._events % self._every == 0:
            W = getattr(self._inner, self._name)
            away = (1 - self._decay) * (W - np.eye(len(W)))
            length = np.sqrt(np.sum(away * away))
            if self._radius and length > self._radius:
                away *= self._radius / length
            setattr(self._inner, self._name, np.eye(len(W)) + away)
        return step

    def score(self, q: Doubles, p: Doubles) -> float:
        return self._inner.score(q, p)
