"""OMKS over explicit maps: OASIS per block, weighed by Hedge, bit for bit however a stream is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import (
    DEGENERATE,
    PASSIVE,
    REJECTED,
    UPDATED,
    BlockError,
    ConfigError,
    Oasis,
    OasisConfig,
    Reason,
    StateError,
    StepBatch,
    TripletBatch,
    as_block,
)
from learners.forms.blocks import BlocksForm
from learners.hedge import HedgeConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from tests.harness.memory import kept_after

from .examples import block, dense, matrices, rows, triplets
from .oracle import psd
from .oracle_combination import Combination, Given, Hedge, PassiveAggressive
from .oracle_omks import MappedOasisOracle, OmksOracle

WIDTHS = (5, 4, 3)
DIM = sum(WIDTHS)
RULES = pytest.mark.parametrize("rule", ["hedge", "share", "discount", "margins", "uniform"])
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


def learner(rule: str = "share", **more: float) -> OmksMaps:
    """A fresh one."""
    return OmksMaps(DIM, OmksMapsConfig(WIDTHS, hedge=HedgeConfig(rule, **more)))  # type: ignore[arg-type]


def bits(one: OmksMaps) -> list[bytes]:
    """The state, to the bit."""
    return [array.tobytes() for array in one.state().values()]


@RULES
@KINDS
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_it_equals_the_oracle(rule: str, kind: str, seed: int) -> None:
    batch = triplets(seed, 60, DIM, kind)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], 60)
    one = learner(rule, beta=0.9, share=0.01, discount=0.95)
    info = one.learn_many(batch, weights)
    views = [(0, 5), (5, 9), (9, 12)]
    members = [MappedOasisOracle(lambda x, view=slice(*view): x[view], view[1] - view[0]) for view in views]
    slow = OmksOracle(members, combination(rule), views, idle=False)
    steps = [slow.step(*each) for each in zip(*matrices(batch), weights, strict=True)]
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=2e-5)
    np.testing.assert_allclose(info.tau, [step.tau for step in steps], atol=1e-6)
    np.testing.assert_allclose(one.W, np.concatenate([m.oasis.W.ravel() for m in members]), atol=2e-5)
    np.testing.assert_allclose(one.theta, slow.combination.theta, atol=1e-5)
    found = one.similarity(batch.query.slice(0, 3), batch.clicked.slice(0, 4))
    q, p = dense(batch.query), dense(batch.clicked)
    expected = [[slow.score(q[i], p[j]) for j in range(4)] for i in range(3)]
    np.testing.assert_allclose(found, expected, atol=2e-5)


def combination(rule: str) -> Combination:
    """The oracle's rule of this name, with the constants of the test."""
    rules: dict[str, Combination] = {
        "hedge": Hedge(3, 0.9),
        "share": Hedge(3, 0.9, share=0.01),
        "discount": Hedge(3, 0.9, memory=0.95),
        "margins": PassiveAggressive(3, 0.1),
        "uniform": Given([1, 1, 1]),
    }
    return rules[rule]


def test_one_block_is_oasis_bit_for_bit() -> None:
    batch = TripletBatch(*(as_block(rows(np.random.default_rng(seed), 300, DIM, 1.0)) for seed in range(3)))
    oasis, one = Oasis(DIM, OasisConfig(C=0.05)), OmksMaps(DIM, OmksMapsConfig((DIM,), C=0.05))
    expected, info = oasis.learn_many(batch), one.learn_many(batch)
    assert one.W.tobytes() == oasis.W.tobytes()
    for name in ("outcome", "loss", "tau"):
        assert getattr(info, name).tobytes() == getattr(expected, name).tobytes()


@RULES
@KINDS
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=10, deadline=None)
def test_a_stream_cut_anywhere_gives_the_same_bits(rule: str, kind: str, seed: int, cuts: list[int]) -> None:
    batch = triplets(seed, 40, DIM, kind)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, -1.0, np.nan], 40)
    whole, split = learner(rule), learner(rule)
    info = whole.learn_many(batch, weights)
    edges = [0, *sorted(cuts), 40]
    for start, stop in pairwise(edges):
        part = split.learn_many(batch.slice(start, stop), weights[start:stop])
        for name in ("outcome", "loss", "tau", "reason"):
            assert getattr(part, name).tobytes() == getattr(info, name)[start:stop].tobytes()
    assert bits(whole) == bits(split)


def test_rows_are_spread_out_a_few_at_a_time_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, whole, pieces = triplets(5, 50, DIM, "sparse"), learner(), learner()
    info = whole.learn_many(batch)
    monkeypatch.setattr("learners.block.BLOCK_FLOATS", 8 * DIM)
    assert pieces.learn_many(batch).loss.tobytes() == info.loss.tobytes()
    assert bits(pieces) == bits(whole)


