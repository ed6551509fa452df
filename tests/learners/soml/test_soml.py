"""SOML computes what the textbook loop over all coordinates computes, without looping over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import (
    PASSIVE,
    REJECTED,
    UPDATED,
    BlockError,
    Outcome,
    Reason,
    SparseBlock,
    StepBatch,
    TripletBatch,
)
from learners.errors import ConfigError, StateError
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from tests.learners.examples import block, dense, matrices, triplets
from tests.learners.oracle_soml import SomlDaOracle, SomlTgOracle

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
PAPER = SomlDaConfig(gamma=1e-4)
BOTH = pytest.mark.parametrize("learner", [SomlTg, SomlDa])

STREAM = {
    "seed": st.integers(0, 2**32 - 1),
    "dim": st.integers(1, 30),
    "n": st.integers(0, 200),
}


def agree(learner, oracle, batch, weights):
    """State, loss and step of a batch, within 1e-9 of the largest weight."""
    info = learner.learn_many(batch, weights)
    steps = [oracle.step(*row, weight=weight) for *row, weight in zip(*matrices(batch), weights, strict=True)]
    scale = max(1.0, np.abs(oracle.w).max())
    np.testing.assert_allclose(learner.weights(), oracle.w, atol=1e-9 * scale, rtol=0)
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(info.tau, [step.tau for step in steps], rtol=1e-6)


@KINDS
@given(
    **STREAM,
    gamma=st.sampled_from([1e-4, 1e-2, 0.3]),
    rho=st.sampled_from([0.0, 1.0, 3.0]),
    lam=st.sampled_from([0.0, 1e-6, 1e-3]),
)
@settings(max_examples=60, deadline=None)
def test_dual_averaging_equals_the_dense_loop(kind, seed, dim, n, gamma, rho, lam):
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], n)
    learner = SomlDa(dim, SomlDaConfig(gamma, rho, lam))
    agree(learner, SomlDaOracle(dim, gamma, rho, lam), triplets(seed, n, dim, kind), weights)


@KINDS
@given(**STREAM, eta=st.sampled_from([0.01, 1.0, 7.0]), lam=st.sampled_from([0.0, 1e-5, 1e-2]))
@settings(max_examples=60, deadline=None)
def test_truncated_gradient_equals_the_dense_loop(kind, seed, dim, n, eta, lam):
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], n)
    learner = SomlTg(dim, SomlTgConfig(eta, lam))
    agree(learner, SomlTgOracle(dim, eta, lam), triplets(seed, n, dim, kind), weights)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_long_stream_stays_with_the_dense_loop(kind):
    """Settings under which many coordinates go to 0 and come back."""
    batch, ones = triplets(1, 5_000, 40, kind), np.ones(5_000)
    agree(SomlTg(40, SomlTgConfig(0.1, 0.01)), SomlTgOracle(40, 0.1, 0.01), batch, ones)
    agree(SomlDa(40, SomlDaConfig(0.1, 0.5, 1e-4)), SomlDaOracle(40, 0.1, 0.5, 1e-4), batch, ones)


@BOTH
def test_sparse_and_dense_rows_give_the_same_bits(learner):
    learned = []
    for kind in ("dense", "sparse"):
        made = learner(25)
        made.learn_many(triplets(3, 500, 25, kind))
        learned.append({name: array.tobytes() for name, array in made.state().items()})
    assert learned[0] == learned[1]


@BOTH
@KINDS
def test_a_click_raises_the_margin_of_its_triplet(learner, kind):
    """The sign printed in the paper's equations 12 and 15 would lower it."""
    made, batch = learner(20), triplets(5, 1, 20, kind)
    made.learn_many(batch)
    scores = [made.similarity(batch.query, part)[0, 0] for part in (batch.clicked, batch.skipped)]
    assert scores[0] > scores[1]


def one(*rows, kind="sparse"):
    return TripletBatch(*(block(np.float32([row]), kind) for row in rows))


@KINDS
def test_an_event_without_a_common_column_is_a_violating_round(kind):
    nothing, something = one([1, 0], [0, 1], [0, 3], kind=kind), one([1, 0], [1, 0], [0, 1], kind=kind)
    tg, da = SomlTg(2, SomlTgConfig(eta=1, lam=0.25)), SomlDa(2)
    for learner in (tg, da):
        learner.learn_many(something)
        assert learner.learn_many(nothing).outcome.tolist() == [UPDATED]
    assert tg.violations == 2
    assert tg.weights().tolist() == [0.5, 0]
    assert (da.rounds, da.violated) == (2, 2)
    assert da.G.tolist() == [-1, 0]


def test_the_share_of_zeros_counts_what_the_paper_counts():
    learner = SomlTg(5)
    assert learner.sparsity() == 1
    learner.w[:] = [0, 1e-10, -1e-10, -1.1e-10, 3]
    assert learner.sparsity() == 0.6


