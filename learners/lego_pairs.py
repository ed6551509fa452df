"""LEGO as printed: the distance of a pair is brought towards a given number.

A' = argmin over A > 0 of D_ld(A, A_t) + eta/2 (d_A(u, v) - y)^2, d_A(u, v) = (u - v)^T A (u - v), A_1 = I, by
its closed form (Jain, Kulis, Dhillon, Grauman: Online metric learning and fast similarity search, NIPS 2008,
section 3; `learners.kernels.lego_pairs`). A stays positive definite without a projection.

How pairs and targets are made: a triplet (q, c, s) is two pairs, (q, c) with the target `similar` and then
(q, s) with the target `dissimilar`. Of labels, two objects of one label are a pair with the target
`similar`, two of different labels one with `dissimilar`; `LegoPairs.learn_pairs` takes pairs with any
targets. `pair_targets` gives the 5th and the 95th percentile of the distances in a sample, which the same
authors take for labels (Davis, Kulis, Jain, Sra, Dhillon: Information-theoretic metric learning, ICML 2007,
section 5). Vectors of unit length have squared distances from 0 to 4, unrelated ones 2.

Clicks give no such numbers: `learners.distance.Lego` learns from which distance is the smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import Doubles, KnownAnswer
from learners.block import Float32s, TripletBatch, as_block, dense_rows, row_blocks
from learners.distance import DistanceLearner
from learners.errors import BlockError, ConfigError, require_number, require_positive
from learners.faults import fault_weights, spread_rows, spread_triplets
from learners.kernels.lego_pairs import lego_pairs, lego_two_pairs
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM

MOST_ROWS = 1_000
"""Of a sample whose pairwise distances are looked at: half a million pairs."""


@dataclass(frozen=True, slots=True)
class LegoPairsConfig:
    """Settings. eta: weight of the loss against the divergence, > 0. similar, dissimilar: targets of squared
    distances, 0 <= similar < dissimilar. start: the diagonal of A_1, float32 [dim], > 0; None for that of I.
    Raises ConfigError.
    """

    eta: float = 0.01
    similar: float = 0.0
    dissimilar: float = 2.0
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("eta", self.eta)
        require_number("similar", self.similar)
        require_number("dissimilar", self.dissimilar)
        if not (0 <= self.similar < self.dissimilar and math.isfinite(self.dissimilar)):
            raise ConfigError(
                f"targets must be 0 <= similar < dissimilar, not {self.similar} and {self.dissimilar}"
            )


class LegoPairs(DistanceLearner[LegoPairsConfig]):
    """LEGO on pairs; its A is called W here as everywhere. `StepInfo.tau` is the larger of the |g| of a
    triplet's two steps, its loss the hinge that all learners have.

    Every accepted triplet of a weight above 0 moves A, also one without a hinge loss: a distance is brought
    to a number, not on one side of it. Degenerate is one whose three objects are alike. Sparse rows are
    spread out, since a step changes all of W: O(dim^2), refused above `MAX_FULL_DIM`. What is replayed are
    triplets.
    """

    ROOM: ClassVar[int | None] = 0
    SPREADS: ClassVar[bool] = True
    DEFAULT: ClassVar[LegoPairsConfig] = LegoPairsConfig()
    # z = (1, -1), d = 2: d' = 4 / (sqrt(9) + 1) = 1, g = 1/2, A' = I - 1/4 z z^T; s = q has no direction
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        LegoPairsConfig(eta=0.5), ((1, 0), (0, 1), (1, 0)), 3.0, ((0, -1), (-1, 0))
    )

    def _check(self, dim: int) -> None:
        if dim > MAX_FULL_DIM:
            raise ConfigError(f"LEGO changes all of W at each step: dim must be <= {MAX_FULL_DIM}, not {dim}")

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, scale = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        targets = float(self.config.similar), float(self.config.dissimilar)
        for part in row_blocks(len(batch), 3 * self.dim):
            rows, steps = spread_triplets(batch.slice(part.start, part.stop), scale[part], info, part)
            eta = float(self.config.eta)
            self.events += int(lego_two_pairs(self.base, eta, targets, *rows, scale[part], steps))
        return info

    def learn_pairs(self, left: Any, right: Any, targets: Any, weights: Any = None) -> StepInfo:
        """Bring the distance of each pair of rows towards its target, in order; `StepInfo.loss` is
        (d - y)^2 / 2 before the step.

        left, right: anything `as_block` reads, [n, dim]. targets: float [n], of squared distances. weights:
        [n], scale eta. A target that is negative or not finite rejects its pair, as a malformed row does.
        Raises BlockError on other shapes.
        """
        blocks = as_block(left, self.dim, "left"), as_block(right, self.dim, "right")
        wanted = np.asarray(targets, np.float64)
        scale = np.ones(len(wanted)) if weights is None else np.asarray(weights, np.float64)
        counts = {len(blocks[0]), len(blocks[1]), *wanted.shape, *scale.shape}
        if len(counts) > 1 or wanted.ndim != 1 or scale.ndim != 1:
            raise BlockError("give as many rows on both sides as targets, and as many weights")
        info = StepInfo.empty(len(wanted))
        rows = [np.ascontiguousarray(spread_rows(block, info.reason)) for block in blocks]
        fault_weights(wanted, info.reason)
        fault_weights(scale, info.reason)
        steps = (info.outcome, info.loss, info.tau, info.reason)
        self.events += int(lego_pairs(self.base, float(self.config.eta), wanted, *rows, scale, steps))
        return info


def pair_targets(sample: Any, similar: float = 5, dissimilar: float = 95) -> tuple[float, float]:
    """These percentiles of the squared Euclidean distances of all pairs of at most MOST_ROWS rows, at equal
    steps: (similar, dissimilar). Raises BlockError below two rows."""
    from scipy.spatial.distance import pdist  # 0.15 s that most processes never need

    rows: NDArray[np.float32] = dense_rows(as_block(sample))
    if len(rows) < 2:
        raise BlockError("distances need a sample of at least two rows")
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64)
    near, far = np.percentile(pdist(rows[chosen].astype(np.float64), "sqeuclidean"), [similar, dissimilar])
    return float(near), float(far)
