"""Dissim-OASIS: online passive-aggressive learning of a distance, on sparse and dense vectors.

S'(a, b) = -(a - b)^T W (a - b); loss l = max(0, 1 - S'(q, c) + S'(q, s)), tau = min(C, l / ||V'||_F^2),
W <- W + tau V', V' = v v^T - u u^T with u = q - c, v = q - s, from W = I (Chechik, Sharma, Shalit, Bengio:
Large scale online learning of image similarity through ranking, JMLR 11 (2010), section 6, which prints V'
with the opposite sign). W stays symmetric bit for bit; like OASIS it may become indefinite.

What learners of a distance share: S'(a, b) = -(a - b)^T W (a - b) with a symmetric W.

A triplet (q, c, s) comes to m = (q - c) + (q - s) and e = c - s: S'(q, c) - S'(q, s) = m^T W e, whose
gradient in W is V' = (e m^T + m e^T)/2 = v v^T - u u^T with u = q - c, v = q - s (Chechik, Sharma, Shalit,
Bengio, JMLR 11 (2010), section 6, with the sign that raises the margin). Its squared norm
(||e||^2 ||m||^2 + (e^T m)^2)/2 is a sum of squares, where ||u||^4 + ||v||^4 - 2 (u^T v)^2 is a small
difference of large numbers for objects that are nearly alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, Int64s, SparseBlock, TripletBatch, as_block, bilinear
from learners.errors import ConfigError
from learners.forms.quadratic import self_products
from learners.kernels.distance_dense import pairs_dense, step_pairs_dense
from learners.kernels.distance_sparse import pairs_sparse, step_pairs_sparse
from learners.matrix import (
    as_state,
    checked_weights,
    identity,
    one_triplet,
    replay_rank_one,
    state_events,
    symmetric_matrix,
)
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM, project_psd
from learners.steps import StepBatch, Steps, taken_steps


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
        """||V'||_F^2, float64 [n]."""
        return (self.norms[:, 0] * self.norms[:, 1] + self.norms[:, 2] ** 2) / 2

    def slice(self, start: int, stop: int) -> Pairs:
        """Rows start..stop-1 without copying."""
        rows = self.batch.slice(start, stop)
        return Pairs(rows, self.m.slice(start, stop), self.e.slice(start, stop), self.norms[start:stop])


def pairs_of(batch: TripletBatch, reason: NDArray[np.uint8]) -> Pairs:
    """m and e of a batch; `reason` uint8 [n] gets why a triplet is refused, 0 where it is not."""
    query, clicked, skipped = batch.query, batch.clicked, batch.skipped
    norms = np.empty((len(batch), 3), np.float64)
    if isinstance(query, DenseBlock):
        m, e = np.empty_like(query.values), np.empty_like(query.values)
        rows = (query.kernel_rows(), clicked.kernel_rows(), skipped.kernel_rows())
        pairs_dense(*rows, m, e, norms, reason)
        return Pairs(batch, DenseBlock(m), DenseBlock(e), norms)
    entries = [int(block.indptr[-1] - block.indptr[0]) for block in _sparse(batch)]
    sums, errors = _room(len(batch), sum(entries)), _room(len(batch), entries[1] + entries[2])
    triplets = (block.kernel_rows() for block in _sparse(batch))
    pairs_sparse(batch.dim, *triplets, sums, errors, norms, reason)
    return Pairs(batch, SparseBlock(*sums, batch.dim), SparseBlock(*errors, batch.dim), norms)