@KINDS
def test_passive_rounds_count_for_the_mean_alone_and_events_of_weight_0_not_at_all(kind):
    learner, event = SomlDa(2, SomlDaConfig(gamma=0.01, rho=0, lam=0)), one([1, 0], [1, 0], [0, 1], kind=kind)
    learner.learn_many(event)
    w = learner.weights()
    info = learner.learn_many(event)
    assert info.outcome.tolist() == [PASSIVE]
    assert (learner.rounds, learner.violated) == (2, 1)
    np.testing.assert_array_equal(learner.weights(), w)
    learner.learn_many(one([1, 0], [0, 1], [1, 0], kind=kind), np.zeros(1))
    learner.learn_many(one([np.nan, 0], [0, 1], [1, 0], kind=kind))
    assert (learner.rounds, learner.violated) == (2, 1)
    learner.learn_many(one([0, 1], [0, 1], [1, 0], kind=kind))
    assert (learner.rounds, learner.violated) == (3, 3)
    assert learner.weights()[0] == pytest.approx(100 / np.sqrt(3))


@KINDS
def test_an_unread_coordinate_misses_no_shrinking_and_stops_at_0(kind):
    learner = SomlTg(3, SomlTgConfig(eta=1, lam=0.125))
    learner.learn_many(one([1, 0, 0], [1, 0, 0], [0, 0, 1], kind=kind))
    learner.learn_many(one([0, -1, 0], [0, 0.5, 0], [0, 0, 1], kind=kind))
    seen = []
    for _ in range(8):
        seen.append(learner.weights().tolist())
        learner.learn_many(one([0, 0, 1], [0, 1, 0], [1, 0, 0], kind=kind))
    assert [w[0] for w in seen] == [0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0]
    assert [w[1] for w in seen] == [-0.375, -0.25, -0.125, 0, 0, 0, 0, 0]
    assert learner.w.tolist() == [1, -0.5, 0]
    assert learner.shrunk.tolist() == [0, 1, 0]


def test_the_sum_of_subgradients_does_not_stall():
    """0.01 added for ever to a float32 stops at 262,144."""
    learner = SomlDa.from_state(
        {"G": np.float64([-262_144.0]), "rounds": np.int64(9), "violated": np.int64(9)}
    )
    learner.learn_many(one([0.1], [0], [0.1]))
    assert learner.G[0] == pytest.approx(-262_144 + 0.01, abs=1e-9)


@BOTH
@KINDS
def test_a_step_writes_no_coordinate_that_its_event_does_not_hold(learner, kind):
    made, batch = learner(9), triplets(4, 60, 8, kind)
    parts = zip((batch.query, batch.clicked, batch.skipped), (0, 5, 7), strict=True)
    wider = TripletBatch(*(block(np.c_[dense(part), np.full(60, only)], kind) for part, only in parts))
    vector = made.G if learner is SomlDa else made.w
    vector[8] = 0.5
    info = made.learn_many(wider)
    assert info.count(Outcome.UPDATED) > 10
    assert vector[8] == 0.5
    if learner is SomlTg:
        assert made.shrunk[8] == 0


@BOTH
def test_weights_scale_the_subgradient_not_the_shrinking(learner):
    batch = one([1, 0, 1], [1, 0, 0], [0, 0, 0.5])
    plain, heavy = learner(3), learner(3)
    plain.learn_many(batch)
    assert heavy.learn_many(batch, np.array([3.0])).tau[0] == 3
    name = "G" if learner is SomlDa else "w"
    np.testing.assert_array_equal(heavy.state()[name], 3 * plain.state()[name])
    if learner is SomlTg:
        np.testing.assert_allclose(heavy.weights()[0], 3 - 1e-5)


@given(seed=st.integers(0, 2**32 - 1), held=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_any_overlap_of_the_three_index_lists_is_found(seed, held):
    """Long rows in few columns, from none in common to all."""
    rng = np.random.default_rng(seed)
    parts = [np.float32(rng.integers(-2, 3, (6, 130)) * (rng.random((6, 130)) < held)) for _ in range(3)]
    made = {kind: SomlDa(130, PAPER) for kind in ("dense", "sparse")}
    for kind, learner in made.items():
        learner.learn_many(TripletBatch(*(block(part, kind) for part in parts)))
    assert made["sparse"].G.tobytes() == made["dense"].G.tobytes()


@BOTH
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("indices", "values", "reason"),
    [
        ([0, 4], [1, 1], Reason.INDEX_OUT_OF_RANGE),
        ([-1, 2], [1, 1], Reason.INDEX_OUT_OF_RANGE),
        ([3, 2], [1, 1], Reason.INDICES_NOT_INCREASING),
        ([2, 2], [1, 1], Reason.INDICES_NOT_INCREASING),
        ([0, 3], [1, np.nan], Reason.NOT_FINITE),
        ([0, 3], [-np.inf, 1], Reason.NOT_FINITE),
        ([0, 3], [1, 1.1e18], Reason.MAGNITUDE),
    ],
)
def test_a_malformed_row_is_named_and_changes_nothing(learner, place, indices, values, reason):
    good = block(np.float32([[1, 0, 0, 1]]), "sparse")
    bad = SparseBlock(np.array([0, 2]), np.int32(indices), np.float32(values), 4)
    made = learner(4)
    info = made.learn_many(TripletBatch(*(bad if at == place else good for at in range(3))))
    assert (info.outcome[0], info.reason[0]) == (REJECTED, reason)
    assert not any(array.any() for array in made.state().values())


