"""What the loop hands to the step log, and applied batches as segments of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from daemon.catalogs import as_block
from learners.block import Block, DenseBlock, TripletBatch, concatenate
from learners.outcome import Outcome, StepInfo
from learners.steps import StepBatch, Steps, TripletSteps
from streams.event import Column, DenseColumn, SparseColumn
from streams.steps.segment import RankOneSteps, Taken, Triplets, layout_of


@dataclass(frozen=True, slots=True, eq=False)
class AppliedBatch:
    """One batch after its step. `first`, `last`: records before and after it, counted since version 0.

    `triplets`: the events the step saw, None when it saw none; `info`: what it did with each; `timestamps`
    int64 [n]: their event times, ms; `weights` [n]: None where all are 1; `watermark`: newest event time
    learned so far.
    """

    first: int
    last: int
    watermark: int | None
    triplets: TripletBatch | None
    info: StepInfo
    timestamps: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """A version was captured after `records`, with this newest event time."""

    records: int
    watermark: int | None


@dataclass(frozen=True, slots=True)
class Durable:
    """The version captured after `records` is durable under `number`; `digest`: of the learner's arrays
    that steps change; `writer`: token of the writer that wrote it."""

    number: int
    records: int
    digest: str
    writer: str


Item: TypeAlias = AppliedBatch | Captured | Durable


SEGMENT_BYTES = 4 << 20
"""A segment grows to about this size: a reader holds one at a time."""

TakenSteps: TypeAlias = Callable[[TripletBatch, StepInfo, NDArray[Any] | None], Sequence[Steps]]
"""The learner's `taken`."""


def size_of(body: Taken) -> int:
    """Bytes of its payload."""
    return layout_of(body).size


def nothing(records: int, watermark: int | None, dim: int) -> RankOneSteps:
    """A segment without events, to say that `records` is a cut."""
    empty = SparseColumn(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), dim)
    none = np.zeros(0, np.float32)
    return RankOneSteps(records, records, watermark, np.zeros(0, np.int64), none, empty, empty)


def as_steps(batch: AppliedBatch, dim: int, steps_of: TakenSteps) -> Iterator[Taken]:
    """What a batch did, in pieces of about `SEGMENT_BYTES`, each ending where W is projected.

    All but the last piece stand before the batch in records; the event times come with the first.
    """
    timestamps = batch.timestamps[batch.info.outcome != Outcome.REJECTED]
    taken = () if batch.triplets is None else steps_of(batch.triplets, batch.info, batch.weights)
    pieces = list(_pieces(taken))
    if not pieces:
        empty = nothing(batch.first, batch.watermark, dim)
        yield replace(empty, last=batch.last, timestamps=timestamps)
    for number, piece in enumerate(pieces):
        last = batch.last if number == len(pieces) - 1 else batch.first
        times = timestamps if number == 0 else timestamps[:0]
        yield _body(piece, batch.first, last, batch.watermark, times)


def merged(parts: Sequence[Taken]) -> Taken:
    """Consecutive steps as one; only the last may say `cut` or `project`."""
    first, last = parts[0], parts[-1]
    steps = _steps_of([part for part in parts if len(part)] or [last])
    timestamps = np.concatenate([part.timestamps for part in parts])
    body = replace(_body(steps, first.first, last.last, last.watermark, timestamps), cut=last.cut)
    return replace(body, project=last.project) if isinstance(body, RankOneSteps) else body


def _steps_of(bodies: Sequence[Taken]) -> Steps:
    last = bodies[-1]
    if isinstance(last, RankOneSteps):
        rank_one = [one for one in bodies if isinstance(one, RankOneSteps)]
        tau = np.concatenate([one.tau for one in rank_one])
        query, error = _joined([one.query for one in rank_one]), _joined([one.error for one in rank_one])
        return StepBatch(tau, query, error)
    triplets = [one for one in bodies if isinstance(one, Triplets)]
    roles = [[getattr(one, role) for one in triplets] for role in ("query", "clicked", "skipped")]
    weights = None
    if any(one.weights is not None for one in triplets):
        given = [np.ones(len(one)) if one.weights is None else one.weights for one in triplets]
        weights = np.concatenate(given)
    numbers = _whole([one.numbers for one in triplets])
    return TripletSteps(
        TripletBatch(*map(_joined, roles), keys=_whole([one.keys for one in triplets])), weights, numbers
    )


def _whole(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """The parts concatenated; None where there are none: either all parts have some or no part has."""
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None


def _joined(columns: Sequence[Column]) -> Block:
    blocks = [as_block(column) for column in columns]
    return blocks[0] if len(blocks) == 1 else concatenate(blocks)


def _body(steps: Steps, first: int, last: int, watermark: int | None, timestamps: NDArray[np.int64]) -> Taken:
    if isinstance(steps, StepBatch):
        rows = _column(steps.query), _column(steps.error)
        return RankOneSteps(first, last, watermark, timestamps, steps.tau, *rows, project=steps.project)
    batch = steps.batch
    roles = _column(batch.query), _column(batch.clicked), _column(batch.skipped)
    head = (first, last, watermark, timestamps, steps.weights)
    return Triplets(*head, *roles, numbers=steps.numbers, keys=batch.keys)


def _pieces(taken: Sequence[Steps]) -> Iterator[Steps]:
    for steps in taken:
        count = max(1, -(-_bytes(steps) // SEGMENT_BYTES))
        rows = max(1, -(-len(steps) // count))
        for start in range(0, max(1, len(steps)), rows):
            yield steps.slice(start, start + rows)


def _bytes(steps: Steps) -> int:
    if isinstance(steps, StepBatch):
        return steps.query.nbytes + steps.error.nbytes
    return triplet_bytes(steps.batch)


def triplet_bytes(batch: TripletBatch) -> int:
    """Bytes of its vectors."""
    return batch.query.nbytes + batch.clicked.nbytes + batch.skipped.nbytes


def _column(block: Block) -> Column:
    if isinstance(block, DenseBlock):
        return DenseColumn(block.values)
    return SparseColumn(block.indptr, block.indices, block.values, block.dim)