def test_sparse_rows_give_what_dense_rows_give() -> None:
    one, other = learner(), learner()
    one.learn_many(triplets(7, 50, DIM, "sparse"))
    other.learn_many(triplets(7, 50, DIM, "dense"))
    assert bits(one) == bits(other)


@RULES
def test_a_replica_takes_the_steps_again(rule: str) -> None:
    one, replica = learner(rule), learner(rule)
    for seed in range(4):
        batch = triplets(seed, 30, DIM, "dense")
        weights = np.random.default_rng(seed).choice([0.0, 0.5, 2.0, -1.0], 30) if seed % 2 else None
        info = one.learn_many(batch, weights)
        for steps in one.taken(batch, info, weights):
            replica.replay(steps)
    assert bits(one) == bits(replica)


def test_steps_of_another_kind_are_refused() -> None:
    vectors = as_block(np.zeros((1, DIM), np.float32))
    with pytest.raises(BlockError, match="triplets"):
        learner().replay(StepBatch(np.zeros(1, np.float32), vectors, vectors))


@pytest.mark.parametrize("role", range(3))
def test_a_block_without_its_view_sleeps(role: int) -> None:
    parts = [rows(np.random.default_rng(seed), 20, DIM, 1.0) for seed in range(3)]
    parts[role][:, 5:9] = 0
    one = learner()
    one.learn_many(TripletBatch(*(as_block(part) for part in parts)))
    np.testing.assert_array_equal(one.W[25:41].reshape(4, 4), np.eye(4))
    assert not np.array_equal(one.W[:25].reshape(5, 5), np.eye(5))
    assert one.standing[1] == learner().standing[1]
    assert one.standing[0] != learner().standing[0]


def test_outcomes() -> None:
    e = np.eye(DIM, dtype=np.float32) * 2
    one = learner()
    before = bits(one)
    for query, clicked, skipped, outcome in (
        (e[0], e[0], e[0], DEGENERATE),  # c = s
        (0 * e[0], e[0], e[1], DEGENERATE),  # all blocks asleep
        (e[0], e[0], e[1], PASSIVE),  # margin 4
        (e[0], e[5], e[6], DEGENERATE),  # no block holds all three
    ):
        info = one.learn_one(query, clicked, skipped)
        assert info.outcome.tolist() == [outcome]
        assert bits(one) == before
    assert one.learn_one(e[0], e[1], e[0]).outcome.tolist() == [UPDATED]
    assert bits(one) != before


@KINDS
def test_a_malformed_event_is_an_outcome_and_changes_no_bit(kind: str) -> None:
    good = triplets(1, 3, DIM, "dense")
    for role in range(3):
        parts = [part.values.copy() for part in (good.query, good.clicked, good.skipped)]  # type: ignore[union-attr]
        parts[role][1, 7] = 2e18 if role else np.nan
        one, clean = learner(), learner()
        info = one.learn_many(TripletBatch(*(block(part, kind) for part in parts)))
        assert info.outcome[1] == REJECTED
        assert info.reason.tolist() == [0, Reason.MAGNITUDE if role else Reason.NOT_FINITE, 0]
        clean.learn_many(good.take([0, 2]))
        assert bits(one) == bits(clean)


@pytest.mark.parametrize(
    ("weight", "reason"),
    [(np.nan, 1), (np.inf, 1), (-np.inf, 4), (-1, 4), (1e30, 4), (0, 0)],
)
def test_a_malformed_weight_rejects_its_event(weight: float, reason: int) -> None:
    one = learner()
    before = bits(one)
    info = one.learn_many(triplets(3, 1, DIM, "dense"), np.array([weight]))
    assert info.reason.tolist() == [reason]
    assert (info.outcome[0] == REJECTED) == bool(reason)
    assert bits(one) == before


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_finite_values_leave_the_state_finite(data: st.DataObject) -> None:
    numbers = st.floats(-(2.0**59), 2.0**59, width=32) | st.sampled_from([0.0, 1e-45, -1e-38, 9e17])
    draw = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=4, max_size=4)
    parts = [np.array(data.draw(draw), np.float32) for _ in range(3)]
    one = OmksMaps(
        3, OmksMapsConfig((1, 2), hedge=HedgeConfig(data.draw(st.sampled_from(["share", "margins"]))))
    )
    info = one.learn_many(TripletBatch(*(as_block(part) for part in parts)))
    assert np.isfinite(one.W).all()
    assert np.isfinite(one.standing).all()
    assert np.isfinite(info.loss).all()
    assert not (info.outcome == REJECTED).any()


@RULES
def test_memory_does_not_grow_with_the_stream(rule: str) -> None:
    one, batch = learner(rule), triplets(0, 50, DIM, "dense")
    assert kept_after(lambda: one.learn_many(batch), 100, less_than=20_000) < 20_000
    assert sum(array.nbytes for array in one.state().values()) == 4 * (25 + 16 + 9) + 8 * 3


