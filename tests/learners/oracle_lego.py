"""LEGO on relative distances (Jain, Kulis, Dhillon, Grauman, NIPS 2008, with the loss of a triplet), by
inverting matrices and finding a root."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from .oracle_step import Doubles, Step, hinge

NO_DIRECTION = 1e-12


def distance_margin(W: Doubles, q: Doubles, c: Doubles, s: Doubles) -> float:
    """S'(q, c) - S'(q, s) = (q - s)^T W (q - s) - (q - c)^T W (q - c)."""
    return float((q - s) @ W @ (q - s) - (q - c) @ W @ (q - c))


def gradient(q: Doubles, c: Doubles, s: Doubles) -> Doubles:
    """V' = v v^T - u u^T, u = q - c, v = q - s."""
    return np.outer(q - s, q - s) - np.outer(q - c, q - c)


class LegoOracle:
    """A'(g) = (A^-1 - g V')^-1 with g = eta (1 - margin under A'(g)), from A = I; tau of a step is g."""

    def __init__(self, dim: int, eta: float = 0.01) -> None:
        self.A, self._eta = np.eye(dim), eta

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        margin, V = distance_margin(self.A, q, c, s), gradient(q, c, s)
        loss, eta = hinge(margin), weight * self._eta
        if loss == 0 or eta == 0 or np.abs(V).max() < NO_DIRECTION:
            return Step(margin, loss, 0.0)
        inverse = np.linalg.inv(self.A)

        def excess(g: float) -> float:
            after = inverse - g * V
            if np.linalg.eigvalsh((after + after.T) / 2)[0] <= 0:
                return 1e9
            return g - eta * (1 - distance_margin(np.asarray(np.linalg.inv(after), np.float64), q, c, s))

        g = brentq(excess, 0.0, eta * loss, xtol=1e-14)
        self.A = np.linalg.inv(inverse - g * V)
        return Step(margin, loss, g)

    def score(self, q: Doubles, p: Doubles) -> float:
        return -float((q - p) @ self.A @ (q - p))


class LegoPairsOracle:
    """A'^-1 = A^-1 + eta (d' - y) z z^T, d' = z^T A' z, of the pairs (q, c) and then (q, s), from A = I: the
    root d' found by halving, matrices inverted. tau of a step is the larger |eta (d' - y)|."""

    def __init__(self, dim: int, eta: float = 0.01, similar: float = 0.0, dissimilar: float = 2.0) -> None:
        self.A, self._eta, self._targets = np.eye(dim), eta, (similar, dissimilar)

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        margin, eta = distance_margin(self.A, q, c, s), weight * self._eta
        sizes = [0.0]
        for other, target in zip((c, s), self._targets, strict=True):
            if eta:
                sizes.append(abs(self.toward(q - other, target, eta)))
        return Step(margin, hinge(margin), max(sizes))

    def toward(self, z: Doubles, target: float, eta: float) -> float:
        """One step on a pair; g."""
        d = float(z @ self.A @ z)
        if d < NO_DIRECTION:
            return 0.0
        after = brentq(lambda x: x * (1 + eta * (x - target) * d) - d, 0.0, d + target + 1, xtol=1e-14)
        g = eta * (after - target)
        self.A = np.linalg.inv(np.linalg.inv(self.A) + g * np.outer(z, z))
        return float(g)

    def score(self, q: Doubles, p: Doubles) -> float:
        return -float((q - p) @ self.A @ (q - p))


def pair_objective(X: Doubles, A: Doubles, z: Doubles, target: float, eta: float) -> float:
    """D_ld(X, A) + eta/2 (z^T X z - target)^2."""
    ratio = X @ np.linalg.inv(A)
    divergence = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(A)
    return float(divergence + eta / 2 * (z @ X @ z - target) ** 2)


def lego_objective(X: Doubles, A: Doubles, q: Doubles, c: Doubles, s: Doubles, eta: float) -> float:
    """D_ld(X, A) + eta/2 max(0, 1 - margin under X)^2."""
    ratio = X @ np.linalg.inv(A)
    divergence = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(A)
    return float(divergence + eta / 2 * hinge(distance_margin(X, q, c, s)) ** 2)
