"""Learners of a distance: Dissim-OASIS and LEGO, online, on triplets, dense and sparse.

Dissim-OASIS: S'(a, b) = -(a - b)^T W (a - b) with a symmetric W; loss l = max(0, 1 - S'(q, c) + S'(q, s)),
tau = min(C, l / ||V'||_F^2), W <- W + tau V', V' = v v^T - u u^T with u = q - c, v = q - s, from W = I
(Chechik, Sharma, Shalit, Bengio: Large scale online learning of image similarity through ranking, JMLR 11
(2010), section 6, which prints V' with the opposite sign). W stays symmetric bit for bit; like OASIS it may
become indefinite.

A triplet comes to m = (q - c) + (q - s) and e = c - s: S'(q, c) - S'(q, s) = m^T W e, whose gradient in W is
V' = (e m^T + m e^T)/2. Its squared norm (||e||^2 ||m||^2 + (e^T m)^2)/2 is a sum of squares, where
||u||^4 + ||v||^4 - 2 (u^T v)^2 is a small difference of large numbers for objects that are nearly alike.

LEGO, with LogDet regularisation: A' = argmin over A > 0 of D_ld(A, A_t) + eta/2 max(0, 1 - (d_A(q, s) -
d_A(q, c)))^2, D_ld(X, Y) = tr(X Y^-1) - log det(X Y^-1) - d, d_A(a, b) = (a - b)^T A (a - b), A_1 = I (Jain,
Kulis, Dhillon, Grauman: Online metric learning and fast similarity search, NIPS 2008).

That paper takes the exact gradient (at the new A, not the old one) of a squared loss that pulls the distance
of one pair to a given number, which has a closed form. Clicks give no such numbers: they say which of two
distances is the smaller. So the same step, exact gradient, LogDet divergence, squared loss, is taken on the
difference of the two distances, with the margin 1 of the hinge that all learners here share; the printed one,
of pairs, is `learners.lego_pairs`, and the OASIS papers take a threshold on one side. Its condition is
A'^-1 = A^-1 - g (v v^T - u u^T), g = eta l(A'), u = q - c, v = q - s: one equation in the step size g
(`learners.kernels.distance`). A stays positive definite without a projection.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners import base
from learners.block import (
    Block,
    DenseBlock,
    Float32s,
    Int64s,
    SparseBlock,
    TripletBatch,
    as_block,
    bilinear,
    without_sense,
)
from learners.errors import ConfigError, require_positive
from learners.forms.quadratic import self_products
from learners.kernels.distance import lego_dense, lego_sparse, pairs_dense, pairs_sparse, step_pairs_sparse
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM
from learners.steps import Steps, sparse_room, taken_steps


@dataclass(frozen=True, slots=True)
class DissimConfig:
    """Settings of Dissim-OASIS.

    C: aggressiveness, > 0, an upper bound of tau. psd_every: project W onto the PSD matrices after each so
    many accepted events; 0 never; refused above `MAX_FULL_DIM` dimensions. start: the diagonal of W_0,
    float32 [dim], > 0; None for that of I. Raises ConfigError.
    """

    C: float = 0.1
    psd_every: int = 0
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("C", self.C)
        base.require_period(self.psd_every)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """m and e of each triplet, in blocks of its kind, empty or zero where the triplet is refused.

    batch: the triplets. norms: float64 [n, 3]: ||m||^2, ||e||^2, e^T m, all 0 where refused.
    """

    batch: TripletBatch
    m: Block
    e: Block
    norms: NDArray[np.float64]

    def squares(self) -> NDArray[np.float64]:
        """The squared norms ||V'||_F^2, float64 [n]."""
        return (self.norms[:, 0] * self.norms[:, 1] + self.norms[:, 2] ** 2) / 2

    def slice(self, start: int, stop: int) -> Pairs:
        """Rows start..stop-1 without copying."""
        rows = self.batch.slice(start, stop)
        return Pairs(rows, self.m.slice(start, stop), self.e.slice(start, stop), self.norms[start:stop])


def pairs_of(batch: TripletBatch, reason: NDArray[np.uint8]) -> Pairs:
    """m and e of a batch; `reason` uint8 [n] gets why a triplet is refused, 0 where it is not."""
    blocks = (batch.query, batch.clicked, batch.skipped)
    rows = tuple(block.kernel_rows() for block in blocks)
    norms = np.empty((len(batch), 3), np.float64)
    if isinstance(batch.query, DenseBlock):
        m, e = np.empty_like(batch.query.values), np.empty_like(batch.query.values)
        pairs_dense(*rows, m, e, norms, reason)
        return Pairs(batch, DenseBlock(m), DenseBlock(e), norms)
    entries = [int(block.indptr[-1] - block.indptr[0]) for block in blocks if isinstance(block, SparseBlock)]
    sums, errors = sparse_room(len(batch), sum(entries)), sparse_room(len(batch), entries[1] + entries[2])
    pairs_sparse(batch.dim, *rows, sums, errors, norms, reason)
    return Pairs(batch, SparseBlock(*sums, batch.dim), SparseBlock(*errors, batch.dim), norms)