def test_a_saved_state_goes_on_and_a_clone_is_independent() -> None:
    one = learner()
    one.learn_many(triplets(1, 30, DIM, "dense"))
    saved = {name: array.copy() for name, array in one.state().items()}
    resumed, clone = OmksMaps.from_state(saved, one.config, copy=False), one.clone()
    assert resumed.W is saved["W"]
    before = bits(clone)
    for each in (one, resumed):
        each.learn_many(triplets(2, 30, DIM, "dense"))
    assert bits(one) == bits(resumed)
    assert bits(clone) == before
    with pytest.raises(StateError, match="read-only"):
        OmksMaps.from_state(one.state(), one.config, copy=False)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"W": None}, "W is missing"),
        ({"W": np.zeros(49, np.float32)}, "W has shape"),
        ({"W": np.zeros(50)}, "W has dtype"),
        ({"W": np.full(50, np.inf, np.float32)}, "W holds"),
        ({"standing": None}, "standing is missing"),
        ({"standing": np.zeros(2)}, "standing has shape"),
    ],
)
def test_arrays_that_are_no_state_are_refused_by_name(arrays: dict[str, np.ndarray], word: str) -> None:
    state = {name: array for name, array in {**learner().state(), **arrays}.items() if array is not None}
    with pytest.raises(StateError, match=word):
        OmksMaps.from_state(state, learner().config)


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"widths": ()}, "widths"),
        ({"widths": (3, 0)}, "widths"),
        ({"widths": (3,), "C": 0.0}, "C must"),
        ({"widths": (3,), "hedge": HedgeConfig("given", weights=(1.0, 2.0))}, "2 weights"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings_: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        OmksMapsConfig(**settings_)  # type: ignore[arg-type]


def test_blocks_that_are_not_all_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match="12 columns together, the vectors 13"):
        OmksMaps(13, OmksMapsConfig(WIDTHS))


def trained() -> OmksMaps:
    """After 200 events."""
    one = learner()
    one.learn_many(triplets(1, 200, DIM, "dense"))
    return one


@KINDS
@pytest.mark.parametrize("normalised", [False, True])
def test_the_serving_form_folds_blocks_and_weights_into_the_query(kind: str, normalised: bool) -> None:
    one, rng = trained(), np.random.default_rng(4)
    form = BlocksForm.from_blocks(WIDTHS, one.W, one.theta, normalised, power=1.5)
    S = np.zeros((DIM, DIM))
    for start, width, place, weight in zip((0, 5, 9), WIDTHS, (0, 25, 41), one.theta, strict=True):
        W = one.W[place : place + width**2].reshape(width, width).astype(np.float64)
        S[start : start + width, start : start + width] = weight * psd(W, 1.5 if normalised else 1.0)
    queries, items = rows(rng, 4, DIM), rows(rng, 6, DIM)
    np.testing.assert_allclose(form.fold(block(queries, kind)), queries @ S, atol=1e-5)
    own = np.einsum("nd,de,ne->n", items, S, items)
    np.testing.assert_allclose(form.self_scores(block(items, kind)), own, atol=1e-5)
    expected = queries @ S @ items.T
    if normalised:
        expected /= np.sqrt(np.einsum("nd,de,ne->n", queries, S, queries)[:, None] * own) + 1e-30
    np.testing.assert_allclose(form.scores(block(queries, kind), block(items, kind)), expected, atol=1e-4)
    again = BlocksForm.from_arrays(form.arrays())
    assert again.fold(queries).tobytes() == form.fold(queries).tobytes()
    assert again.normalised == normalised


def test_arrays_that_are_no_form_are_refused_by_name() -> None:
    arrays = BlocksForm.from_blocks(WIDTHS, trained().W, trained().theta).arrays()
    for name, wrong in (
        ("widths", np.array([5, 4, 0])),
        ("widths", np.array([5.0])),
        ("matrices", arrays["matrices"][:-1]),
        ("matrices", arrays["matrices"] * np.float32(np.nan)),
    ):
        with pytest.raises(StateError, match=name):
            BlocksForm.from_arrays({**arrays, name: wrong})
    for name in arrays:
        with pytest.raises(StateError, match=name):
            BlocksForm.from_arrays({key: array for key, array in arrays.items() if key != name})


def test_warm_up_checks_the_kernels() -> None:
    assert OmksMaps.warm_up() is None


def test_the_form_without_a_projection_is_the_symmetric_part() -> None:
    one, rng = trained(), np.random.default_rng(4)
    queries, items = rows(rng, 4, DIM), rows(rng, 6, DIM)
    found = one.form(normalised=False, power=None).scores(queries, items)
    both = one.similarity(queries, items) + one.similarity(items, queries).T
    np.testing.assert_allclose(found, both / 2, atol=1e-5)
