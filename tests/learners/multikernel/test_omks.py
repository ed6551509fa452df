"""OKS and OMKS over a support set: the formulas, for every cut of a stream, and what they come down to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import DEGENERATE, REJECTED, UPDATED, Oasis, OasisConfig, Outcome, TripletBatch, as_block
from learners.hedge import HedgeConfig
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel

from ..examples import block, matrices, rows, triplets
from ..oracle_oks import OksOracle
from .setups import ALL, DIM, EDGES, GAMMA, bits, kernel_of, learner, oracle

RULES = pytest.mark.parametrize("rule", ["hedge", "share", "discount", "margins", "uniform"])
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


def whole_views(seed: int, n: int) -> TripletBatch:
    """Triplets without a missing view."""
    rng = np.random.default_rng(seed)
    return TripletBatch(*(as_block(rng.standard_normal((n, DIM)).astype(np.float32) / 3) for _ in range(3)))


@RULES
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=3, deadline=None)
def test_it_equals_the_oracle(rule: str, seed: int) -> None:
    batch, one = whole_views(seed, 15), learner(rule)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], 15)
    slow = oracle(one.config)
    info = one.learn_many(batch, weights)
    steps = [slow.step(*event, weight) for *event, weight in zip(*matrices(batch), weights, strict=True)]
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=2e-4)
    np.testing.assert_allclose(info.tau, [step.tau for step in steps], rtol=1e-3, atol=1e-6)
    queries, items = (rows(np.random.default_rng(seed + n), 4, DIM, share=1.0) for n in (1, 2))
    expected = [[slow.score(q, p) for p in items.astype(float)] for q in queries.astype(float)]
    np.testing.assert_allclose(one.similarity(queries, items), expected, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: f"{kernel.kind}-{kernel.sigma}")
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
def test_one_kernel_is_oks(kernel: KernelConfig, seed: int) -> None:
    batch = triplets(seed, 25, DIM, "sparse")
    one = Omks(DIM, one_kernel(DIM, kernel, triplets=40, objects=120, gamma=GAMMA))
    slow = OksOracle(kernel_of(kernel))
    info = one.learn_many(batch)
    steps = [slow.step(*event) for event in zip(*matrices(batch), strict=True)]
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=1e-4)
    kept = np.abs(info.tau - [step.tau for step in steps]) < 1e-4
    assert kept.all()


def test_before_any_event_the_similarity_is_the_kernel() -> None:
    rng = np.random.default_rng(3)
    x, y = rows(rng, 5, DIM, share=1.0), rows(rng, 40, DIM, share=1.0)
    for kernel in ALL:
        scores = Omks(DIM, one_kernel(DIM, kernel, gamma=GAMMA)).similarity(x, y)
        slow = kernel_of(kernel)
        expected = [[slow(a, b) for b in y.astype(float)] for a in x.astype(float)]
        np.testing.assert_allclose(scores, expected, rtol=2e-6, atol=1e-6)


@KINDS
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_oks_with_the_linear_kernel_is_oasis(kind: str, seed: int) -> None:
    batch = triplets(seed, 60, DIM, kind)
    oks = Omks(DIM, one_kernel(DIM, KernelConfig("linear"), triplets=60, objects=180))
    oasis = Oasis(DIM, OasisConfig())
    ours, theirs = oks.learn_many(batch), oasis.learn_many(batch)
    np.testing.assert_array_equal(ours.outcome, theirs.outcome)
    np.testing.assert_allclose(ours.loss, theirs.loss, atol=1e-5)
    np.testing.assert_allclose(ours.tau, theirs.tau, atol=1e-5)
    scores = oks.similarity(batch.query, batch.clicked)
    np.testing.assert_allclose(scores, oasis.similarity(batch.query, batch.clicked), atol=1e-5)


def test_omks_with_one_kernel_is_oks_whatever_weighs_it() -> None:
    view = (ViewKernels(0, DIM, (KernelConfig(),), GAMMA),)
    taught = [Omks(DIM, OmksConfig(view, hedge=HedgeConfig(rule))) for rule in ("hedge", "share", "uniform")]
    alone = Omks(DIM, one_kernel(DIM, KernelConfig(), gamma=GAMMA))
    batch = triplets(5, 80, DIM, "dense")
    alone.learn_many(batch)
    for one in taught:
        one.learn_many(batch)
        np.testing.assert_allclose(one.theta, [1.0])
        assert one.state()["tau"].tobytes() == alone.state()["tau"].tobytes()
        assert (
            one.similarity(batch.query, batch.clicked).tobytes()
            == alone.similarity(batch.query, batch.clicked).tobytes()
        )


@RULES
@KINDS
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 60), max_size=5))
@settings(max_examples=5, deadline=None)
def test_identical_bits_for_every_cut_also_over_the_budget(
    rule: str, kind: str, seed: int, cuts: list[int]
) -> None:
    batch = triplets(seed, 60, DIM, kind)
    weights = np.random.default_rng(seed).choice(
        [0.0, 1.0, 2.0, -1.0, np.nan], 60, p=[0.1, 0.6, 0.1, 0.1, 0.1]
    )
    whole, split, single = (learner(rule, triplets=7, objects=20) for _ in range(3))
    info = whole.learn_many(batch, weights)
    for start, stop in pairwise([0, *sorted(cuts), 60]):
        split.learn_many(batch.slice(start, stop), weights[start:stop])
    for t in range(60):
        step = single.learn_many(batch.slice(t, t + 1), weights[t : t + 1])
        assert (step.outcome[0], step.loss[0], step.tau[0]) == (info.outcome[t], info.loss[t], info.tau[t])
    assert bits(whole) == bits(split) == bits(single)


def test_a_saved_state_goes_on_and_replayed_steps_reach_its_bits() -> None:
    batch, more = triplets(1, 50, DIM, "sparse"), triplets(2, 50, DIM, "sparse")
    one = learner(triplets=9, objects=20)
    follower = one.clone()
    weights = np.random.default_rng(1).choice([0.0, 1.0, -1.0], 50)
    info = one.learn_many(batch, weights)
    for steps in one.taken(batch, info, weights):
        follower.replay(steps)
    assert bits(follower) == bits(one)
    again = Omks.from_state(
        {name: array.copy() for name, array in one.state().items()}, one.config, copy=False
    )
    assert bits(again) == bits(one)
    for each in (one, again):
        each.learn_many(more)
    assert bits(again) == bits(one)
    assert bits(follower) != bits(one)


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_view_sleeps_and_scores_nothing(missing: int) -> None:
    rng = np.random.default_rng(0)
    q, c, s = triplet = [rng.standard_normal((1, DIM)).astype(np.float32) for _ in range(3)]
    triplet[missing][0, slice(*EDGES[1])] = 0
    one = learner("hedge")
    before = one.standing.copy()
    info = one.learn_many(TripletBatch(as_block(q), as_block(c), as_block(s)))
    asleep = np.repeat([False, True, False], len(ALL))
    assert info.outcome[0] == UPDATED
    place = np.flatnonzero(one.support.triplets[:, 0] >= 0)[0]
    assert not one.support.tau[place, : len(asleep)][asleep].any()
    np.testing.assert_array_equal(one.standing[asleep], before[asleep])
    empty = np.zeros((1, DIM), np.float32)
    assert not learner().similarity(q, empty).any()
    gone = TripletBatch(as_block(empty), as_block(c), as_block(s))
    assert one.learn_many(gone).outcome[0] == DEGENERATE


def test_absurd_numbers_poison_no_later_event() -> None:
    one = learner()
    huge = triplets(0, 20, DIM, "dense")
    values = huge.query.values * np.float32(1e18)  # type: ignore[union-attr]
    one.learn_many(TripletBatch(as_block(values), huge.clicked, huge.skipped))
    one.learn_many(TripletBatch(huge.query, as_block(values), huge.skipped))
    info = one.learn_many(whole_views(1, 40))
    assert np.isfinite(info.loss).all()
    assert info.count(Outcome.UPDATED) > 0
    assert np.isfinite(one.similarity(huge.query, huge.clicked)).all()


def test_malformed_rows_change_nothing() -> None:
    one = learner()
    one.learn_many(triplets(0, 10, DIM, "dense"))
    before = bits(one)
    bad = triplets(1, 3, DIM, "dense")
    bad.skipped.values[:, 3] = np.nan  # type: ignore[union-attr]
    assert (one.learn_many(bad).outcome == REJECTED).all()
    assert bits(one) == before


def test_a_score_does_not_depend_on_its_neighbours() -> None:
    one = learner()
    batch = triplets(3, 60, DIM, "dense")
    one.learn_many(batch)
    together = one.similarity(batch.query, batch.clicked)
    for i in (0, 33, 59):
        alone = one.similarity(batch.query.slice(i, i + 1), block(batch.clicked.kernel_rows()[7:8], "dense"))
        assert alone[0, 0] == together[i, 7]


def test_warm_up_checks_the_kernels() -> None:
    assert Omks.warm_up() is None