class DistanceLearner(base.MatrixLearner[base.AnyConfig]):
    """A learned distance of `dim`-dimensional vectors; W = I gives the Euclidean one."""

    DISTANCE: ClassVar[bool] = True

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """S'(q, p) = -(q - p)^T W (q - p), float32 [queries, items], from float64 sums of its three terms.

        Near-equal vectors lose the digits that their norms and product share. Raises BlockError on another
        dimension or an index out of range.
        """
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        crossed = 2 * bilinear(self.W, left, right).astype(np.float64)
        crossed -= self_products(self.W, left)[:, None]
        crossed -= self_products(self.W, right)
        return without_sense(crossed.astype(np.float32), left, right)


class RelativeLearner(DistanceLearner[base.AnyConfig]):
    """Learns from which of two distances is the smaller. A batch needs room for m and e, about twice its
    own."""

    @abstractmethod
    def _learn_pairs(self, pairs: Pairs, weights: base.Doubles, info: StepInfo) -> None:
        """Take the steps of a batch in order; `info` holds the reason of what was refused."""

    def _learn(self, batch: TripletBatch, weights: base.Doubles) -> StepInfo:
        info = StepInfo.empty(len(batch))
        self._learn_pairs(pairs_of(batch, info.reason), weights, info)
        return info


class Dissim(RelativeLearner[DissimConfig]):
    """Dissim-OASIS. An event is degenerate where e = 0 (c = s) or m = 0 (q lies midway between c and s)."""

    DEFAULT: ClassVar[DissimConfig] = DissimConfig()
    # u = (1, -1), v = 0: V' = -u u^T, loss 3, tau = min(1/4, 3/4), W = [[3/4, 1/4], [1/4, 3/4]]
    KNOWN: ClassVar[base.KnownAnswer] = base.KnownAnswer(
        DissimConfig(C=0.25), ((1, 0), (0, 1), (1, 0)), 3.0, ((0, -1), (-1, 0))
    )

    def _learn(self, batch: TripletBatch, weights: base.Doubles) -> StepInfo:
        if not isinstance(batch.query, DenseBlock):
            return super()._learn(batch, weights)
        info = StepInfo.empty(len(batch))

        def step(start: int, budget: int, steps: base.StepArrays) -> Any:
            rows = batch.slice(start, len(batch))
            triplets = [block.kernel_rows() for block in (rows.query, rows.clicked, rows.skipped)]
            return self._step_dense(budget, triplets, weights[start:], steps)

        self._up_to_projections(info, step)
        return info

    def _learn_pairs(self, pairs: Pairs, weights: base.Doubles, info: StepInfo) -> None:
        def step(start: int, budget: int, steps: base.StepArrays) -> Any:
            part = pairs.slice(start, len(info))
            rows = (part.m.kernel_rows(), part.e.kernel_rows(), part.squares(), weights[start:], steps)
            batch, W = part.batch, self.settled().reshape(-1)
            triplets = tuple(block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped))
            return step_pairs_sparse(W, self.dim, self.config.C, budget, triplets, *rows)

        self._up_to_projections(info, step)

    def taken(self, batch: TripletBatch, info: StepInfo, weights: base.Weights = None) -> Sequence[Steps]:
        """Step sizes, m as query and e as error of what updated; tau has taken the weights in already."""
        return taken_steps(batch, info, _sides)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        base.replay_rank_one(self.base, True, steps, self.pending)


def _sides(batch: TripletBatch, rows: Int64s) -> tuple[Block, Block]:
    pairs = pairs_of(batch.take(rows), np.empty(len(rows), np.uint8))
    return pairs.m, pairs.e


@dataclass(frozen=True, slots=True)
class LegoConfig:
    """Settings of LEGO. eta: weight of the loss against the divergence, > 0; larger steps for a larger one.
    The papers use .02 to .32 with labels; clicks are noisier, and .04 already ruined the demo's photos.
    start: the diagonal of A_1, float32 [dim], > 0; None for that of I. Raises ConfigError."""

    eta: float = 0.01
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("eta", self.eta)


class Lego(RelativeLearner[LegoConfig]):
    """LEGO; its A is called W here as everywhere. `StepInfo.tau` is g.

    An event is degenerate where c = s, where q lies midway between c and s, or where rounding has cost A
    its positive definiteness along them. Each step changes all of W: O(dim^2), refused above
    `MAX_FULL_DIM`. So what is replayed are triplets: a step in two dense vectors would be longer.
    """

    ROOM: ClassVar[int | None] = 0
    DEFAULT: ClassVar[LegoConfig] = LegoConfig()
    # u = (1, -1), v = 0: A' = I - g/(1 + 2g) u u^T, g = 1 + 2/(1 + 2g), so g = (1 + sqrt(24 + 1))/4
    KNOWN: ClassVar[base.KnownAnswer] = base.KnownAnswer(
        LegoConfig(eta=1.0), ((1, 0), (0, 1), (1, 0)), 3.0, ((0, -0.5), (-0.5, 0))
    )

    def _check(self, dim: int) -> None:
        if dim > MAX_FULL_DIM:
            raise ConfigError(f"LEGO changes all of W at each step: dim must be <= {MAX_FULL_DIM}, not {dim}")

    def _learn_pairs(self, pairs: Pairs, weights: base.Doubles, info: StepInfo) -> None:
        steps = (info.outcome, info.loss, info.tau, info.reason)
        step = lego_dense if isinstance(pairs.m, DenseBlock) else lego_sparse
        rows = (pairs.m.kernel_rows(), pairs.e.kernel_rows())
        self.events += int(step(self.base, self.config.eta, *rows, weights, steps))
