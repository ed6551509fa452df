"""LEGO: online learning of a distance with LogDet regularisation, on triplets.

A' = argmin over A > 0 of D_ld(A, A_t) + eta/2 max(0, 1 - (d_A(q, s) - d_A(q, c)))^2, D_ld(X, Y) = tr(X Y^-1)
- log det(X Y^-1) - d, d_A(a, b) = (a - b)^T A (a - b), A_1 = I (Jain, Kulis, Dhillon, Grauman: Online metric
learning and fast similarity search, NIPS 2008).

That paper takes the exact gradient (at the new A, not the old one) of a squared loss that pulls the distance
of one pair to a given number, which has a closed form. Clicks give no such numbers: they say which of two
distances is the smaller, which is also how the OASIS papers use LEGO. So the same step, exact gradient,
LogDet divergence, squared loss, is taken on the difference of the two distances, with the margin 1 of the
hinge that all learners here share. Its condition is A'^-1 = A^-1 - g (v v^T - u u^T), g = eta l(A'), u = q -
c, v = q - s: one equation in the step size g (`learners.kernels.lego`). A stays positive definite
without a projection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import DenseBlock, TripletBatch
from learners.dissim import DistanceLearner, Pairs
from learners.errors import BlockError, ConfigError
from learners.kernels.lego import lego_dense, lego_sparse
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM
from learners.steps import Steps, TripletSteps, taken_triplets


@dataclass(frozen=True, slots=True)
class LegoConfig:
    """Settings of LEGO. eta: weight of the loss against the divergence, > 0; larger steps for a larger one.
    The papers use .02 to .32 with labels; clicks are noisier, and .04 already ruined the demo's photos.
    Raises ConfigError."""

    eta: float = 0.01

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise ConfigError(f"eta must be a finite number above 0, not {self.eta}")


class Lego(DistanceLearner):
    """LEGO; its A is called W here as everywhere. `StepInfo.tau` is g.

    An event is degenerate where c = s, where q lies midway between c and s, or where rounding has cost A its
    positive definiteness along them. Each step changes all of W: O(dim^2), refused above `MAX_FULL_DIM`.
    """

    config: LegoConfig

    def __init__(self, dim: int, config: LegoConfig = LegoConfig()) -> None:
        """Start from W = I. Raises ConfigError."""
        _check(dim)
        super().__init__(dim)
        self.config = config

    def _apply(self, pairs: Pairs, weights: NDArray[np.float64], info: StepInfo, start: int) -> int:
        """All steps."""
        steps = (info.outcome, info.loss, info.tau, info.reason)
        rows = (pairs.m.kernel_rows(), pairs.e.kernel_rows(), weights, steps)
        step = lego_dense if isinstance(pairs.m, DenseBlock) else lego_sparse
        self.events += step(self.W, self.config.eta, *rows)
        return len(info)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The triplets: a step in two dense vectors would be longer."""
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn the triplets again: W and `events` get the bits. Raises BlockError on steps of another kind
        or dimension."""
        if not isinstance(steps, TripletSteps):
            raise BlockError("LEGO takes triplets again, not steps of rank one: take its own")
        self.learn_many(steps.batch, steps.weights)

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: LegoConfig = LegoConfig(), copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes W over without a copy (it must be writable).

        Raises StateError naming the array that is missing or does not fit.
        """
        learner = cls.__new__(cls)._take_over(arrays, copy)
        _check(learner.dim)
        learner.config = config
        return learner

    def clone(self) -> Self:
        """An independent copy, with its own W."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        rows = np.eye(2, dtype=np.float32)
        for kind in (np.asarray, sparse.csr_array):
            learner = Lego(2, LegoConfig(eta=1.0))
            learner.learn_one(*(kind(rows[n : n + 1]) for n in (0, 1, 0)))
            # u = (1, -1), v = 0: A' = I - g/(1 + 2g) u u^T, g = 1 + 2/(1 + 2g), so g = (1 + sqrt(24 + 1))/4
            expected = 1 - 1.5 / 4
            if abs(learner.W[0, 0] - expected) > 1e-6 or abs(learner.W[0, 1] - 1 + expected) > 1e-6:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


def _check(dim: int) -> None:
    if dim > MAX_FULL_DIM:
        raise ConfigError(f"LEGO changes all of W at each step: dim must be <= {MAX_FULL_DIM}, not {dim}")
