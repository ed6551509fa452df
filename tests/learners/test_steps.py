"""Steps taken again: what a learner did, told as steps, gives another copy the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from learners import (
    BlockError,
    DenseBlock,
    Oasis,
    OasisConfig,
    SparseBlock,
    StepBatch,
    StepInfo,
    TripletBatch,
    as_block,
    taken_steps,
)

from .examples import block, dense, rows, triplets

DIM = 12
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


@KINDS
def test_the_error_is_clicked_minus_skipped_of_the_events_that_updated(kind: str) -> None:
    batch = triplets(5, 30, DIM, kind)
    learner = Oasis(DIM)
    info = learner.learn_many(batch)
    (steps,) = taken_steps(batch, info)
    updated = info.outcome == 0
    assert 0 < len(steps) == updated.sum() < len(batch), "examples that update, and some that do not"
    assert steps.tau.tolist() == info.tau[updated].tolist()
    expected = dense(batch.clicked).astype(np.float32) - dense(batch.skipped).astype(np.float32)
    assert np.array_equal(dense(steps.error), expected[updated])
    assert np.array_equal(dense(steps.query), dense(batch.query)[updated])


@KINDS
def test_the_largest_difference_that_a_step_takes_is_replayed(kind: str) -> None:
    far = np.zeros((1, DIM), np.float32)
    far[0, 1] = 1e18
    parts = [block(rows, kind) for rows in (far * np.float32(1e-36), -far, far)]
    learner, copy = Oasis(DIM), Oasis(DIM)
    batch = TripletBatch(*parts)
    (steps,) = taken_steps(batch, learner.learn_many(batch))
    assert dense(steps.error).min() < -1e18, "beyond what a vector may hold"
    copy.replay(steps)
    assert copy.W.tobytes() == learner.W.tobytes()


def test_a_projection_is_told_at_its_place_also_when_nothing_updated_before_it() -> None:
    learner = Oasis(DIM, OasisConfig(psd_every=7))
    passive = triplets(1, 7, DIM, "dense")
    passive = type(passive)(passive.query, passive.clicked, passive.clicked)
    steps = taken_steps(passive, learner.learn_many(passive))
    assert [(len(one), one.project) for one in steps] == [(0, True)]
    batch = triplets(3, 14, DIM, "dense")
    told = taken_steps(batch, learner.learn_many(batch))
    assert [one.project for one in told] == [True, True]


@KINDS
def test_a_malformed_step_is_refused_by_its_number_and_those_before_it_stand(kind: str) -> None:
    values = rows(np.random.default_rng(2), 3, DIM, share=1.0)
    error = values.copy()
    error[2, 4] = np.nan
    learner, expected = Oasis(DIM), Oasis(DIM)
    with pytest.raises(BlockError, match="step 2 of 3"):
        learner.replay(StepBatch(np.ones(3, np.float32), block(values, kind), block(error, kind)))
    expected.replay(StepBatch(np.ones(2, np.float32), block(values[:2], kind), block(values[:2], kind)))
    assert learner.W.tobytes() == expected.W.tobytes()
    with pytest.raises(BlockError, match="step 0 of 1"):
        learner.replay(
            StepBatch(np.full(1, np.inf, np.float32), block(values[:1], kind), block(values[:1], kind))
        )


@pytest.mark.parametrize("index", [-1, DIM, 2**31 - 1])
def test_an_index_outside_w_is_never_written(index: int) -> None:
    def one(column: int) -> SparseBlock:
        return SparseBlock(np.array([0, 1]), np.array([column], np.int32), np.ones(1, np.float32), DIM)

    learner = Oasis(DIM)
    before = learner.W.tobytes()
    for query, error in ((one(index), one(0)), (one(0), one(index))):
        with pytest.raises(BlockError, match="step 0 of 1"):
            learner.replay(StepBatch(np.ones(1, np.float32), query, error))
    assert learner.W.tobytes() == before


def test_steps_that_do_not_fit_are_refused() -> None:
    one, two = as_block(np.ones((1, DIM), np.float32)), as_block(np.ones((2, DIM), np.float32))
    tau = np.ones(1, np.float32)
    with pytest.raises(BlockError, match="1 step sizes, 2 queries"):
        StepBatch(tau, two, one)
    with pytest.raises(BlockError, match="kind or dimension"):
        StepBatch(tau, one, DenseBlock(np.ones((1, 3), np.float32)))
    three = as_block(np.ones((1, 3), np.float32))
    with pytest.raises(BlockError, match="3 dimensions, the learner 12"):
        Oasis(DIM).replay(StepBatch(tau, three, three))
    with pytest.raises(BlockError, match="info of 0"):
        taken_steps(triplets(1, 2, DIM, "dense"), StepInfo.empty(0))
