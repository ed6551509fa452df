"""What is the softmax learner's own: which triplets are one click, what it keeps, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import PASSIVE, UPDATED, ConfigError, Softmax, SoftmaxConfig, StateError, TripletBatch
from learners.softmax import RECENT, state_bytes

from .examples import triplets
from .under_test import bits, saved

DIM = 5
SMALL = SoftmaxConfig(batch=4, every=2, memory=6)


def test_a_click_over_several_objects_is_one_pair() -> None:
    """Also where pairs of another click of the list come between, or vectors are longer."""
    q, c, d, s, t = np.random.default_rng(0).standard_normal((5, DIM), np.float32)
    learner = Softmax(DIM)
    info = learner.learn_many([q, q, q, 2 * q], [c, d, c, c], [s, s, t, t])
    assert info.outcome.tolist() == [UPDATED, UPDATED, PASSIVE, PASSIVE]
    assert info.tau.tolist() == [1, 1, 0, 0]
    assert learner.pairs == 2
    assert learner.events == 4


def test_the_same_click_much_later_is_another_pair() -> None:
    learner, batch = Softmax(DIM), triplets(1, 60, DIM, "dense")
    first = batch.slice(0, 1)
    learner.learn_many(batch)
    assert learner.pairs > RECENT
    assert learner.learn_many(first).outcome.tolist() == [UPDATED]


def test_a_step_is_taken_after_every_so_many_pairs_and_on_no_other_event() -> None:
    learner, batch = Softmax(DIM, SMALL), triplets(2, 30, DIM, "dense")
    for t in range(len(batch)):
        before, pairs = learner.A.copy(), learner.pairs
        learner.learn_many(batch.slice(t, t + 1))
        interval = 2 if learner.pairs < 3 else 4  # twice as many from half the memory on
        due = learner.pairs > pairs and learner.pairs % interval == 0
        # the first minibatches may hold one pair alone, which has nothing to be set against
        moved = bool((before != learner.A).any())
        assert moved == due or (due and learner.pairs == SMALL.every)
    assert learner.steps == 1 + learner.pairs // 4


def test_it_learns_a_direction_that_clicks_do_not_follow() -> None:
    """Objects of two halves: clicks follow the first, the second is noise, and as long."""
    rng = np.random.default_rng(3)
    kinds, noise = np.repeat(np.eye(6, dtype=np.float32), 50, axis=0), rng.standard_normal((300, 6))
    rows = np.concatenate([kinds, noise / np.linalg.norm(noise, axis=1, keepdims=True)], axis=1)
    q = rng.integers(300, size=1_000)
    c, s = q // 50 * 50 + rng.integers(50, size=1_000), rng.integers(300, size=1_000)
    learner = Softmax(12)
    info = learner.learn_many(TripletBatch(*(rows[one].astype(np.float32) for one in (q, c, s))))
    W = learner.W
    assert np.trace(W[:6, :6]) > 2 * np.trace(W[6:, 6:])
    assert info.loss[-200:].mean() < 0.8 * info.loss[:200].mean()


def test_W_is_symmetric_psd_and_begins_where_it_is_told() -> None:
    start = np.linspace(0.5, 3, DIM).astype(np.float32)
    learner = Softmax(DIM, SoftmaxConfig(batch=4, every=2, memory=6, start=start))
    np.testing.assert_allclose(learner.W, np.diag(start), rtol=1e-6)
    learner.learn_many(triplets(4, 40, DIM, "dense"))
    assert np.abs(learner.W - np.diag(start)).max() > 0.01
    np.testing.assert_array_equal(learner.W, learner.W.T)
    assert np.linalg.eigvalsh(learner.W.astype(float)).min() > -1e-6


def test_a_start_is_as_columns_that_were_scaled_before() -> None:
    start = np.array([0.25, 1, 4, 1, 16], np.float32)
    plain, begun = Softmax(DIM, SMALL), Softmax(DIM, SoftmaxConfig(batch=4, every=2, memory=6, start=start))
    batch = triplets(5, 40, DIM, "dense")
    begun.learn_many(batch)
    plain.learn_many(*(part.values * np.sqrt(start) for part in (batch.query, batch.clicked, batch.skipped)))
    assert bits(plain) == bits(begun)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 2e3},
        {"rate": 0.0},
        {"rate": 1.5},
        {"rate": np.inf},
        {"anneal": -1},
        {"anneal": 1.5},
        {"every": 0},
        {"every": 129},
        {"batch": 5000},
        {"memory": 1 << 25},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        SoftmaxConfig(**settings)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("second", -1.0), ("weights", 0.0)],
)
def test_states_that_were_altered_are_refused(name: str, spoil: float) -> None:
    learner = Softmax(DIM, SMALL)
    learner.learn_many(triplets(6, 20, DIM, "dense"))
    arrays = saved(learner)
    arrays[name].reshape(-1)[0] = spoil
    with pytest.raises(StateError, match=name):
        Softmax.from_state(arrays, SMALL)


@pytest.mark.parametrize("name", ["A", "first", "second", "queries", "clicked", "weights"])
def test_no_state_that_is_taken_overflows_later(name: str) -> None:
    learner, largest = Softmax(DIM, SMALL), np.finfo(np.float32).max
    learner.learn_many(triplets(6, 20, DIM, "dense"))
    for size in (1e-30, 1.0, 1e15, 1e18, largest):
        state = saved(learner)
        state[name][...] = size
        try:
            restored = Softmax.from_state(state, SMALL)
        except StateError as told:
            assert name in str(told)  # noqa: PT017
            continue
        restored.learn_many(triplets(7, 20, DIM, "dense"))
        assert np.isfinite(restored.W).all(), size
    assert size == largest


def test_a_state_of_other_settings_is_refused() -> None:
    learner = Softmax(DIM, SMALL)
    with pytest.raises(StateError, match="queries"):
        Softmax.from_state(learner.state(), SoftmaxConfig())


def test_its_memory_is_what_is_said() -> None:
    held = sum(array.nbytes for array in Softmax(DIM, SMALL).state().values())
    assert held - 24 == state_bytes(SMALL.memory, DIM)
