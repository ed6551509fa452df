"""One model per key: each key alone, in bounded room, whoever comes and goes, and however batches are cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners import (
    REJECTED,
    BlockError,
    ConfigError,
    Oasis,
    OasisConfig,
    Reason,
    SomlDa,
    SomlDaConfig,
    StateError,
    TripletBatch,
    TripletSteps,
)
from learners.keyed import CLOCK, Keyed, KeyedConfig

from ..examples import spoiled, triplets

DIM = 6
N = 60
NAMES = np.array([b"", b"a", b"b", b"c", "é".encode(), b"e" * 64], "S64")


def settings_of(slots: int, learner: Any = SomlDa, own: Any = SomlDaConfig(), **more: Any) -> KeyedConfig:
    return KeyedConfig(
        lambda dim: learner(dim, own),
        lambda arrays: learner.from_state(arrays, own, copy=False),
        slots,
        **more,
    )


CONFIGS = [
    settings_of(2),
    settings_of(2, when_full="evict", evict_after=0),
    settings_of(3, when_full="evict", evict_after=5),
    settings_of(3, Oasis, OasisConfig(psd_every=3), when_full="evict", evict_after=4),
]
EACH = pytest.mark.parametrize("config", CONFIGS, ids=["refuse", "evict", "evict-late", "oasis-psd"])


def stream(seed: int, n: int = N, kind: str = "sparse") -> TripletBatch:
    """Triplets of five keys and of none, some malformed."""
    keys = np.random.default_rng(seed).choice(NAMES, n)
    return replace(spoiled(triplets(seed, n, DIM, kind), seed), keys=keys)


def of(keys: list[str], seed: int = 0) -> TripletBatch:
    """A sound triplet for each key."""
    return replace(
        triplets(seed, len(keys), DIM, "dense"), keys=np.array([key.encode() for key in keys], "S64")
    )


def bits(keyed: Keyed) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in keyed.state().items()}


def slowly(
    config: KeyedConfig, batch: TripletBatch, weights: NDArray[Any]
) -> tuple[dict[str, Any], list[int]]:
    """The rule in its own words, with a learner per key in a dict: (key -> its state and events, reasons)."""
    models: dict[str, Any] = {}
    last: dict[str, int] = {}
    events: dict[str, int] = {}
    number, reasons = 0, []
    for row in range(len(batch)):
        assert batch.keys is not None
        name, one = batch.keys[row].decode(), batch.slice(row, row + 1)
        trial = config.make(DIM).learn_many(one, weights[row : row + 1])
        if trial.outcome[0] == REJECTED:
            reasons.append(int(trial.reason[0]))
            continue
        if not name:
            reasons.append(Reason.KEY_MISSING)
            continue
        number += 1
        if name not in models and len(models) == config.slots:
            oldest = min(last, key=last.__getitem__)
            if config.when_full == "refuse" or number - last[oldest] < config.evict_after:
                reasons.append(Reason.KEY_REFUSED)
                continue
            del models[oldest], last[oldest], events[oldest]
        model = models.setdefault(name, config.make(DIM))
        model.learn_many(one, weights[row : row + 1])
        last[name], events[name] = number, events.get(name, 0) + 1
        reasons.append(0)
    found = {
        name: ({key: array.tobytes() for key, array in model.state().items()}, events[name])
        for name, model in models.items()
    }
    return found, reasons


def told(keyed: Keyed) -> dict[str, Any]:
    found = {}
    for name, events in keyed.events().items():
        model = keyed.learner_of(name)
        assert model is not None
        found[name] = ({key: array.tobytes() for key, array in model.state().items()}, events)
    return found


@EACH
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, N), max_size=5))
@settings(max_examples=15, deadline=None)
def test_it_is_a_learner_per_key_however_it_is_cut(config: KeyedConfig, seed: int, cuts: list[int]) -> None:
    batch, weights = stream(seed), np.random.default_rng(seed).choice([0.0, 0.5, 1.0, -1.0], N)
    whole, parts = Keyed(DIM, config), Keyed(DIM, config)
    info = whole.learn_many(batch, weights)
    for start, stop in pairwise([0, *sorted(cuts), N]):
        parts.learn_many(batch.slice(start, stop), weights[start:stop])
    expected, reasons = slowly(config, batch, weights)
    assert told(whole) == expected
    assert info.reason.tolist() == reasons
    assert bits(whole) == bits(parts)


@EACH
@given(seed=st.integers(0, 2**32 - 1), pieces=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_a_copy_that_takes_the_steps_lets_in_and_gives_up_the_same_keys(
    config: KeyedConfig, seed: int, pieces: int
) -> None:
    keyed, copy = Keyed(DIM, config), Keyed(DIM, config)
    for part in range(3):
        batch = stream(seed + part)
        for steps in keyed.taken(batch, keyed.learn_many(batch)):
            for start in range(0, len(steps), pieces):
                copy.replay(steps.slice(start, start + pieces))
    clock = {CLOCK: b""}
    assert bits(copy) | clock == bits(keyed) | clock


@EACH
def test_it_goes_on_from_its_arrays_as_if_never_stopped(config: KeyedConfig) -> None:
    keyed = Keyed(DIM, config)
    keyed.learn_many(stream(1))
    kept = {name: array.copy() for name, array in keyed.state().items()}
    again, over = Keyed.from_state(kept, config), keyed.clone()
    assert told(again) == told(keyed)
    for one in (keyed, again, over):
        one.learn_many(stream(2))
    assert bits(keyed) == bits(again) == bits(over)


def test_who_was_silent_longest_goes_and_comes_back_without_a_memory() -> None:
    keyed = Keyed(DIM, settings_of(2, when_full="evict"))
    info = keyed.learn_many(of(["a", "b", "a", "c", "a"]))
    assert sorted(keyed.names()) == ["a", "c"]
    assert (info.evicted, keyed.events()) == (1, {"a": 3, "c": 1})
    keyed.learn_many(of(["b"]))
    assert keyed.events() == {"a": 3, "b": 1}
    assert keyed.learner_of("c") is None


def test_who_was_silent_longest_goes_after_a_restart_too() -> None:
    config = settings_of(2, when_full="evict")
    keyed = Keyed(DIM, config)
    keyed.learn_many(of(["a", "b", "a"]))
    again = Keyed.from_state(keyed.state(), config)
    again.learn_many(of(["c"]))
    assert sorted(again.names()) == ["a", "c"]


def test_a_new_key_waits_until_the_oldest_was_silent_long_enough() -> None:
    """Events that are refused count: the clock goes on while all slots are taken by the silent."""
    keyed = Keyed(DIM, settings_of(1, when_full="evict", evict_after=4))
    info = keyed.learn_many(of(["a", "b", "c", "d", "b"]))
    assert info.reason.tolist() == [0] + 3 * [Reason.KEY_REFUSED] + [0]
    assert keyed.names() == ["b"]


def test_what_a_step_refuses_lets_nobody_in() -> None:
    keyed = Keyed(DIM, settings_of(1))
    info = keyed.learn_many(of(["a", "b"]), np.array([-1.0, 1.0]))
    assert info.reason.tolist() == [Reason.MAGNITUDE, 0]
    assert keyed.names() == ["b"]


def test_without_a_key_it_scores_as_before_any_event() -> None:
    keyed, rows = Keyed(DIM, settings_of(2)), np.eye(DIM, dtype=np.float32)
    before = keyed.similarity(rows, rows)
    keyed.learn_many(of(["a"] * 20))
    assert np.array_equal(keyed.similarity(rows, rows), before)
    model = keyed.learner_of("a")
    assert model is not None
    assert not np.array_equal(model.similarity(rows, rows), before)


def test_triplets_without_keys_are_rejected() -> None:
    keyed = Keyed(DIM, settings_of(2))
    batch = triplets(0, 5, DIM, "dense")
    info = keyed.learn_many(batch)
    assert info.reason.tolist() == [Reason.KEY_MISSING] * 5
    assert not keyed.taken(batch, info)
    assert keyed.learn_one(batch.query.take([0]), batch.clicked.take([0]), batch.skipped.take([0]), "k")
    assert keyed.names() == ["k"]


def test_steps_that_do_not_fit_are_refused() -> None:
    keyed = Keyed(DIM, settings_of(2))
    batch = of(["a", "b", "a"])
    (steps,) = keyed.taken(batch, keyed.learn_many(batch))
    for wrong in (steps, TripletSteps(steps.batch)):
        with pytest.raises(BlockError):
            keyed.replay(wrong)
    full = Keyed(DIM, settings_of(1))
    with pytest.raises(BlockError, match="step 1 of 3 is refused"):
        full.replay(steps)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("key_name", np.zeros((2, 64), np.uint8)),
        ("key_name", np.full((2, 64), 97, np.uint8)),
        ("key_last", np.array([0, 9], np.int64)),
        ("key_last", np.array([1, 1], np.int64)),
        ("key_events", np.array([0, 1], np.int64)),
        ("key_clock", np.array(0, np.int64)),
        ("G", np.zeros((3, DIM))),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(name: str, wrong: NDArray[Any]) -> None:
    keyed = Keyed(DIM, settings_of(2))
    keyed.learn_many(of(["a", "b"]))
    arrays = {one: array.copy() for one, array in keyed.state().items()} | {name: wrong}
    with pytest.raises(StateError, match=name.split("_", maxsplit=1)[0]):
        Keyed.from_state(arrays, settings_of(2))


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"when_full": "ask"}, {"evict_after": -1}])
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(settings_of(2), **wrong)
