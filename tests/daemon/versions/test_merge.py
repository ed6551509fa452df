"""Any learner of the configuration: several that began alike are merged, and one goes on from the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.config.learners import LEARNERS, KeysConfig
from daemon.versions.algorithms import ALGORITHMS, ONE_MODEL, merge_of, restored, untrained
from learners.block import DenseBlock, TripletBatch, as_keys
from learners.errors import StateError

DIM = 6
COLUMNS = {"x": range(4), "y": range(4, DIM)}
SMALL = {
    "oks": {"triplets": 60, "objects": 180},
    "omks": {"triplets": 30, "objects": 40},
    "oasis-softmax": {"batch": 4, "every": 2, "memory": 8},
}
CASES = [(name, ONE_MODEL) for name in ALGORITHMS] + [
    (name, KeysConfig.model_validate({"slots": 4})) for name in ("oasis", "soml-tg", "soml-da")
]
COUNTERS = {"events", "rounds", "violated", "violations", "updates", "pairs", "steps", "counts"}


class Learning:
    """One algorithm, and learners of it that begin alike."""

    def __init__(self, name: str, keys: KeysConfig, **more: Any) -> None:
        self.config = LEARNERS[name].model_validate({"algorithm": name, **SMALL.get(name, {}), **more})
        self.keys = keys
        self._sample = DenseBlock(vectors(np.random.default_rng(3), 20))
        self.merge = merge_of(self.config, COLUMNS, keys)

    def base(self) -> dict[str, Any]:
        """The state that all begin from, after a few events."""
        learner = untrained(self.config, DIM, COLUMNS, self._sample, self.keys)
        return self.learned(copied(learner.state()), 1, 12)

    def learned(self, state: dict[str, Any], seed: int, count: int = 20) -> dict[str, Any]:
        """The state after so many other events."""
        learner = restored(self.config, copied(state), COLUMNS, self.keys)
        rng = np.random.default_rng(seed)
        roles = (DenseBlock(vectors(rng, count)) for _ in range(3))
        names = [f"k{one}" for one in rng.integers(3, size=count)] if self.keys.slots else None
        batch = TripletBatch(*roles, keys=None if names is None else as_keys(names))
        learner.learn_many(batch)
        return copied(learner.state())

    def settled(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with all steps in its arrays, as a merge leaves it."""
        return self.merge.states(state, [state], [0])

    def scores(self, state: dict[str, Any]) -> list[np.ndarray]:
        """What it has learned, to the bit: of each key where there are keys."""
        learner: Any = restored(self.config, copied(state), COLUMNS, self.keys)
        rows = DenseBlock(vectors(np.random.default_rng(8), 4))
        if not self.keys.slots:
            return [learner.similarity(rows, rows)]
        return [learner.learner_of(name).similarity(rows, rows) for name in sorted(learner.names())]


def vectors(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def copied(state: Any) -> dict[str, Any]:
    return {name: np.array(one) for name, one in state.items()}


def same(one: Any, other: Any) -> bool:
    return set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}{' by key' if case[1].slots else ''}")
def learning(request: pytest.FixtureRequest) -> Learning:
    return Learning(*request.param)


def test_where_nobody_moved_it_is_what_all_began_from(learning: Learning) -> None:
    base = learning.base()
    merged = learning.merge.states(base, [base, base], [0, 0])
    np.testing.assert_array_equal(learning.scores(merged), learning.scores(base))


def test_where_one_moved_it_is_that_one_to_the_bit(learning: Learning) -> None:
    base = learning.base()
    moved = learning.learned(base, 2)
    merged = learning.merge.states(base, [base, moved], [0, 9])
    np.testing.assert_array_equal(learning.scores(merged), learning.scores(learning.settled(moved)))


def test_it_can_be_learned_on_from(learning: Learning) -> None:
    base = learning.base()
    states = [learning.learned(base, seed) for seed in (2, 3, 4)]
    merged = learning.merge.states(base, states, [7, 8, 9])
    later = learning.learned(merged, 5)
    assert not same(later, merged)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_counts_are_added_up(name: str) -> None:
    learning = Learning(name, ONE_MODEL)
    base = learning.base()
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [7, 8])
    for count in COUNTERS & set(merged) - {"violated"}:
        assert (merged[count] == states[0][count] + states[1][count] - base[count]).all(), count


def test_who_goes_on_has_its_own_work_on_top_of_everybodys(learning: Learning) -> None:
    base = learning.base()
    first, other = learning.learned(base, 2), learning.learned(base, 3)
    merged = learning.merge.states(base, [first, other], [5, 5])
    at_once = learning.merge.rebased(first, first, merged)
    np.testing.assert_array_equal(learning.scores(at_once), learning.scores(merged))
    later = learning.learned(first, 4)
    alone = learning.merge.rebased(later, first, first)
    np.testing.assert_array_equal(learning.scores(alone), learning.scores(learning.settled(later)))
    went_on = learning.merge.rebased(later, first, merged)
    assert not same(learning.learned(went_on, 6), went_on)


