"""Applied batches to the segments that tell of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from daemon.learn.steps.applied import AppliedBatch
from daemon.objects.mapped import as_block
from learners.block import Block, DenseBlock, concatenate
from learners.outcome import Outcome
from learners.steps import StepBatch, taken_steps
from streams.steps.payload import layout_of
from streams.steps.segment import Steps
from streams.vectors import Column, DenseColumn, SparseColumn

SEGMENT_BYTES = 4 << 20
"""A segment grows to about this size: a reader holds one at a time."""


def size_of(steps: Steps) -> int:
    """Bytes of its payload."""
    return layout_of(steps).size


def nothing(records: int, watermark: int | None, dim: int) -> Steps:
    """A segment without events, to say that `records` is a cut."""
    empty = SparseColumn(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), dim)
    none = np.zeros(0, np.float32)
    return Steps(records, records, watermark, np.zeros(0, np.int64), none, empty, empty)


def as_steps(batch: AppliedBatch, dim: int) -> Iterator[Steps]:
    """What a batch did, in pieces of about `SEGMENT_BYTES`, each ending where W is projected.

    All but the last piece stand before the batch in records; the event times come with the first.
    """
    timestamps = batch.timestamps[batch.info.outcome != Outcome.REJECTED]
    pieces = [] if batch.triplets is None else list(_pieces(taken_steps(batch.triplets, batch.info)))
    if not pieces:
        empty = nothing(batch.first, batch.watermark, dim)
        yield Steps(batch.first, batch.last, batch.watermark, timestamps, empty.tau, empty.query, empty.error)
    for number, piece in enumerate(pieces):
        last = batch.last if number == len(pieces) - 1 else batch.first
        yield Steps(
            batch.first,
            last,
            batch.watermark,
            timestamps if number == 0 else timestamps[:0],
            piece.tau,
            _column(piece.query),
            _column(piece.error),
            project=piece.project,
        )


def merged(parts: Sequence[Steps]) -> Steps:
    """Consecutive steps as one; only the last may say `cut` or `project`."""
    first, last = parts[0], parts[-1]
    told = [part for part in parts if len(part)] or [last]
    if len(told) == 1:
        query, error, tau = told[0].query, told[0].error, told[0].tau
    else:
        query = _column(concatenate([as_block(part.query) for part in told]))
        error = _column(concatenate([as_block(part.error) for part in told]))
        tau = np.concatenate([part.tau for part in told])
    timestamps = np.concatenate([part.timestamps for part in parts])
    return Steps(
        first.first, last.last, last.watermark, timestamps, tau, query, error, last.cut, last.project
    )


def _pieces(taken: Sequence[StepBatch]) -> Iterator[StepBatch]:
    for steps in taken:
        count = max(1, -(-(steps.query.nbytes + steps.error.nbytes) // SEGMENT_BYTES))
        rows = max(1, -(-len(steps) // count))
        for start in range(0, max(1, len(steps)), rows):
            yield steps.slice(start, start + rows)


def _column(block: Block) -> Column:
    if isinstance(block, DenseBlock):
        return DenseColumn(block.values)
    return SparseColumn(block.indptr, block.indices, block.values, block.dim)
