"""Steps already taken, as a learner made them, for another copy of it to take again.

Two kinds: `StepBatch`, a change of rank one each, and `TripletSteps`, the triplets themselves, which any
learner whose steps repeat bit for bit can take again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, Int32s, Int64s, SparseBlock, TripletBatch
from learners.errors import BlockError
from learners.kernels.oasis import take_sparse
from learners.outcome import REJECTED, UPDATED, StepInfo


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """Steps W <- W + tau V(q, e), e = c - s, in order; row i of `query` and `error` belongs to `tau[i]`.

    tau: float32 [n], as the step applied it. query, error: blocks of n rows of one kind and dimension.
    project: after the last step, W is projected onto the symmetric PSD matrices. Raises BlockError when
    lengths, dimensions or kinds differ.
    """

    tau: Float32s
    query: Block
    error: Block
    project: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", np.require(self.tau, np.float32, ["C", "A"]).reshape(-1))
        if type(self.query) is not type(self.error) or self.query.dim != self.error.dim:
            raise BlockError("query and error of a step differ in kind or dimension: map both alike")
        if not len(self.tau) == len(self.query) == len(self.error):
            raise BlockError(
                f"{len(self.tau)} step sizes, {len(self.query)} queries and {len(self.error)} errors: "
                "give one each per step"
            )

    def __len__(self) -> int:
        return len(self.tau)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.query.dim

    def slice(self, start: int, stop: int) -> StepBatch:
        """Steps start..stop-1 without copying; a projection stays with the last step."""
        last = stop >= len(self)
        query, error = self.query.slice(start, stop), self.error.slice(start, stop)
        return StepBatch(self.tau[start:stop], query, error, self.project and last)


@dataclass(frozen=True, slots=True, eq=False)
class TripletSteps:
    """Triplets that a learner accepted, in order: taking them again is learning them again.

    weights: float64 [n], finite and not negative, or None where all are 1. numbers: int64 [n], ascending, of
    a learner that numbers all events, also those that it refuses; else None. Raises BlockError on another
    number of either.
    """

    batch: TripletBatch
    weights: NDArray[np.float64] | None = None
    numbers: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        numbers = self.numbers
        if numbers is not None and (
            numbers.shape != (len(self.batch),) or (numbers[1:] <= numbers[:-1]).any()
        ):
            raise BlockError(f"the numbers of {len(self.batch)} triplets must be as many, and ascend")
        if self.weights is None:
            return
        weights = np.require(self.weights, np.float64, ["C", "A"])
        if weights.shape != (len(self.batch),):
            raise BlockError(f"weights have shape {weights.shape}: give one per triplet ({len(self.batch)})")
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.batch.dim

    def slice(self, start: int, stop: int) -> TripletSteps:
        """Steps start..stop-1 without copying."""
        weights = None if self.weights is None else self.weights[start:stop]
        numbers = None if self.numbers is None else self.numbers[start:stop]
        return TripletSteps(self.batch.slice(start, stop), weights, numbers)


Steps: TypeAlias = StepBatch | TripletSteps


def taken_triplets(
    batch: TripletBatch,
    info: StepInfo,
    weights: NDArray[Any] | None = None,
    chosen: NDArray[np.bool_] | None = None,
) -> list[TripletSteps]:
    """The triplets that were not rejected, with their weights: `taken` of a learner whose passive rounds
    count too, and right for every learner. Copies; nothing where all were rejected.

    chosen: bool [n], those that matter, where they are fewer. Weights that are all 1 are left out. Raises
    BlockError when `info` is of another number of events.
    """
    _check_same(batch, info)
    rows = np.flatnonzero(info.outcome != REJECTED if chosen is None else chosen)
    if not len(rows):
        return []
    kept = None if weights is None else np.asarray(weights, np.float64)[rows]
    if kept is not None and (kept == 1).all():
        kept = None
    return [TripletSteps(batch.take(rows), kept)]


def query_and_error(batch: TripletBatch, rows: Int64s) -> tuple[Block, Block]:
    """q and e = c - s of some rows that were accepted, with the bits that the step used. Copies."""
    query, clicked, skipped = batch.query, batch.clicked, batch.skipped
    if isinstance(query, DenseBlock):
        assert isinstance(clicked, DenseBlock)
        assert isinstance(skipped, DenseBlock)
        return query.take(rows), DenseBlock(clicked.values[rows] - skipped.values[rows])
    assert isinstance(clicked, SparseBlock)
    assert isinstance(skipped, SparseBlock)
    room = _entries(clicked, rows) + _entries(skipped, rows)
    q_rows, e_rows = sparse_room(len(rows), _entries(query, rows)), sparse_room(len(rows), room)
    take_sparse(rows, query.kernel_rows(), clicked.kernel_rows(), skipped.kernel_rows(), q_rows, e_rows)
    return SparseBlock(*q_rows, query.dim), SparseBlock(*e_rows, query.dim)


def taken_steps(
    batch: TripletBatch,
    info: StepInfo,
    sides: Callable[[TripletBatch, Int64s], tuple[Block, Block]] = query_and_error,
) -> list[StepBatch]:
    """The steps that `info` tells of a batch: one `StepBatch`, or one up to each projection and the rest.

    sides: the two vectors that V of some rows is made of, with the bits that the step used. Copies; rows that
    did not update are left out. Raises BlockError when `info` is of another number of events.
    """
    _check_same(batch, info)
    steps, start = [], 0
    for end in sorted({*info.projected, len(info)}):
        rows = start + np.flatnonzero(info.outcome[start:end] == UPDATED)
        project = end in info.projected
        if len(rows) or project:
            steps.append(StepBatch(info.tau[rows], *sides(batch, rows), project))
        start = end
    return steps


def _check_same(batch: TripletBatch, info: StepInfo) -> None:
    if len(batch) != len(info):
        raise BlockError(f"{len(batch)} triplets, but a step's info of {len(info)}: give those of one call")


def _entries(block: SparseBlock, rows: Int64s) -> int:
    return int((block.indptr[rows + 1] - block.indptr[rows]).sum())


def sparse_room(rows: int, entries: int) -> tuple[Int64s, Int32s, Float32s]:
    """CSR arrays with room for so many entries: pointers of 0, indices and values that hold nothing yet."""
    return np.zeros(rows + 1, np.int64), np.empty(entries, np.int32), np.empty(entries, np.float32)
