"""Merging states: against a plain oracle, by the laws that make it safe to merge again and again, and against
the one learner that had all events."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from learners import Oasis, OasisConfig, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.block import DenseBlock, TripletBatch
from learners.errors import StateError
from learners.merge import Arrays, MergeRule, State, StateMerge, merged_array
from learners.merge_rules import (
    OF_A_MATRIX,
    OF_DUAL_AVERAGING,
    OF_TRUNCATED_GRADIENT,
    all_shrunk,
    all_shrunk_goes_on,
    last_violated,
    settle,
    violated_goes_on,
)

RULES = {"W": MergeRule.MEAN, "G": MergeRule.SUM, "events": MergeRule.SUM}
PLAIN = StateMerge(dict, RULES)
DIM = 6


def arrays(shape: tuple[int, ...], dtype: Any) -> st.SearchStrategy[Any]:
    return arrays_of.arrays(dtype, shape, elements=st.floats(-1e3, 1e3, width=32))


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Arrays, list[Arrays], list[int]]:
    """A base, states and their updates; those without updates are the base."""
    rows = draw(st.integers(1, 4))

    def state() -> Arrays:
        W, G = draw(arrays((rows, 3), np.float32)), draw(arrays((3,), np.float64))
        return {"W": W, "G": G, "events": np.array(draw(st.integers(0, 10**6)), np.int64)}

    base = state()
    updates = draw(st.lists(st.one_of(st.just(0), st.integers(1, 10**6)), min_size=1, max_size=5))
    return base, [state() if count else base for count in updates], updates


def exactly(base: Any, states: list[Any], shares: list[Fraction]) -> np.ndarray:
    """base + sum_k w_k (x_k - base) in rational numbers, entry by entry."""
    first = base.ravel().tolist()
    parts = [one.ravel().tolist() for one in states]
    sums = [
        Fraction(at)
        + sum(
            (by * (Fraction(part[i]) - Fraction(at)) for part, by in zip(parts, shares, strict=True)),
            Fraction(),
        )
        for i, at in enumerate(first)
    ]
    return np.array([float(one) for one in sums]).reshape(base.shape)


def close(found: Any, wanted: Any, like: list[Any]) -> bool:
    """Within the rounding of what was added up."""
    size = sum(np.abs(np.asarray(one, np.float64)) for one in like) + 1e-30
    return bool((np.abs(found - wanted) <= np.finfo(found.dtype).eps * size).all())


@given(drawn(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_is_what_the_module_says_in_rational_numbers(
    case: tuple[Arrays, list[Arrays], list[int]], summed: bool
) -> None:
    base, states, updates = case
    merged = PLAIN.states(base, states, updates, summed)
    total, ones = sum(updates), [Fraction(1)] * len(states)
    shares = ones if summed or not total else [Fraction(count, total) for count in updates]
    for name, by in (("W", shares), ("G", ones)):
        each = [one[name] for one in states]
        assert close(merged[name], exactly(base[name], each, by), [base[name], *each]), name
    assert merged["events"] == base["events"] + max(
        -base["events"], sum(int(one["events"] - base["events"]) for one in states)
    )


@given(drawn(), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_order_of_learners_is_of_no_weight(
    case: tuple[Arrays, list[Arrays], list[int]], rng: Any, summed: bool
) -> None:
    base, states, updates = case
    order = list(range(len(states)))
    rng.shuffle(order)
    merged = PLAIN.states(base, states, updates, summed)
    other = PLAIN.states(base, [states[k] for k in order], [updates[k] for k in order], summed)
    assert merged["events"] == other["events"]
    for name in ("W", "G"):
        like = [base[name], *(one[name] for one in states)]
        assert close(merged[name], other[name].astype(np.float64), like), name


@given(drawn(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_nobody_moved_is_the_base_and_one_moved_is_that_one(
    case: tuple[Arrays, list[Arrays], list[int]], summed: bool
) -> None:
    base, states, _ = case
    none = PLAIN.states(base, [base] * len(states), [0] * len(states), summed)
    alone = PLAIN.states(base, [base, states[0], base], [0, 7, 0], summed)
    for name in RULES:
        assert np.array_equal(none[name], base[name])  # 0 may be either of its kinds
        assert np.array_equal(alone[name], states[0][name])
        assert not np.may_share_memory(none[name], base[name])
        assert not np.may_share_memory(alone[name], states[0][name])


@given(drawn())
@settings(max_examples=60, deadline=None)
def test_who_goes_on_has_its_own_work_on_top(case: tuple[Arrays, list[Arrays], list[int]]) -> None:
    base, states, _ = case
    counted, merged = base, states[-1]
    for current in states:
        went_on = PLAIN.rebased(current, counted, merged)
        for name in ("W", "G"):
            three = [current[name], merged[name], counted[name]]
            wanted = three[0].astype(np.float64) + (three[1].astype(np.float64) - three[2])
            assert close(went_on[name], wanted, three)
        events = [int(one["events"]) for one in (current, merged, counted)]
        assert went_on["events"] == max(0, events[0] + events[1] - events[2])
    for name in RULES:
        assert np.array_equal(PLAIN.rebased(counted, counted, merged)[name], merged[name])
        assert np.array_equal(PLAIN.rebased(merged, counted, counted)[name], merged[name])


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_merged_again_and_again_every_step_counts_once(data: st.DataObject) -> None:
    """Shards take steps, are merged some at a time, and take the merged state over sooner or later: what
    arrives is the sum of all steps, and each shard ends with everybody's. Steps are whole numbers, so that
    every sum is exact."""
    shards = data.draw(st.integers(1, 4))
    first: Arrays = {"W": np.zeros(2, np.float32), "G": np.zeros(2), "events": np.array(0)}
    merged, everything = first, np.zeros(2)
    now, known = [first] * shards, [first] * shards
    # known[k]: what the merged state holds of shard k, as a state of k's own
    for _ in range(data.draw(st.integers(1, 6))):
        for k in range(shards):
            step = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=2, max_size=2)), float)
            everything += step
            now[k] = {
                "W": np.asarray(now[k]["W"] + step, np.float32),
                "G": now[k]["G"] + step,
                "events": now[k]["events"] + 1,
            }
        chosen = [k for k in range(shards) if data.draw(st.booleans())]
        # each as if it had gone on from the merged state
        brought = [PLAIN.rebased(now[k], known[k], merged) for k in chosen]
        merged = PLAIN.states(merged, brought, [1] * len(chosen), summed=True)
        for k in chosen:
            known[k] = now[k]
        for k in range(shards):
            if data.draw(st.booleans()):
                now[k] = PLAIN.rebased(now[k], known[k], merged)
                known[k] = merged
    last = [PLAIN.rebased(now[k], known[k], merged) for k in range(shards)]
    merged = PLAIN.states(merged, last, [1] * shards, summed=True)
    assert merged["W"].tolist() == merged["G"].tolist() == everything.tolist()


def test_what_has_no_rule_and_what_does_not_fit_is_refused() -> None:
    base: Arrays = {"W": np.zeros(2, np.float32), "other": np.zeros(2)}
    with pytest.raises(StateError, match="how the arrays other are merged is not known"):
        PLAIN.states(base, [base], [1])
    for wrong in (np.zeros(3, np.float32), np.zeros(2, np.float64)):
        with pytest.raises(StateError, match="other arrays or shapes"):
            PLAIN.states({"W": np.zeros(2, np.float32)}, [{"W": wrong}], [1])


def test_logarithms_of_nothing_stay_finite() -> None:
    least = -np.finfo(np.float64).max
    base, gone = np.array([-1.0, least]), np.array([least, least])
    merged = merged_array(MergeRule.LOG, base, [gone, gone, base], [1 / 3] * 3)
    assert merged.tolist() == [least, least]


def small(rng: np.random.Generator, count: int) -> TripletBatch:
    """Triplets of eighths so small that each violates whatever was learned, and every sum is exact."""
    return TripletBatch(*(
        DenseBlock((rng.integers(-2, 3, (count, DIM)) / 64).astype(np.float32)) for _ in range(3)
    ))  # fmt: skip


def merge_of(learner: Any, config: Any, rules: Any, *more: Any) -> StateMerge:
    def settled(state: State) -> Arrays:
        restored = learner.from_state(state, config)
        settle(restored)
        return {name: np.array(one) for name, one in restored.state().items()}

    return StateMerge(settled, rules, *more)


SOML = [
    (SomlDa, SomlDaConfig(gamma=1e-6), OF_DUAL_AVERAGING, last_violated, violated_goes_on),
    (SomlTg, SomlTgConfig(eta=1.0, lam=0.0), OF_TRUNCATED_GRADIENT, all_shrunk, all_shrunk_goes_on),
]


@pytest.mark.parametrize("case", SOML, ids=["soml-da", "soml-tg"])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_subgradients_that_depend_on_nothing_learned_add_up_to_one_learner(case: Any, shards: int) -> None:
    learner, config, rules, *more = case
    if learner is SomlDa:  # so large a gamma that w, and with it every margin, is next to nothing
        config = SomlDaConfig(gamma=1e6)
    rng, algebra = np.random.default_rng(1), merge_of(learner, config, rules, *more)
    one, merged = learner(DIM, config), dict(learner(DIM, config).state())
    for _ in range(3):
        states, counts = [], []
        for _ in range(shards):
            batch = small(rng, 7)
            one.learn_many(batch)
            shard = learner.from_state(merged, config)
            info = shard.learn_many(batch)
            states.append({name: np.array(array) for name, array in shard.state().items()})
            counts.append(int((info.tau > 0).sum()))
        merged = algebra.states(merged, states, counts)
    settle(one)
    for name, array in one.state().items():
        assert array.tobytes() == merged[name].tobytes(), name
    assert np.abs(next(iter(merged.values()))).max() > 0


def test_what_each_shrinks_to_nothing_is_nothing() -> None:
    """Of SOML-TG: a column that no event of the period names is shrunk to 0 by each, not beyond."""
    config = SomlTgConfig(eta=1.0, lam=0.05)
    algebra = merge_of(SomlTg, config, OF_TRUNCATED_GRADIENT, all_shrunk, all_shrunk_goes_on)
    base = {
        "w": np.array([0.2, -0.2, 0.0]),
        "shrunk": np.zeros(3, np.int64),
        "violations": np.array(0),
        "events": np.array(0),
    }
    base = dict(SomlTg.from_state({n: a for n, a in base.items() if n in SomlTg(3).state()}, config).state())
    states = []
    for seed in (1, 2, 3):
        learner = SomlTg.from_state(base, config)
        rows = [np.zeros((9, 3), np.float32) for _ in range(3)]
        rows[0][:, 2], rows[1][:, 2] = 0.5, 0.25 * seed
        learner.learn_many(TripletBatch(*map(DenseBlock, rows)))
        states.append(dict(learner.state()))
    merged = algebra.states(base, states, [9, 9, 9])
    assert merged["w"][:2].tolist() == [0, 0]
    assert merged["w"][2] > 0
    went_on = algebra.rebased(states[0], base, merged)
    assert went_on["w"][:2].tolist() == [0, 0]


def test_one_learner_merged_again_and_again_is_that_learner() -> None:
    rng, algebra = np.random.default_rng(2), merge_of(Oasis, OasisConfig(), OF_A_MATRIX)
    one, merged = Oasis(DIM), dict(Oasis(DIM).state())
    for _ in range(4):
        batch = TripletBatch(
            *(DenseBlock(rng.standard_normal((20, DIM)).astype(np.float32)) for _ in range(3))
        )
        one.learn_many(batch)
        shard = Oasis.from_state(merged)
        shard.learn_many(batch)
        merged = algebra.states(merged, [dict(shard.state())], [20])
    assert {n: a.tobytes() for n, a in merged.items()} == {n: a.tobytes() for n, a in one.state().items()}
