"""How the similarities of several kernels are weighed: theta from the margins of each event.

Each rule sees the m margins S_i(q, c) - S_i(q, s) from before the kernels' own steps; z_i = 1 where the
margin is <= 0. `theta` is normalised to the sum 1: only ratios matter for a ranking. A kernel that sleeps
(its view is missing) keeps its weight: those awake share what they had together.
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
        if not awake.any():
            return
        own = self._log[awake]
        mass = np.logaddexp.reduce(own)
        own = self._memory * own + (margins[awake] <= 0) * np.log(self._beta)
        own += mass - np.logaddexp.reduce(own)
        if self._share:
            own = np.logaddexp(own + np.log(1 - self._share), mass + np.log(self._share / len(own)))
        self._log[awake] = own


class PassiveAggressive:
    """raw <- max(0, raw + tau x), x the m margins, tau = min(C, hinge(raw^T x) / ||x||^2), from 1 / m."""

    def __init__(self, m: int, C: float) -> None:
        self.raw, self._C = np.full(m, 1 / m), C

    @property
    def theta(self) -> Doubles:
        normal: Doubles = self.raw / (self.raw.sum() or 1.0)
        return normal

    def update(self, margins: Doubles, awake: Awake) -> None:
        x = margins * awake
        tau = passive_aggressive(hinge(float(self.raw @ x)), float(x @ x), self._C)
        self.raw = np.maximum(self.raw + tau * x, 0.0)
