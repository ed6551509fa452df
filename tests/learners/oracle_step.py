"""What every oracle offers: slow float64 loops, written from the formulas alone; no code of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = tuple[Doubles, Doubles, Doubles]
"""Queries, clicked, skipped, float64 [n, d] each."""


class Step(NamedTuple):
    """What one event gives: the margin S(q, c) - S(q, s) before it, its hinge loss, the step size taken."""

    margin: float
    loss: float
    tau: float


class Oracle(Protocol):
    """A learner as its paper writes it."""

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        """Learn one event, in place; weight: its importance, >= 0."""

    def score(self, q: Doubles, p: Doubles) -> float:
        """S(q, p)."""


def hinge(margin: float) -> float:
    """max(0, 1 - margin)."""
    return max(0.0, 1.0 - margin)


def passive_aggressive(loss: float, norm: float, C: float) -> float:
    """tau = min(C, loss / norm), norm = ||V||^2; 0 where there is no loss or no direction to go."""
    return min(C, loss / norm) if loss > 0 and norm > 0 else 0.0


def run(oracle: Oracle, rows: Rows, weights: Doubles | None = None) -> list[Step]:
    """Learn the rows in order."""
    each = np.ones(len(rows[0])) if weights is None else weights
    return [oracle.step(q, c, s, float(w)) for q, c, s, w in zip(*rows, each, strict=True)]


def all_scores(oracle: Oracle, queries: Doubles, items: Doubles) -> Doubles:
    """S(q, p) of all pairs."""
    return np.array([[oracle.score(q, p) for p in items] for q in queries])


Kernel: TypeAlias = Callable[[Doubles, Doubles], float]
"""k(x, y)."""
