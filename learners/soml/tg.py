"""SOML-TG: sparse online metric learning by truncated gradient.

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g), w = 0 at first; on a violating
round (l > 0) w <- T_1(w + eta g, eta lam) on all coordinates, T_1(v, a) = sign(v) max(0, |v| - a) (Gao, Hoi,
Zhang, Wan, Li: SOML: sparse online metric learning with application to image retrieval, AAAI 2014, algorithm
1; its equation 12 prints w - eta g, which drives w the wrong way).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.errors import StateError
from learners.kernels.soml_tg import tg_dense, tg_sparse, tg_weights
from learners.outcome import StepInfo
from learners.soml.config import SomlTgConfig
from learners.soml.diagonal import (
    Counts,
    DiagonalLearner,
    Doubles,
    checked_dim,
    one_event,
    read_only,
    state_count,
    state_vector,
)

DEFAULT = SomlTgConfig()


class SomlTg(DiagonalLearner):
    """A learned diagonal metric of `dim`-dimensional vectors.

    w: float64 [dim], each coordinate as of when it was last written, which `shrunk` tells: int64 [dim], the
    violating rounds that came before. violations: how many there were.
    """

    w: Doubles
    shrunk: Counts
    config: SomlTgConfig
    violations: int

    def __init__(self, dim: int, config: SomlTgConfig = DEFAULT) -> None:
        """Start from w = 0, where all similarities are 0. Raises ConfigError."""
        self.w, self.config = np.zeros(checked_dim(dim)), config
        self.shrunk, self.violations = np.zeros(dim, np.int64), 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.w)

    @property
    def evidence(self) -> int:
        """The violating rounds."""
        return self.violations

    def weights(self) -> Doubles:
        """w after all shrinking, float64 [dim], made anew."""
        w = np.empty(self.dim)
        tg_weights(self.w, self.shrunk, self.violations, self._settings(), w)
        return w

    def state(self) -> dict[str, NDArray[Any]]:
        """{"w": float64 [dim], "shrunk": int64 [dim], "violations": int64 []}: read-only views."""
        count = np.array(self.violations, np.int64)
        return {"w": read_only(self.w), "shrunk": read_only(self.shrunk), "violations": count}

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: SomlTgConfig = DEFAULT, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes both vectors over without a copy (they must be
        writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.w, learner.config = state_vector(arrays, "w", np.float64, copy), config
        learner.shrunk = state_vector(arrays, "shrunk", np.int64, copy)
        learner.violations = state_count(arrays, "violations")
        if learner.shrunk.shape != learner.w.shape:
            raise StateError(f"array shrunk has shape {learner.shrunk.shape}, w {learner.w.shape}")
        if learner.shrunk.min() < 0 or learner.shrunk.max() > learner.violations:
            raise StateError(f"array shrunk holds rounds outside 0..{learner.violations}")
        return learner

    def forget(self, share: float) -> None:
        """w <- (1 - share) w after all shrinking, and as much of the violating rounds, rounded down: their
        number is what is known of w's evidence, and what a coordinate has missed is not owed any more."""
        np.multiply(self.weights(), 1 - share, out=self.w)
        self.violations = int((1 - share) * self.violations)
        self.shrunk[:] = self.violations

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        one_event(SomlTg(2, SomlTgConfig(eta=2.0, lam=0.25)), [0.5, 0.0])

    def _settings(self) -> tuple[float, float]:
        return float(self.config.eta), float(self.config.lam)

    def _step(self, dense: bool, triplets: tuple[Any, ...], weights: Doubles, info: StepInfo) -> None:
        steps, state = (info.outcome, info.loss, info.tau, info.reason), (self.w, self.shrunk)
        take = tg_dense if dense else tg_sparse
        self.violations = take(state, self.violations, self._settings(), *triplets, weights, steps)