class DistanceLearner(ABC):
    """A learned distance of `dim`-dimensional vectors, from W = I on, where it is the Euclidean one.

    W: float32 [dim, dim], symmetric to the bit. events: how many events were accepted so far, that is not
    rejected. Not safe for two threads at once: a step writes W in place, with the GIL released.
    """

    W: Float32s
    events: int

    def __init__(self, dim: int) -> None:
        """Start from W = I. Raises ConfigError."""
        self.W, self.events = identity(dim), 0

    @abstractmethod
    def _apply(self, pairs: Pairs, weights: NDArray[np.float64], info: StepInfo, start: int) -> int:
        """Take steps from row `start` on, as many as belong together; the rows consumed, at least one."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.W.shape[0])

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError when the vectors do not fit each other or the learner; a malformed row is no error
        but an outcome.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, bit for bit as `learn_one` of each would.

        weights: [n] importance of each event; 0 makes it passive, negative or not finite rejects it. Needs
        room for m and e, about twice the batch. Raises BlockError on another dimension or number of weights.
        """
        scale, info = checked_weights(batch, self.dim, weights), StepInfo.empty(len(batch))
        pairs, done = pairs_of(batch, info.reason), 0
        while done < len(batch):
            done += self._apply(pairs, scale, info, done)
        return info

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """S'(q, p) = -(q - p)^T W (q - p), float32 [queries, items], from float64 sums of its three terms.

        Near-equal vectors lose the digits that their norms and product share. Raises BlockError on another
        dimension or an index out of range.
        """
        left, right = as_block(queries, self.dim), as_block(items, self.dim)
        crossed = 2 * bilinear(self.W, left, right).astype(np.float64)
        crossed -= self_products(self.W, left)[:, None]
        crossed -= self_products(self.W, right)
        return crossed.astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        """{"W": float32 [dim, dim], "events": int64 []}: read-only views, which change with the next step."""
        return as_state(self.events, W=self.W)

    def _take_over(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> Self:
        """Go on from the arrays of `state`. Raises StateError."""
        self.W, self.events = symmetric_matrix(arrays, copy=copy), state_events(arrays)
        return self


def _sparse(batch: TripletBatch) -> list[SparseBlock]:
    blocks = (batch.query, batch.clicked, batch.skipped)
    return [block for block in blocks if isinstance(block, SparseBlock)]


def _room(rows: int, entries: int) -> tuple[Any, Any, Any]:
    return np.zeros(rows + 1, np.int64), np.empty(entries, np.int32), np.empty(entries, np.float32)


UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class DissimConfig:
    """Settings of Dissim-OASIS.

    C: aggressiveness, > 0, an upper bound of tau. psd_every: project W onto the PSD matrices after each so
    many accepted events; 0 never; refused above `MAX_FULL_DIM` dimensions. Raises ConfigError.
    """

    C: float = 0.1
    psd_every: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.C) and self.C > 0):
            raise ConfigError(f"C must be a finite number above 0, not {self.C}")
        if self.psd_every < 0:
            raise ConfigError(f"psd_every must be 0 (never) or a number of events, not {self.psd_every}")


class Dissim(DistanceLearner):
    """Dissim-OASIS. An event is degenerate where e = 0 (c = s) or m = 0 (q lies midway between c and s)."""

    config: DissimConfig

    def __init__(self, dim: int, config: DissimConfig = DissimConfig()) -> None:
        """Start from W = I. Raises ConfigError."""
        _check(dim, config)
        super().__init__(dim)
        self.config = config

    def _apply(self, pairs: Pairs, weights: NDArray[np.float64], info: StepInfo, start: int) -> int:
        """Steps up to the next projection, which is done."""
        every = self.config.psd_every
        budget = every - self.events % every if every else UNBOUNDED
        rest, part = slice(start, None), pairs.slice(start, len(info))
        steps = (info.outcome[rest], info.loss[rest], info.tau[rest], info.reason[rest])
        rows = (part.m.kernel_rows(), part.e.kernel_rows(), part.squares(), weights[rest], steps)
        if isinstance(part.m, DenseBlock):
            consumed, accepted = step_pairs_dense(self.W, self.config.C, budget, *rows)
        else:
            flat, batch = self.W.reshape(-1), part.batch
            triplets = tuple(block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped))
            consumed, accepted = step_pairs_sparse(flat, self.dim, self.config.C, budget, triplets, *rows)
        self.events += accepted
        if accepted == budget:
            self.W[...] = project_psd(self.W)
            info.projected.append(start + int(consumed))
        return int(consumed)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[StepBatch]:
        """Step sizes, m as query and e as error of what updated; tau has taken the weights in already."""
        return taken_steps(batch, info, _sides)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        replay_rank_one(self.W, True, steps)

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: DissimConfig = DissimConfig(), copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes W over without a copy (it must be writable).

        Raises StateError naming the array that is missing or does not fit.
        """
        learner = cls.__new__(cls)._take_over(arrays, copy)
        _check(learner.dim, config)
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
            learner = Dissim(2, DissimConfig(C=0.25))
            info = learner.learn_one(*(kind(rows[n : n + 1]) for n in (0, 1, 0)))
            # u = (1, -1), v = 0: V' = -u u^T, loss 3, tau = min(1/4, 3/4)
            if learner.W.tolist() != [[0.75, 0.25], [0.25, 0.75]] or info.loss.tolist() != [3.0]:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


def _sides(batch: TripletBatch, rows: Int64s) -> tuple[Block, Block]:
    """m and e of rows that were accepted."""
    pairs = pairs_of(batch.take(rows), np.empty(len(rows), np.uint8))
    return pairs.m, pairs.e


def _check(dim: int, config: DissimConfig) -> None:
    if config.psd_every and dim > MAX_FULL_DIM:
        raise ConfigError(
            f"psd_every needs dim <= {MAX_FULL_DIM}, not {dim}: set it to 0 and use the serving form"
        )
