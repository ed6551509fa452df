"""SOML-DA: sparse online metric learning by dual averaging.

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g), whose subgradient is -g on a
violating round (l > 0) and 0 otherwise. With G the sum of subgradients, t the rounds and t* the last
violating one: gbar = G / t*, lambda_t = lam + gamma rho / sqrt(t*), w_j = 0 if |gbar_j| <= lambda_t, else
-(sqrt(t*) / gamma) (gbar_j - lambda_t sign(gbar_j)); w = 0 at first (Gao, Hoi, Zhang, Wan, Li: SOML: sparse
online metric learning with application to image retrieval, AAAI 2014, algorithm 2; its equation 15 prints the
subgradient with the opposite sign, and averages it on every round).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.errors import StateError
from learners.kernels.soml_da import da_dense, da_sparse, da_weights
from learners.outcome import StepInfo
from learners.soml.config import SomlDaConfig
from learners.soml.diagonal import (
    DiagonalLearner,
    Doubles,
    checked_dim,
    one_event,
    read_only,
    state_count,
    state_vector,
)

DEFAULT = SomlDaConfig()


class SomlDa(DiagonalLearner):
    """A learned diagonal metric of `dim`-dimensional vectors.

    G: float64 [dim], the sum of subgradients (float32 would stall). rounds: t, accepted events of a weight
    above 0. violated: t*, the last violating round, 0 before it.
    """

    G: Doubles
    config: SomlDaConfig
    rounds: int
    violated: int

    def __init__(self, dim: int, config: SomlDaConfig = DEFAULT) -> None:
        """Start from w = 0, where all similarities are 0. Raises ConfigError."""
        self.G, self.config = np.zeros(checked_dim(dim)), config
        self.rounds = self.violated = 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.G)

    @property
    def evidence(self) -> int:
        """t*: the rounds that w is made of."""
        return self.violated

    def weights(self) -> Doubles:
        """w, float64 [dim], made anew from G and t*."""
        w = np.empty(self.dim)
        da_weights(self.G, self.violated, self._settings(), w)
        return w

    def state(self) -> dict[str, NDArray[Any]]:
        """{"G": float64 [dim], "rounds": int64 [], "violated": int64 []}: read-only views."""
        counts = {"rounds": self.rounds, "violated": self.violated}
        return {"G": read_only(self.G), **{name: np.array(n, np.int64) for name, n in counts.items()}}

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: SomlDaConfig = DEFAULT, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes G over without a copy (it must be writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.G, learner.config = state_vector(arrays, "G", np.float64, copy), config
        learner.rounds, learner.violated = state_count(arrays, "rounds"), state_count(arrays, "violated")
        if learner.violated > learner.rounds:
            raise StateError(f"array violated is {learner.violated}, beyond all {learner.rounds} rounds")
        return learner

    def forget(self, share: float) -> None:
        """G, t and t* <- (1 - share) of each, the rounds rounded down: the mean subgradient stays, and is one
        of fewer rounds. Its weight, sqrt(t) / gamma, shrinks by the root; one round moves w as much as it did
        when there were so many. Without that a round counts 1 / (gamma sqrt(t)), less and less."""
        self.G *= 1 - share
        self.rounds, self.violated = int((1 - share) * self.rounds), int((1 - share) * self.violated)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        one_event(SomlDa(2, SomlDaConfig(gamma=0.25, rho=1.0, lam=0.125)), [0.5, 0.0])

    def _settings(self) -> tuple[float, float, float]:
        return float(self.config.gamma), float(self.config.rho), float(self.config.lam)

    def _step(self, dense: bool, triplets: tuple[Any, ...], weights: Doubles, info: StepInfo) -> None:
        steps = (info.outcome, info.loss, info.tau, info.reason)
        take = da_dense if dense else da_sparse
        rounds = (self.rounds, self.violated)
        self.rounds, self.violated = take(self.G, rounds, self._settings(), *triplets, weights, steps)
