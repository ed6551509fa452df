"""SOML by the textbook: dense loops over all coordinates, nothing lazy (Gao, Hoi, Zhang, Wan, Li, AAAI 2014).

S_w(a, b) = sum_j w_j a_j b_j, g = q * (c - s), margin w^T g, w = 0 at first. The subgradient of the loss on a
violating round is -g: the sign printed in equations (12) and (15) drives w the wrong way.
"""

from __future__ import annotations

import numpy as np

from .oracle_step import Doubles, Step, hinge


def soft(v: Doubles, a: float) -> Doubles:
    """T_1(v, a) = sign(v) max(0, |v| - a)."""
    shrunk: Doubles = np.sign(v) * np.maximum(0.0, np.abs(v) - a)
    return shrunk


class SomlTgOracle:
    """Truncated gradient: w <- T_1(w + eta g, eta lambda) on violating rounds, every coordinate each time."""

    def __init__(self, dim: int, eta: float = 1.0, lam: float = 1e-5) -> None:
        self.w, self._eta, self._lam = np.zeros(dim), eta, lam

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        g = q * (c - s)
        margin = float(self.w @ g)
        loss = hinge(margin)
        if loss == 0 or weight == 0:
            return Step(margin, loss, 0.0)
        self.w = soft(self.w + self._eta * weight * g, self._eta * self._lam)
        return Step(margin, loss, self._eta * weight)

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(np.sum(self.w * q * p))


class SomlDaOracle:
    """Dual averaging: gbar = the mean subgradient of all rounds, w anew from it on violating ones."""

    def __init__(self, dim: int, gamma: float = 1e-4, rho: float = 1.0, lam: float = 1e-6) -> None:
        self.w, self._G, self._t, self._last = np.zeros(dim), np.zeros(dim), 0, 0
        self._gamma, self._rho, self._lam = gamma, rho, lam

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        g = q * (c - s)
        margin = float(self.w @ g)
        loss = hinge(margin)
        if weight == 0:
            return Step(margin, loss, 0.0)
        self._t += 1
        if loss == 0:
            return Step(margin, loss, 0.0)
        self._G, self._last = self._G - weight * g, self._t
        self._make()
        return Step(margin, loss, weight)

    def _make(self) -> None:
        """w of the sum and the last violating round."""
        if not self._last:
            self.w[:] = 0.0
            return
        mean, root = self._G / self._last, np.sqrt(self._last)
        threshold = self._lam + self._gamma * self._rho / root
        for j, gbar in enumerate(mean):
            kept = abs(gbar) > threshold
            self.w[j] = -(root / self._gamma) * (gbar - threshold * np.sign(gbar)) if kept else 0.0

    def forget(self, keep: float) -> None:
        """So much of the sum and of the rounds, which are whole, is kept; w anew from them."""
        self._G, self._t, self._last = keep * self._G, int(keep * self._t), int(keep * self._last)
        self._make()

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(np.sum(self.w * q * p))
