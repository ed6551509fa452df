"""How the similarities of several kernels are weighed: theta from the margins of each event.

Each rule sees the m margins S_i(q, c) - S_i(q, s) from before the kernels' own steps; z_i = 1 where the
margin is <= 0. `theta` is normalised to the sum 1 (the passive-aggressive one is not): only ratios matter for
a ranking. A kernel that sleeps (its view is missing) keeps its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .oracle_step import Doubles, hinge, passive_aggressive

Awake = NDArray[np.bool_]


class Combination(Protocol):
    """The weights of m kernels."""

    @property
    def theta(self) -> Doubles:
        """[m]."""

    def update(self, margins: Doubles, awake: Awake) -> None:
        """Learn from one event."""


class Given:
    """Weights that stay: 1 / m each (OMKS-U), or exp(mAP_i) of a validation set (OMKS-W)."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.theta = np.array(weights, float) / np.sum(weights)

    def update(self, margins: Doubles, awake: Awake) -> None:
        pass


class Hedge:
    """As printed: theta_i <- theta_i beta^{z_i}, theta_i = 1 at first; in logarithms, which do not underflow.

    share: afterwards each kernel gives so much of its weight to a common pot, handed back in equal parts
    (fixed share, Herbster and Warmuth 1998). memory: the logarithms are multiplied by it before the event
    counts (discounted losses). Both 1 and 0 are Hedge itself.
    """

    def __init__(self, m: int, beta: float, share: float = 0.0, memory: float = 1.0) -> None:
        self._log, self._beta, self._share, self._memory = np.zeros(m), beta, share, memory

    @property
    def theta(self) -> Doubles:
        raised = np.exp(self._log - self._log.max())
        normal: Doubles = raised / raised.sum()
        return normal

    def update(self, margins: Doubles, awake: Awake) -> None:
        wrong = (margins <= 0) & awake
        self._log = self._memory * self._log + wrong * np.log(self._beta)
        if self._share:
            self._log = np.log((1 - self._share) * self.theta + self._share / len(self._log))


class PassiveAggressive:
    """theta <- theta + tau x, x the m margins, tau = min(C, hinge(theta^T x) / ||x||^2), from 1 / m."""

    def __init__(self, m: int, C: float, positive: bool = True) -> None:
        self.theta, self._C, self._positive = np.full(m, 1 / m), C, positive

    def update(self, margins: Doubles, awake: Awake) -> None:
        x = margins * awake
        tau = passive_aggressive(hinge(float(self.theta @ x)), float(x @ x), self._C)
        self.theta = self.theta + tau * x
        if self._positive:
            self.theta = np.maximum(self.theta, 0.0)
