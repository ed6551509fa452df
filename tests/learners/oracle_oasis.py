"""OASIS and its symmetric forms (Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010), sections 2 and 6)."""

from __future__ import annotations

import numpy as np

from .oracle import psd
from .oracle_step import Doubles, Step, hinge, passive_aggressive


class OasisOracle:
    """S(a, b) = a^T W b; V = q (c - s)^T; tau = min(C, l / ||V||^2); W + tau V, from W = I.

    symmetric: tau (V + V^T) / 2 is added instead. psd_every: W is projected after each so many events.
    """

    def __init__(self, dim: int, C: float = 0.1, symmetric: bool = False, psd_every: int = 0) -> None:
        self.W, self._C, self._symmetric, self._psd_every = np.eye(dim), C, symmetric, psd_every
        self._events = 0

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        margin = float(q @ self.W @ c - q @ self.W @ s)
        V = np.outer(q, c - s)
        loss = hinge(margin)
        tau = passive_aggressive(loss, float(np.sum(V * V)), weight * self._C)
        self.W = self.W + tau * ((V + V.T) / 2 if self._symmetric else V)
        self._events += 1
        if self._psd_every and self._events % self._psd_every == 0:
            self.W = psd(self.W)
        return Step(margin, loss, tau)

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(q @ self.W @ p)


class OasisDiagonalOracle:
    """The same with W = diag(w) from w = 1: g = q * (c - s), tau = min(C, l / ||g||^2), w + tau g."""

    def __init__(self, dim: int, C: float = 0.1) -> None:
        self.w, self._C = np.ones(dim), C

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        g = q * (c - s)
        margin = float(np.sum(self.w * g))
        loss = hinge(margin)
        tau = passive_aggressive(loss, float(np.sum(g * g)), weight * self._C)
        self.w = self.w + tau * g
        return Step(margin, loss, tau)

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(np.sum(self.w * q * p))


class DissimOracle:
    """S'(a, b) = -(a - b)^T W (a - b); with u = q - c, v = q - s: V' = v v^T - u u^T, the direction that
    raises S'(q, c) - S'(q, s). (Printed with the other sign.) C, symmetry and W = I as above."""

    def __init__(self, dim: int, C: float = 0.1, psd_every: int = 0) -> None:
        self.W, self._C, self._psd_every = np.eye(dim), C, psd_every
        self._events = 0

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        margin = self.score(q, c) - self.score(q, s)
        u, v = q - c, q - s
        V = np.outer(v, v) - np.outer(u, u)
        loss = hinge(margin)
        tau = passive_aggressive(loss, float(np.sum(V * V)), weight * self._C)
        self.W = self.W + tau * V
        self._events += 1
        if self._psd_every and self._events % self._psd_every == 0:
            self.W = psd(self.W)
        return Step(margin, loss, tau)

    def score(self, q: Doubles, p: Doubles) -> float:
        return -float((q - p) @ self.W @ (q - p))