@pytest.mark.parametrize("name", ["oasis", "lego", "dissim-oasis", "oasis-diagonal"])
def test_a_matrix_is_the_mean_by_updates(name: str) -> None:
    learning = Learning(name, ONE_MODEL)
    base = learning.settled(learning.base())
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [30, 10])
    key = "W" if "W" in base else "w"
    first, second = (learning.settled(one)[key].astype(float) for one in states)
    wanted = base[key] + 0.75 * (first - base[key]) + 0.25 * (second - base[key])
    np.testing.assert_allclose(merged[key], wanted, rtol=0, atol=1e-6)
    other = learning.merge.states(base, states[::-1], [10, 30])
    np.testing.assert_allclose(other[key], merged[key], rtol=0, atol=1e-7)


def test_subgradients_are_added_up() -> None:
    learning = Learning("soml-da", ONE_MODEL)
    base = learning.base()
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [30, 10])
    wanted = states[0]["G"] + states[1]["G"] - base["G"]
    np.testing.assert_allclose(merged["G"], wanted, rtol=0, atol=1e-12)


def test_weights_of_kernels_that_forget_nothing_are_multiplied() -> None:
    learning = Learning("omks-maps", ONE_MODEL, combine="hedge")
    base = learning.base()
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [30, 10])
    ratio = np.exp(states[0]["standing"] + states[1]["standing"] - 2 * base["standing"])
    np.testing.assert_allclose(np.exp(merged["standing"] - base["standing"]), ratio)


@pytest.mark.parametrize("name", ["omks-maps", "omks"])
@pytest.mark.parametrize("combine", ["share", "discount", "margins"])
def test_weights_of_kernels_that_forget_stay_among_those_of_all(name: str, combine: str) -> None:
    """Each is drawn to the same place; added up they would end beyond it, and ever farther."""
    learning = Learning(name, ONE_MODEL, combine=combine)
    base = learning.base()
    for round_ in range(6):
        states = [learning.learned(base, 10 * round_ + seed) for seed in range(4)]
        merged = learning.merge.states(base, states, [20] * 4, summed=True)
        standings = np.array([one["standing"] for one in states])
        assert (merged["standing"] >= standings.min(axis=0) - 1e-9).all()
        assert (merged["standing"] <= standings.max(axis=0) + 1e-9).all()
        base = merged
    low = {**base, "standing": np.zeros_like(base["standing"])}
    if combine == "margins":  # who goes on keeps none below 0
        assert learning.merge.rebased(low, base, low)["standing"].min() == 0


def test_a_support_set_of_two_scores_as_their_mean() -> None:
    learning = Learning("oks", ONE_MODEL)
    base = learning.base()
    states = [learning.learned(base, seed, 6) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [10, 10])
    rng = np.random.default_rng(9)
    left, right = DenseBlock(vectors(rng, 5)), DenseBlock(vectors(rng, 7))

    def scores(state: dict[str, Any]) -> np.ndarray:
        return restored(learning.config, copied(state), COLUMNS).similarity(left, right)

    wanted = (scores(states[0]) + scores(states[1])) / 2
    np.testing.assert_allclose(scores(merged), wanted, rtol=0, atol=1e-5)


def test_the_running_average_is_that_over_all_events() -> None:
    learning = Learning("oasis-averaged", ONE_MODEL)
    base = learning.base()
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [10, 10])

    def total(state: dict[str, Any]) -> np.ndarray:
        learner = restored(learning.config, copied(state), COLUMNS)
        return learner.W.astype(float) * int(state["events"])

    wanted = total(states[0]) + total(states[1]) - total(base)
    np.testing.assert_allclose(total(merged), wanted, rtol=0, atol=1e-3)


def test_states_of_other_shapes_are_refused() -> None:
    learning = Learning("oasis-diagonal", ONE_MODEL)
    base = learning.base()
    other = untrained(learning.config, 3).state()
    with pytest.raises(StateError, match="other arrays or shapes"):
        learning.merge.states(base, [other], [1])


def test_keys_of_all_learners_are_there_up_to_the_slots() -> None:
    keys = KeysConfig.model_validate({"slots": 2})
    learning = Learning("oasis", keys)
    empty = copied(untrained(learning.config, DIM, COLUMNS, None, keys).state())

    def with_key(name: str, seed: int) -> dict[str, Any]:
        learner = restored(learning.config, copied(empty), COLUMNS, keys)
        rows = (DenseBlock(vectors(np.random.default_rng(seed), 5)) for _ in range(3))
        learner.learn_many(TripletBatch(*rows, keys=as_keys([name] * 5)))
        return copied(learner.state())

    merged = learning.merge.states(empty, [with_key("a", 1), with_key("b", 2)], [5, 5])
    learner = restored(learning.config, merged, COLUMNS, keys)
    assert sorted(learner.names()) == ["a", "b"]
    assert learner.events() == {"a": 5, "b": 5}
    third = learning.merge.states(empty, [with_key(name, 3) for name in "abc"], [5, 5, 5])
    assert len(restored(learning.config, third, COLUMNS, keys).names()) == 2


@pytest.mark.parametrize("name", ["oasis", "lego", "oasis-diagonal", "omks-maps"])
def test_or_the_sum_of_all_steps(name: str) -> None:
    learning = Learning(name, ONE_MODEL)
    base = learning.settled(learning.base())
    states = [learning.learned(base, seed) for seed in (2, 3)]
    merged = learning.merge.states(base, states, [30, 10], summed=True)
    key = "W" if "W" in base else "w"
    first, second = (learning.settled(one)[key].astype(float) for one in states)
    np.testing.assert_allclose(merged[key], first + second - base[key], rtol=0, atol=1e-6)
