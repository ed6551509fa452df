"""The adapter: its gradient by an independent loop, and the same bits however events are cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.adapter import (
    OF_AN_ADAPTER,
    AdapterConfig,
    SoftmaxAdapter,
    adapter_bytes,
    adapter_gradient,
)
from learners.block import TripletBatch
from learners.errors import ConfigError, StateError
from learners.merge import StateMerge
from learners.outcome import Outcome, Reason

DIM, EVENTS = 5, 43
CONFIG = AdapterConfig(temperature=0.3, rate=0.02, batch=8)
WEIGHTS = np.linspace(0.2, 2, EVENTS)


def triplets(seed: int = 0, events: int = EVENTS) -> Any:
    return np.random.default_rng(seed).standard_normal((3, events, DIM)).astype(np.float32)


def learned(cuts: Any = (), resumed: bool = False) -> SoftmaxAdapter:
    made, rows = SoftmaxAdapter(DIM, CONFIG), triplets()
    for start, stop in itertools.pairwise([0, *sorted(cuts), EVENTS]):
        made.learn_many(TripletBatch(*rows[:, start:stop]), WEIGHTS[start:stop])
        if resumed:
            made = SoftmaxAdapter.from_state(copied(made), CONFIG, copy=False)
    return made


def copied(made: SoftmaxAdapter) -> dict[str, Any]:
    return {name: np.array(one) for name, one in made.state().items()}


def same(one: SoftmaxAdapter, other: SoftmaxAdapter) -> bool:
    states = one.state(), other.state()
    return all(states[0][name].tobytes() == states[1][name].tobytes() for name in states[0])


def loss(W: Any, rows: Any, weights: Any, temperature: float) -> float:
    """As the paper would say it, one event and one object at a time, in float64."""
    total = 0.0
    for i, q in enumerate(rows[0]):
        scores = [float(q @ W @ p) / temperature for p in (*rows[1], *rows[2])]
        total -= weights[i] * np.log(np.exp(scores[i]) / np.exp(scores).sum())
    return total / len(rows[0])


def by_differences(W: Any, *args: Any) -> Any:
    G, h = np.zeros_like(W), 1e-5
    for at in np.ndindex(W.shape):
        D = np.zeros_like(W)
        D[at] = h
        G[at] = (loss(W + D, *args) - loss(W - D, *args)) / (2 * h)
    return G


def test_the_gradient_is_that_of_finite_differences() -> None:
    rows, W = triplets(1, 6), triplets(2, DIM)[0]
    weights = np.array([1, 0.2, 3, 1, 0.5, 1], np.float32)
    found = adapter_gradient(W, rows, weights, 0.7)
    args = (rows.astype(np.float64), weights.astype(np.float64), 0.7)
    np.testing.assert_allclose(found, by_differences(W.astype(np.float64), *args), atol=2e-5)


def test_w_is_that_of_adam_on_batches_of_unit_rows() -> None:
    """By a loop in float64. The last 3 events wait for a full minibatch."""
    rows = triplets().astype(np.float64)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    W, first, second = np.eye(DIM), np.zeros((DIM, DIM)), np.zeros((DIM, DIM))
    for t in range(1, 6):
        part = slice(8 * (t - 1), 8 * t)
        G = by_differences(W, rows[:, part], WEIGHTS[part], 0.3)
        first, second = 0.9 * first + 0.1 * G, 0.999 * second + 0.001 * G**2
        W = W - 0.02 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    made = learned()
    np.testing.assert_allclose(made.W, W, atol=1e-5)
    assert np.abs(made.W - np.eye(DIM)).max() > 0.05
    assert (made.waiting, made.steps, made.events) == (3, 5, EVENTS)
    np.testing.assert_allclose(made.rows[:, :3], rows[:, 40:], atol=1e-6)
    np.testing.assert_allclose(made.weights[:3], WEIGHTS[40:], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, EVENTS), max_size=12), st.booleans())
def test_bits_are_the_same_however_events_are_cut_and_wherever_it_goes_on(cuts: Any, resumed: bool) -> None:
    assert same(learned(cuts, resumed), learned())


def test_what_waits_teaches_nothing_yet_and_neither_does_what_says_nothing() -> None:
    rows = triplets(3, 7)
    rows[0, 1], rows[2, 2], rows[1, 3, 0] = 0, rows[1, 2], np.nan
    weights = np.array([1, 1, 1, 1, 0, 2, 1e9])
    made = SoftmaxAdapter(DIM, CONFIG)
    info = made.learn_many(TripletBatch(*rows), weights)
    U, P, D, R = (int(one) for one in Outcome)
    assert info.outcome.tolist() == [U, D, D, R, P, U, U]
    assert info.reason[3] == Reason.NOT_FINITE
    assert info.tau.tolist() == [1, 0, 0, 0, 0, 2, 1e6]
    assert (made.waiting, made.events) == (3, 6)
    assert np.array_equal(made.W, np.eye(DIM))


def test_long_rows_and_large_weights_leave_no_number_out_of_range() -> None:
    made = SoftmaxAdapter(DIM, AdapterConfig(temperature=0.01, batch=4))
    rows = np.clip(triplets(4, 40) * np.float32(1e18), -1e18, 1e18)
    made.learn_many(TripletBatch(*rows), np.full(40, 1e18))
    assert all(np.isfinite(one).all() for one in made.state().values())
    assert made.steps == 10
    SoftmaxAdapter.from_state(copied(made), made.config)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("W", lambda one: one * np.float32(1e38)),
        ("W", lambda one: one[:2]),
        ("first", lambda one: one + 1),
        ("second", lambda one: -1 - one),
        ("rows", lambda one: one * 3),
        ("rows", lambda one: one[:, :7]),
        ("rows", lambda one: one[:, ::-1].copy()),
        ("weights", lambda one: -one),
        ("weights", lambda one: one + 1),
        ("waiting", lambda one: one + 5),
        ("waiting", lambda one: one + 1),
        ("waiting", lambda one: one - 1),
    ],
)
def test_a_state_that_no_events_lead_to_is_refused(name: str, change: Any) -> None:
    state = copied(learned())
    SoftmaxAdapter.from_state(state, CONFIG)
    with pytest.raises(StateError):
        SoftmaxAdapter.from_state(state | {name: np.array(change(state[name]))}, CONFIG)


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.001}, {"temperature": "x"}, {"rate": 2.0}, {"rate": 0.0}, {"batch": 0}]
)
def test_settings_out_of_range_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AdapterConfig(**wrong)


def test_memory_is_counted() -> None:
    assert sum(one.nbytes for one in learned().state().values()) <= adapter_bytes(8, DIM) + 24


def test_merged_it_is_the_mean_and_who_goes_on_keeps_what_waits() -> None:
    algebra = StateMerge(dict, OF_AN_ADAPTER)
    base = copied(SoftmaxAdapter(DIM, CONFIG))
    made = SoftmaxAdapter(DIM, CONFIG)
    made.learn_many(TripletBatch(*triplets(5, 21)))
    one, other = copied(learned()), copied(made)
    merged = algebra.states(base, [one, other], [EVENTS, 21])
    np.testing.assert_allclose(merged["W"], (EVENTS * one["W"] + 21 * other["W"]) / (EVENTS + 21), atol=1e-6)
    assert (int(merged["events"]), int(merged["waiting"]), int(merged["steps"])) == (EVENTS + 21, 3, 5)
    SoftmaxAdapter.from_state(merged, CONFIG)
    on = algebra.rebased(other, other, merged)
    assert np.array_equal(on["W"], merged["W"])
    assert all(
        np.array_equal(on[name], other[name]) for name in ("rows", "weights", "waiting", "first", "steps")
    )
    assert all(
        one[name].tobytes() == array.tobytes() for name, array in algebra.states(base, [one], [1]).items()
    )


def test_a_weight_that_float32_cannot_hold_teaches_nothing_and_leaves_a_state_that_loads() -> None:
    made = SoftmaxAdapter(DIM, CONFIG)
    info = made.learn_many(TripletBatch(*triplets()[:, :2]), np.array([1.0, 1e-60]))
    assert info.outcome.tolist() == [Outcome.UPDATED, Outcome.PASSIVE]
    assert SoftmaxAdapter.from_state(copied(made), CONFIG).waiting == 1
