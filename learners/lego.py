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

from dataclasses import dataclass
from typing import ClassVar

from learners.base import Doubles, KnownAnswer
from learners.block import DenseBlock
from learners.dissim import DistanceLearner, Pairs
from learners.errors import ConfigError, require_positive
from learners.kernels.lego import lego_dense, lego_sparse
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM


@dataclass(frozen=True, slots=True)
class LegoConfig:
    """Settings of LEGO. eta: weight of the loss against the divergence, > 0; larger steps for a larger one.
    The papers use .02 to .32 with labels; clicks are noisier, and .04 already ruined the demo's photos.
    Raises ConfigError."""

    eta: float = 0.01

    def __post_init__(self) -> None:
        require_positive("eta", self.eta)


class Lego(DistanceLearner[LegoConfig]):
    """LEGO; its A is called W here as everywhere. `StepInfo.tau` is g.

    An event is degenerate where c = s, where q lies midway between c and s, or where rounding has cost A
    its positive definiteness along them. Each step changes all of W: O(dim^2), refused above
    `MAX_FULL_DIM`. So what is replayed are triplets: a step in two dense vectors would be longer.
    """

    DEFAULT: ClassVar[LegoConfig] = LegoConfig()
    # u = (1, -1), v = 0: A' = I - g/(1 + 2g) u u^T, g = 1 + 2/(1 + 2g), so g = (1 + sqrt(24 + 1))/4
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        LegoConfig(eta=1.0), ((1, 0), (0, 1), (1, 0)), 3.0, ((0, -0.5), (-0.5, 0))
    )

    def _check(self, dim: int) -> None:
        if dim > MAX_FULL_DIM:
            raise ConfigError(f"LEGO changes all of W at each step: dim must be <= {MAX_FULL_DIM}, not {dim}")

    def _learn_pairs(self, pairs: Pairs, weights: Doubles, info: StepInfo) -> None:
        steps = (info.outcome, info.loss, info.tau, info.reason)
        step = lego_dense if isinstance(pairs.m, DenseBlock) else lego_sparse
        rows = (pairs.m.kernel_rows(), pairs.e.kernel_rows())
        self.events += int(step(self.W, self.config.eta, *rows, weights, steps))
