"""What learners of a distance share: S'(a, b) = -(a - b)^T W (a - b) with a symmetric W.

A triplet (q, c, s) comes to m = (q - c) + (q - s) and e = c - s: S'(q, c) - S'(q, s) = m^T W e, whose
gradient in W is V' = (e m^T + m e^T)/2 = v v^T - u u^T with u = q - c, v = q - s (Chechik, Sharma, Shalit,
Bengio, JMLR 11 (2010), section 6, with the sign that raises the margin). Its squared norm
(||e||^2 ||m||^2 + (e^T m)^2)/2 is a sum of squares, where ||u||^4 + ||v||^4 - 2 (u^T v)^2 is a small
difference of large numbers for objects that are nearly alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.batch import TripletBatch
from learners.block import Block, DenseBlock, Float32s, SparseBlock, as_block
from learners.kernels.distance_dense import pairs_dense
from learners.kernels.distance_sparse import pairs_sparse
from learners.matrix_state import (
    as_state,
    checked_weights,
    identity,
    one_triplet,
    state_events,
    symmetric_matrix,
)
from learners.outcome import StepInfo
from learners.quadratic import self_products
from learners.scores import bilinear


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
