"""A reader of the step log that checks everything and replays: what a replica does, as plainly as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from checkpoints import Version, array_digest
from learners.block import Block, DenseBlock, SparseBlock
from learners.oasis import Oasis, OasisConfig
from learners.steps import StepBatch
from streams.event import Column, DenseColumn
from streams.open import open_source
from streams.source import Address
from streams.steps.codec import Joiner
from streams.steps.segment import GENESIS, Base, Break, RankOneSteps, Segment


def values_of(address: Address) -> list[bytes | None]:
    """Every record of a step log."""
    source = open_source(address)
    try:
        bounds = source.bounds()
        source.assign({0: bounds[0][0]})
        found: list[bytes | None] = []
        while source.reached()[0] < bounds[0][1]:
            batch = source.poll(1000, 5.0)
            if batch is not None:
                found += batch.values
    finally:
        source.close()
    return found


def segments(values: Iterable[bytes | None]) -> Iterator[Segment]:
    """The segments, those sent twice once, and each on the chain of its epoch."""
    joiner, ends = Joiner(), {}  # type: ignore[var-annotated]
    for value in values:
        segment = joiner.feed(value)
        if segment is None:
            continue
        seq, chain = ends.get(segment.place.epoch, (0, GENESIS))
        if segment.place.seq < seq:
            continue
        assert segment.place.seq == seq, "a segment is missing"
        assert segment.before == chain, "it does not hang on the one before"
        ends[segment.place.epoch] = seq + 1, segment.after
        yield segment


def followed(
    version: Version, told: Iterable[Segment], config: OasisConfig | None = None
) -> dict[int, np.ndarray]:
    """W of every later version that replaying reaches from `version`, each checked by its base."""
    manifest = version.manifest
    learner = Oasis.from_state(version.arrays, config or OasisConfig())
    records, cuts, reached, on = int(manifest.counters.get("records", 0)), {}, {}, False
    for segment in told:
        if segment.place.epoch != manifest.epoch and segment.place.run != manifest.number:
            continue
        body = segment.body
        if segment.place.seq == 0:
            digest = array_digest(learner.W)
            on = body == Base(manifest.number, records, GENESIS, digest, manifest.writer)
            cuts.clear()
        elif isinstance(body, Break):
            on = False
        elif isinstance(body, RankOneSteps):
            on = on or body.first == records
            if on:
                learner.replay(step_batch(body))
            if on and body.cut:
                cuts[body.last] = (segment.after, learner.W.copy())
        elif body.records in cuts:
            chain, W = cuts[body.records]
            assert (body.chain, body.digest) == (chain, array_digest(W)), "the copy is not the version"
            reached[body.number] = W
    return reached


def step_batch(body: RankOneSteps) -> StepBatch:
    """Steps as a learner takes them."""
    return StepBatch(body.tau, _block(body.query), _block(body.error), body.project)


def bodies(told: Iterable[Segment], kind: type) -> list:  # type: ignore[type-arg]
    """The bodies of one kind."""
    return [segment.body for segment in told if isinstance(segment.body, kind)]


def _block(column: Column) -> Block:
    if isinstance(column, DenseColumn):
        return DenseBlock(column.values)
    return SparseBlock(column.indptr, column.indices, column.values, column.dim)


__all__ = ["Base", "Break", "RankOneSteps", "bodies", "followed", "segments", "step_batch", "values_of"]