@BOTH
def test_steps_of_another_kind_or_malformed_are_refused(learner):
    made, batch = learner(5), triplets(0, 3, 5, "sparse")
    with pytest.raises(BlockError, match="taken"):
        made.replay(StepBatch(np.ones(3), batch.query, batch.clicked))
    steps = made.taken(batch, made.learn_many(batch))[0]
    with pytest.raises(BlockError, match="dimensions"):
        learner(6).replay(steps)
    steps.batch.clicked.values[:] = np.nan
    with pytest.raises(BlockError, match="step 0 of 3"):
        learner(5).replay(steps)


@BOTH
def test_scoring_takes_any_pair_of_kinds(learner):
    made, batch = learner(9), triplets(2, 40, 9, "dense")
    made.learn_many(batch)
    q, c = batch.query.values, batch.clicked.values
    expected = (q * made.weights()) @ c.T
    for left in ("dense", "sparse"):
        for right in ("dense", "sparse"):
            scores = made.similarity(block(q, left), block(c, right))
            assert scores.dtype == np.float32
            np.testing.assert_allclose(scores, expected, atol=1e-4 * np.abs(expected).max())


def state(**changes):
    return {"w": np.zeros(3), "shrunk": np.zeros(3, np.int64), "violations": np.int64(4), **changes}


@pytest.mark.parametrize(
    ("learner", "arrays", "word"),
    [
        (SomlTg, {}, "w is missing"),
        (SomlTg, state(w=np.zeros((2, 2))), "w has shape"),
        (SomlTg, state(w=np.zeros(3, np.float32)), "w has dtype"),
        (SomlTg, state(w=np.full(3, np.inf)), "w holds"),
        (SomlTg, state(shrunk=np.zeros(2, np.int64)), "shrunk has shape"),
        (SomlTg, state(shrunk=np.full(3, 5)), "shrunk holds"),
        (SomlTg, state(shrunk=np.full(3, -1)), "shrunk holds"),
        (SomlTg, state(violations=np.int64(-1)), "violations must"),
        (SomlDa, {"G": np.zeros(3)}, "rounds is missing"),
        (SomlDa, {"G": np.zeros(3), "rounds": np.int64(1), "violated": np.float64(1)}, "violated must"),
        (SomlDa, {"G": np.zeros(3), "rounds": np.int64(1), "violated": np.int64(2)}, "violated is 2"),
        (SomlDa, {"G": np.zeros(0), "rounds": np.int64(1), "violated": np.int64(0)}, "G has shape"),
    ],
)
def test_arrays_that_are_no_state_are_refused_by_name(learner, arrays, word):
    with pytest.raises(StateError, match=word):
        learner.from_state({name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize(
    ("config", "settings_", "word"),
    [
        (SomlTgConfig, {"eta": 0}, "eta"),
        (SomlTgConfig, {"lam": -1e-9}, "lam"),
        (SomlTgConfig, {"eta": np.nan}, "eta"),
        (SomlDaConfig, {"gamma": 1e-19}, "gamma"),
        (SomlDaConfig, {"gamma": np.inf}, "gamma"),
        (SomlDaConfig, {"rho": np.nan}, "rho"),
        (SomlDaConfig, {"lam": 1e30}, "lam"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(config, settings_, word):
    with pytest.raises(ConfigError, match=word):
        config(**settings_)


@BOTH
@KINDS
def test_the_largest_numbers_leave_the_state_finite(learner, kind):
    made = learner(3, SomlDaConfig(gamma=1e-18) if learner is SomlDa else SomlTgConfig(eta=1e18, lam=1e18))
    huge = np.float32([[9.9e17, -9.9e17, 1e-38]])
    for batch in (one(huge[0], huge[0], -huge[0], kind=kind), one(huge[0], -huge[0], huge[0], kind=kind)):
        info = made.learn_many(batch, np.array([1e18]))
        assert REJECTED not in info.outcome.tolist()
        assert np.isfinite(made.weights()).all()
        assert np.isfinite(info.loss).all()
