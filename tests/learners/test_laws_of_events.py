"""Laws of every learner: what is malformed, extreme or meaningless stops nothing and spoils nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from learners import PASSIVE, REJECTED, BlockError, Reason, SparseBlock, TripletBatch

from .examples import block, malformed, rows, triplets
from .learners_under_test import EACH_IMPLEMENTATION, EACH_IMPLEMENTATION_INPUT, EVERY_INPUT
from .under_test import DIM, UnderTest, bits


@EACH_IMPLEMENTATION_INPUT
def test_malformed_events_change_no_bit_and_the_rest_is_learned(subject: UnderTest, kind: str) -> None:
    cases = malformed(kind, DIM)
    good, learner, clean = triplets(3, len(cases), DIM, kind), subject.make(), subject.make()
    for t, (bad, reason) in enumerate(cases):
        before = bits(learner)
        info = learner.learn_many(bad)
        assert info.outcome.tolist() == [REJECTED]
        assert info.reason.tolist() == [reason]
        assert info.loss[0] == info.tau[0] == 0
        assert not learner.taken(bad, info)
        assert bits(learner) == before
        learner.learn_many(good.slice(t, t + 1))
        clean.learn_many(good.slice(t, t + 1))
    assert bits(learner) == bits(clean)


@EACH_IMPLEMENTATION_INPUT
def test_a_malformed_weight_rejects_its_event(subject: UnderTest, kind: str) -> None:
    reasons = {
        np.nan: Reason.NOT_FINITE,
        np.inf: Reason.NOT_FINITE,
        -1: Reason.MAGNITUDE,
        1e30: Reason.MAGNITUDE,
    }
    learner = subject.make()
    before = bits(learner)
    for weight, reason in reasons.items():
        info = learner.learn_many(triplets(0, 1, DIM, kind), np.array([weight]))
        assert (info.outcome[0], info.reason[0]) == (REJECTED, reason), weight
        assert bits(learner) == before, weight


@EACH_IMPLEMENTATION_INPUT
def test_a_weight_of_0_makes_an_event_passive(subject: UnderTest, kind: str) -> None:
    learner, items = subject.make(), block(rows(np.random.default_rng(1), 9, DIM, 1.0), kind)
    before = learner.similarity(items, items)
    info = learner.learn_many(triplets(0, 6, DIM, kind), np.zeros(6))
    assert info.outcome.tolist() == [PASSIVE] * 6
    np.testing.assert_allclose(learner.similarity(items, items), before, atol=1e-6)


@EVERY_INPUT
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_any_finite_values_leave_the_state_finite(subject: UnderTest, kind: str, seed: int) -> None:
    rng, dim = np.random.default_rng(seed), max(3, subject.least_dim)
    learner = subject.make(dim)
    info = learner.learn_many(TripletBatch(*(block(of_any_size(rng, 24, dim), kind) for _ in range(3))))
    for name, array in learner.state().items():
        assert np.isfinite(array).all(), name
    assert np.isfinite(info.tau).all()
    assert np.isfinite(info.loss).all()
    assert not np.any(info.outcome == REJECTED)


EDGES = np.array([0.0, 1.0, -1.0, 1e-45, -1e-38, 2.0**59, -(2.0**59), 9e17], np.float32)


def of_any_size(rng: np.random.Generator, n: int, dim: int) -> NDArray[np.float32]:
    """Rows of values of any exponent that is let in, many of them at its edges; often some alone are huge."""
    anywhere = rng.choice([-1.0, 1.0], (n, dim)) * 2.0 ** rng.uniform(-149, 59, (n, dim))
    usual = rng.standard_normal((n, dim))
    kinds = rng.choice(3, (n, dim), p=rng.dirichlet([1, 1, 1]))
    return np.choose(kinds, [rng.choice(EDGES, (n, dim)), anywhere, usual]).astype(np.float32)


@EVERY_INPUT
def test_clicked_equal_to_skipped_has_no_direction(subject: UnderTest, kind: str) -> None:
    """Whatever it is called, it moves no score of what it names, and a stream of it stays finite."""
    learner, vectors = subject.make(), block(rows(np.random.default_rng(1), 3, DIM, 1.0), kind)
    learner.learn_many(triplets(0, 10, DIM, kind))
    info = learner.learn_many(TripletBatch(vectors, vectors, vectors))
    np.testing.assert_allclose(info.loss, 1.0, atol=1e-6)
    assert all(np.isfinite(array).all() for array in learner.state().values())


@EACH_IMPLEMENTATION
def test_one_row_of_anything_is_one_event(subject: UnderTest) -> None:
    vectors = rows(np.random.default_rng(1), 3, DIM, 1.0)
    given_as = []
    if "dense" in subject.inputs:
        given_as += [[*vectors], [v[None].astype(np.float64) for v in vectors], [v.tolist() for v in vectors]]
    if "sparse" in subject.inputs:
        given_as += [[sparse.csr_matrix(v) for v in vectors], [sparse.csr_array(v[None]) for v in vectors]]
    for way in given_as:
        learner = subject.make()
        assert len(learner.learn_one(*way)) == 1
    with pytest.raises(BlockError, match="learn_many"):
        subject.make().learn_one(*(block(vectors, subject.inputs[0]),) * 3)


@EACH_IMPLEMENTATION
def test_what_does_not_fit_is_refused_and_changes_nothing(subject: UnderTest) -> None:
    kind, learner = subject.inputs[0], subject.make()
    before = bits(learner)
    with pytest.raises(BlockError, match=f"{DIM + 1} dim"):
        learner.learn_many(triplets(0, 2, DIM + 1, kind))
    for weights in (np.ones(3), np.ones((2, 2))):
        with pytest.raises(BlockError, match="weights"):
            learner.learn_many(triplets(0, 2, DIM, kind), weights)
    batch = triplets(0, 2, DIM, kind)
    info = subject.make().learn_many(batch)
    with pytest.raises(BlockError, match="info of 2"):
        learner.taken(batch.slice(0, 1), info)
    other = triplets(0, 2, DIM + 1, kind).query
    with pytest.raises(BlockError, match="dimensions"):
        learner.similarity(other, batch.query)
    with pytest.raises(BlockError, match="dimensions"):
        learner.similarity(batch.query, other)
    assert bits(learner) == before


@EACH_IMPLEMENTATION
def test_an_index_outside_is_never_scored(subject: UnderTest) -> None:
    good, learner = block(np.ones((1, DIM), np.float32), "sparse"), subject.make()
    for index in (-1, DIM, 2**31 - 1):
        bad = SparseBlock(np.array([0, 1]), np.array([index], np.int32), np.ones(1, np.float32), DIM)
        for pair in ((bad, good), (good, bad)):
            with pytest.raises(BlockError, match="row 0"):
                learner.similarity(*pair)
