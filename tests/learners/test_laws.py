"""Laws of every learner, run over each of them with each kind of input."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from learners import (
    DEGENERATE,
    REJECTED,
    ConfigError,
    DenseBlock,
    Learner,
    Oasis,
    OasisConfig,
    Reason,
    SparseBlock,
    StateError,
    TripletBatch,
)

from .examples import block, dense, rows, triplets

DIM = 12
CONFIGS = {
    "plain": OasisConfig(),
    "symmetric": OasisConfig(symmetric="online"),
    "psd": OasisConfig(psd_every=7),
    "symmetric-psd": OasisConfig(symmetric="online", psd_every=7),
}
LEARNERS: dict[str, Callable[[], Oasis]] = {
    name: (lambda config=config: Oasis(DIM, config)) for name, config in CONFIGS.items()
}
EVERY = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS.keys())
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


def bits(learner: Learner) -> dict[str, bytes]:
    """The state, to the bit."""
    return {name: array.tobytes() for name, array in learner.state().items()}


@EVERY
@KINDS
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 40), cuts=st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=25, deadline=None)
def test_many_at_once_equals_one_by_one_bit_for_bit(
    make: Callable[[], Oasis], kind: str, seed: int, n: int, cuts: list[int]
) -> None:
    batch = spoiled(triplets(seed, n, DIM, kind), seed)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0, -1.0], n)
    whole, single, split = make(), make(), make()
    info = whole.learn_many(batch, weights)
    for t in range(n):
        step = single.learn_many(batch.slice(t, t + 1), weights[t : t + 1])
        for name in ("outcome", "loss", "tau", "reason"):
            assert getattr(step, name)[0] == getattr(info, name)[t]
    edges = [0, *sorted(min(cut, n) for cut in cuts), n]
    for start, stop in pairwise(edges):
        split.learn_many(batch.slice(start, stop), weights[start:stop])
    assert bits(whole) == bits(single) == bits(split)


def spoiled(batch: TripletBatch, seed: int) -> TripletBatch:
    """The batch with a NaN in about one row of ten."""
    values = np.array(
        batch.clicked.kernel_rows() if isinstance(batch.clicked, DenseBlock) else batch.clicked.values
    )
    values[np.random.default_rng(seed).random(values.shape) < 0.1 / DIM] = np.nan
    part = batch.clicked
    spoiled = (
        SparseBlock(part.indptr, part.indices, values, DIM)
        if isinstance(part, SparseBlock)
        else DenseBlock(values)
    )
    return TripletBatch(batch.query, spoiled, batch.skipped)


@EVERY
@KINDS
def test_before_learning_the_similarity_is_the_dot_product(make: Callable[[], Oasis], kind: str) -> None:
    rng = np.random.default_rng(0)
    queries, items = rows(rng, 5, DIM), rows(rng, 9, DIM)
    scores = make().similarity(block(queries, kind), block(items, kind))
    assert scores.dtype == np.float32
    assert scores.shape == (5, 9)
    np.testing.assert_allclose(scores, queries @ items.T, atol=1e-6)


@EVERY
@KINDS
def test_scoring_changes_nothing_and_repeats(make: Callable[[], Oasis], kind: str) -> None:
    batch, learner = triplets(1, 50, DIM, kind), make()
    learner.learn_many(batch)
    before = bits(learner)
    first = learner.similarity(batch.query, batch.clicked)
    second = learner.similarity(batch.query, batch.clicked)
    assert first.tobytes() == second.tobytes()
    assert bits(learner) == before


@EVERY
@KINDS
def test_input_is_neither_changed_nor_kept(make: Callable[[], Oasis], kind: str) -> None:
    batch, learner = triplets(1, 50, DIM, kind), make()
    copies = [dense(part) for part in (batch.query, batch.clicked, batch.skipped)]
    info = learner.learn_many(batch)
    for part, copy in zip((batch.query, batch.clicked, batch.skipped), copies, strict=True):
        np.testing.assert_array_equal(dense(part), copy)
    state, loss = bits(learner), info.loss.copy()
    for part in (batch.query, batch.clicked, batch.skipped):
        (part.values if isinstance(part, DenseBlock | SparseBlock) else part)[...] = 5
    assert bits(learner) == state
    np.testing.assert_array_equal(info.loss, loss)


@EVERY
def test_a_clone_is_equal_and_independent(make: Callable[[], Oasis]) -> None:
    learner = make()
    learner.learn_many(triplets(1, 30, DIM, "dense"))
    clone, before = learner.clone(), bits(learner)
    assert bits(clone) == before
    clone.learn_many(triplets(2, 30, DIM, "dense"))
    assert bits(learner) == before
    assert bits(clone) != before
    learner.learn_many(triplets(2, 30, DIM, "dense"))
    assert bits(learner) == bits(clone)


@EVERY
def test_a_saved_state_goes_on_as_if_never_stopped(make: Callable[[], Oasis]) -> None:
    learner = make()
    learner.learn_many(triplets(1, 32, DIM, "sparse"))
    saved = {name: array.copy() for name, array in learner.state().items()}
    resumed = Oasis.from_state(saved, learner.config)
    for each in (learner, resumed):
        each.learn_many(triplets(2, 32, DIM, "sparse"))
    assert bits(learner) == bits(resumed)
    assert saved["W"].tobytes() != learner.state()["W"].tobytes()


def test_a_state_can_be_taken_over_without_a_copy() -> None:
    saved = {name: array.copy() for name, array in Oasis(DIM).state().items()}
    assert Oasis.from_state(saved, copy=False).W is saved["W"]
    with pytest.raises(StateError, match="read-only"):
        Oasis.from_state(Oasis(DIM).state(), copy=False)


@EVERY
@KINDS
def test_malformed_events_change_no_bit_and_the_rest_is_learned(make: Callable[[], Oasis], kind: str) -> None:
    cases = malformed(kind)
    good, learner, clean = triplets(3, len(cases), DIM, kind), make(), make()
    for t, (bad, reason) in enumerate(cases):
        before = bits(learner)
        info = learner.learn_many(bad)
        assert info.outcome.tolist() == [REJECTED]
        assert info.reason.tolist() == [reason]
        assert info.loss[0] == info.tau[0] == 0
        assert bits(learner) == before
        learner.learn_many(good.slice(t, t + 1))
        clean.learn_many(good.slice(t, t + 1))
    assert bits(learner) == bits(clean)


def malformed(kind: str) -> list[tuple[TripletBatch, Reason]]:
    """Triplets that must be rejected, each fault in each of the three vectors, with the reason expected."""
    good = block(np.eye(1, DIM, dtype=np.float32), kind)
    faults: list[tuple[DenseBlock | SparseBlock, Reason]] = []
    for value, reason in (
        (np.nan, Reason.NOT_FINITE),
        (np.inf, Reason.NOT_FINITE),
        (-np.inf, Reason.NOT_FINITE),
        (3e38, Reason.MAGNITUDE),
        (-1.1e18, Reason.MAGNITUDE),
    ):
        values = np.zeros((1, DIM), np.float32)
        values[0, 3] = value
        faults.append((block(values, kind), reason))
    if kind == "sparse":
        for indices, reason in (
            ([0, DIM], Reason.INDEX_OUT_OF_RANGE),
            ([-1, 2], Reason.INDEX_OUT_OF_RANGE),
            ([2**31 - 1], Reason.INDEX_OUT_OF_RANGE),
            ([3, 2], Reason.INDICES_NOT_INCREASING),
            ([4, 4], Reason.INDICES_NOT_INCREASING),
        ):
            ones = np.ones(len(indices), np.float32)
            faults.append((SparseBlock(np.array([0, len(indices)]), np.int32(indices), ones, DIM), reason))
    places = [(0, 1, 1), (1, 0, 1), (1, 1, 0)]
    return [
        (TripletBatch(*(good if is_good else bad for is_good in place)), reason)
        for bad, reason in faults
        for place in places
    ]


@KINDS
@pytest.mark.parametrize(
    ("weight", "reason"), [(np.nan, Reason.NOT_FINITE), (-1, Reason.MAGNITUDE), (1e30, Reason.MAGNITUDE)]
)
def test_a_malformed_weight_rejects_its_event(kind: str, weight: float, reason: Reason) -> None:
    learner = Oasis(DIM)
    info = learner.learn_many(triplets(0, 1, DIM, kind), np.array([weight]))
    assert (info.outcome[0], info.reason[0]) == (REJECTED, reason)
    np.testing.assert_array_equal(learner.W, np.eye(DIM))


@EVERY
def test_rejected_events_do_not_count_towards_a_projection(make: Callable[[], Oasis]) -> None:
    learner = make()
    for bad, _ in malformed("dense"):
        learner.learn_many(bad)
    assert learner.events == 0


@KINDS
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_finite_values_leave_W_finite(kind: str, data: st.DataObject) -> None:
    numbers = st.floats(-(2.0**59), 2.0**59, width=32) | st.sampled_from([0.0, 1e-45, -1e-38, 9e17])
    draw = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=4, max_size=4)
    parts = [np.array(data.draw(draw), np.float32) for _ in range(3)]
    learner = Oasis(3)
    info = learner.learn_many(TripletBatch(*(block(part, kind) for part in parts)))
    assert np.isfinite(learner.W).all()
    assert np.isfinite(info.tau).all()
    assert not np.any(info.outcome == REJECTED)


@KINDS
def test_a_margin_beyond_float32_is_degenerate_and_changes_nothing(kind: str) -> None:
    W = np.full((2, 2), 3e38, np.float32)
    learner = Oasis.from_state({"W": W, "events": np.array(0, np.int64)})
    parts = (np.float32([[1, 1]]), np.float32([[9, 9]]), np.float32([[-9, -9]]))
    for batch in (parts, parts[::-1]):
        info = learner.learn_many(TripletBatch(*(block(part, kind) for part in batch)))
        assert info.outcome[0] == DEGENERATE
    np.testing.assert_array_equal(learner.W, W)


@KINDS
def test_a_loss_beyond_float32_is_degenerate_and_stays_finite(kind: str) -> None:
    ones = np.full((1, 200), 1e18, np.float32)
    learner = Oasis(200)
    info = learner.learn_many(TripletBatch(*(block(part, kind) for part in (ones, -ones, ones))))
    assert info.outcome[0] == DEGENERATE
    assert np.isfinite(info.loss).all()
    np.testing.assert_array_equal(learner.W, np.eye(200))


@KINDS
def test_memory_does_not_grow_with_the_stream(kind: str) -> None:
    learner, batch = Oasis(DIM), triplets(0, 50, DIM, kind)
    learner.learn_many(batch)
    tracemalloc.start()
    try:
        learner.learn_many(batch)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            learner.learn_many(batch)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert sum(array.nbytes for array in learner.state().values()) == 4 * DIM * DIM + 8


def test_one_row_of_anything_is_one_event() -> None:
    vectors = rows(np.random.default_rng(1), 3, DIM, 1.0)
    learners = [Oasis(DIM) for _ in range(3)]
    learners[0].learn_one(*vectors)
    learners[1].learn_one(*(v[None].astype(np.float64) for v in vectors))
    learners[2].learn_one(*(v.tolist() for v in vectors))
    assert len({bits(learner)["W"] for learner in learners}) == 1
    sparse_learner = Oasis(DIM)
    info = sparse_learner.learn_one(*(sparse.csr_matrix(v) for v in vectors))
    assert info.outcome.tolist() == [0]
    with pytest.raises(ValueError, match="learn_many"):
        Oasis(DIM).learn_one(vectors, vectors, vectors)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({}, "W is missing"),
        ({"W": np.eye(3, dtype=np.float32)}, "events is missing"),
        ({"W": np.ones((2, 3), np.float32), "events": np.int64(0)}, "W has shape"),
        ({"W": np.eye(3), "events": np.int64(0)}, "W has dtype"),
        ({"W": np.full((3, 3), np.nan, np.float32), "events": np.int64(0)}, "W holds"),
        ({"W": np.eye(3, dtype=np.float32), "events": np.float64(0)}, "events must"),
        ({"W": np.eye(3, dtype=np.float32), "events": np.int64(-1)}, "events must"),
    ],
)
def test_arrays_that_are_no_state_are_refused_by_name(arrays: dict[str, np.ndarray], word: str) -> None:
    with pytest.raises(StateError, match=word):
        Oasis.from_state({name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"C": 0}, "C must"),
        ({"C": np.inf}, "C must"),
        ({"psd_every": -1}, "psd_every"),
        ({"symmetric": "yes"}, "symm"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings_: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        OasisConfig(**settings_)  # type: ignore[arg-type]


def test_projection_of_the_state_is_refused_where_it_takes_minutes() -> None:
    with pytest.raises(ConfigError, match="4096"):
        Oasis(4097, OasisConfig(psd_every=1))


def test_warm_up_checks_the_kernels() -> None:
    assert Oasis.warm_up() is None
