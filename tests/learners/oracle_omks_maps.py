"""A slow float64 oracle of OMKS over explicit maps, from the formulas alone; it shares no code with the
package."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass
class Omks:
    """m blocks of columns, a dense matrix each; theta in plain arithmetic, so for short streams only."""

    widths: list[int]
    C: float
    rule: str
    beta: float
    share: float
    discount: float
    margin_C: float
    W: list[Doubles] = field(default_factory=list)
    theta: Doubles = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.W = [np.eye(width) for width in self.widths]
        self.theta = np.full(len(self.widths), 1 / len(self.widths))

    def blocks(self, x: Doubles) -> list[Doubles]:
        """The columns of each kernel."""
        return np.split(x, np.cumsum(self.widths)[:-1])

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> tuple[float, float]:
        """(loss of the combination before the step, the largest tau)."""
        awake, margins, taus = [], [], []
        for k, (a, b, d) in enumerate(zip(self.blocks(q), self.blocks(c), self.blocks(s), strict=True)):
            margins.append(a @ self.W[k] @ b - a @ self.W[k] @ d)
            awake.append(bool(a.any() and b.any() and d.any()))
            size = (a @ a) * ((b - d) @ (b - d))
            loss = max(0.0, 1 - margins[-1])
            taus.append(min(self.C * weight, loss / size) if awake[-1] and size > 0 else 0.0)
        on, M = np.array(awake), np.array(margins)
        mass = self.theta[on].sum()
        combined = max(0.0, 1 - (self.theta[on] @ M[on] / mass if mass > 0 else 0.0))
        if max(taus) > 0:
            for k, (a, b, d) in enumerate(zip(self.blocks(q), self.blocks(c), self.blocks(s), strict=True)):
                self.W[k] = self.W[k] + taus[k] * np.outer(a, b - d)
            self.weigh(M, on)
        return combined, max(taus)

    def weigh(self, M: Doubles, on: NDArray[np.bool_]) -> None:
        """One round: kernels awake share out the mass that they had."""
        if self.rule == "uniform" or not on.any():
            return
        mine = self.theta[on]
        if self.rule == "margins":
            loss = max(0.0, 1 - mine @ M[on])
            tau = min(self.margin_C, loss / (M[on] @ M[on])) if M[on].any() else 0.0
            self.theta[on] = np.maximum(0, mine + tau * M[on])
            return
        grown = mine ** (self.discount if self.rule == "discount" else 1.0) * self.beta ** (M[on] <= 0)
        grown *= mine.sum() / grown.sum()
        if self.rule == "share":
            grown = (1 - self.share) * grown + self.share * grown.mean()
        self.theta[on] = grown

    def similarity(self, q: Doubles, p: Doubles) -> float:
        """sum_k theta_k q_k^T W_k p_k, theta of sum 1."""
        theta = self.theta / self.theta.sum()
        parts = zip(theta, self.blocks(q), self.W, self.blocks(p), strict=True)
        return float(sum(w * (a @ W @ b) for w, a, W, b in parts))
