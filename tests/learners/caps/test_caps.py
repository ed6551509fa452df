"""Caps on the summed step per source, query and item: against a plain reading of the rule, for any cut."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.block import DenseBlock, TripletBatch, as_block
from learners.caps import ITEM, QUERY, SOURCE, CappedInfo, CapsConfig, StepWindow, learn_capped, united_steps
from learners.errors import BlockError, ConfigError, StateError
from learners.kernels.caps import UNIT
from learners.oasis import Oasis, OasisConfig
from learners.outcome import UPDATED, StepInfo

DIM = 6
C = 0.25
EVENTS = 80


class Stream:
    """Triplets of few objects, so that names come again, with weights and names of their own."""

    def __init__(self, seed: int, events: int, objects: int = 5) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((objects, DIM)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.named = rng.integers(0, objects, (events, 3))
        q, c, s = (DenseBlock(rows[self.named[:, role]]) for role in range(3))
        self.batch = TripletBatch(q, c, s)
        self.names = np.column_stack([rng.integers(0, 3, events), self.named]).astype(np.uint64)
        self.weights = rng.choice([0.3, 1.0, 2.5], events)

    def part(self, start: int, stop: int) -> tuple[TripletBatch, NDArray[np.float64], NDArray[np.uint64]]:
        return self.batch.slice(start, stop), self.weights[start:stop], self.names[start:stop]


class Plain:
    """The rule as it is said, in plain numbers of Python: one event after another, every sum made anew."""

    def __init__(self, config: CapsConfig) -> None:
        self.caps = (config.source, config.query, config.item)
        self.window: deque[tuple[tuple[tuple[int, int], ...], int]] = deque(maxlen=config.window)

    def learn(
        self, learner: Oasis, batch: TripletBatch, weight: float, names: list[int]
    ) -> tuple[int, float]:
        """(fate, weight learned with) of one event."""
        keys = tuple(dict.fromkeys([(0, names[0]), (1, names[1]), (2, names[2]), (2, names[3])]))
        left = math.ceil(weight * UNIT)
        own = left
        for kind, name in keys:
            if not self.caps[kind]:
                continue
            spent = sum(parts for others, parts in self.window if (kind, name) in others)
            room = math.ceil(self.caps[kind] * UNIT) - spent
            if room <= 0:
                return kind + 1, 0.0
            left = min(left, room)
        limit = weight if left == own else left / UNIT
        info = learner.learn_many(batch, np.array([limit]))
        took = math.ceil(float(info.tau[0]) / C * UNIT) if info.outcome[0] == UPDATED else 0
        self.window.append((keys, min(took, left)))
        return 0, limit


def cut(stream: Stream, cuts: list[int], window: StepWindow, learner: Oasis) -> list[CappedInfo]:
    ends = sorted({*cuts, len(stream.weights)})
    return [
        learn_capped(learner, window, *stream.part(start, stop), full_step=C)
        for start, stop in zip([0, *ends], ends, strict=False)
        if stop > start
    ]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, EVENTS - 1), max_size=12),
    st.sampled_from([0.0, 0.7, 3.0]),
    st.sampled_from([0.0, 1.3]),
    st.sampled_from([0.0, 0.4, 2.0]),
    st.sampled_from([1, 7, 40, 1000]),
)
def test_it_is_the_rule_for_any_cut(
    seed: int, cuts: list[int], source: float, query: float, item: float, size: int
) -> None:
    config, stream = CapsConfig(size, source, query, item), Stream(seed, EVENTS)
    learner, window = Oasis(DIM, OasisConfig(C=C)), StepWindow(config)
    done = cut(stream, cuts, window, learner)
    other, plain = Oasis(DIM, OasisConfig(C=C)), Plain(config)
    expected = [
        plain.learn(other, stream.batch.slice(t, t + 1), float(stream.weights[t]), stream.names[t].tolist())
        for t in range(EVENTS)
    ]
    assert np.concatenate([one.fates for one in done]).tolist() == [fate for fate, _ in expected]
    limits = np.concatenate([one.weights for one in done]).tolist()
    assert limits == [limit for fate, limit in expected if not fate]
    assert learner.W.tobytes() == other.W.tobytes()


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 10_000), st.integers(1, EVENTS - 1), st.sampled_from([3, 50]), st.integers(0, 2**64 - 1)
)
def test_it_goes_on_from_its_arrays(seed: int, at: int, size: int, salt: int) -> None:
    config, stream = CapsConfig(size, 2.0, 1.0, 1.5), Stream(seed, EVENTS)
    learner, window = Oasis(DIM, OasisConfig(C=C)), StepWindow(config)
    whole = cut(stream, [at], window, learner)
    other, first = Oasis(DIM, OasisConfig(C=C)), StepWindow(config)
    learn_capped(other, first, *stream.part(0, at), full_step=C)
    kept = {name: array.copy() for name, array in first.arrays().items()}
    again = StepWindow.from_arrays(config, kept, salt)
    rest = learn_capped(other, again, *stream.part(at, EVENTS), full_step=C)
    assert rest.fates.tolist() == whole[1].fates.tolist()
    assert other.W.tobytes() == learner.W.tobytes()
    assert {n: a.tobytes() for n, a in again.arrays().items()} == {
        n: a.tobytes() for n, a in window.arrays().items()
    }


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([5, 60]), st.sampled_from([0.6, 3.0]))
def test_no_window_holds_more_than_the_cap(seed: int, size: int, cap: float) -> None:
    config, stream = CapsConfig(size, item=cap), Stream(seed, 300)
    done = learn_capped(Oasis(DIM, OasisConfig(C=C)), StepWindow(config), *stream.part(0, 300), full_step=C)
    taus = done.info.tau.astype(np.float64) / C
    for end in range(1, len(taus) + 1):
        begin = max(0, end - size)
        let_in = done.rows[begin:end]
        for item in range(5):
            touches = (stream.named[let_in, 1] == item) | (stream.named[let_in, 2] == item)
            assert taus[begin:end][touches].sum() <= cap * (1 + 1e-6)


def test_a_million_clicks_for_one_item_move_w_by_its_cap_and_no_further() -> None:
    stream = Stream(3, 2_000, objects=40)
    named = stream.names.copy()
    named[:, 2] = 7  # everybody clicks on the same thing
    learner, window = Oasis(DIM, OasisConfig(C=C)), StepWindow(CapsConfig(100_000, item=5.0))
    refused = 0
    for _ in range(500):
        done = learn_capped(learner, window, stream.batch, np.ones(2_000), named, full_step=C)
        refused += int(np.count_nonzero(done.fates == ITEM))
    # ||tau V|| <= tau ||q|| ||c - s|| <= 2 tau at unit length
    assert np.linalg.norm(learner.W - np.eye(DIM)) <= 2 * C * 5.0
    assert refused > 990_000
    free = Oasis(DIM, OasisConfig(C=C))
    free.learn_many(stream.batch)
    assert np.linalg.norm(free.W - np.eye(DIM)) > np.linalg.norm(learner.W - np.eye(DIM))


def test_names_are_told_apart_by_what_they_name() -> None:
    stream = Stream(1, 1)
    for kind, cap in enumerate(("source", "query", "item")):
        window = StepWindow(CapsConfig(10, **{cap: 1e-6}))
        learner = Oasis(DIM)
        far = TripletBatch(*(as_block(np.eye(DIM, dtype=np.float32)[k : k + 1]) for k in (0, 1, 2)))
        same = np.array([[9, 9, 9, 8]], np.uint64)
        assert learn_capped(learner, window, far, np.ones(1), same, full_step=None).fates.tolist() == [0]
        for place, fate in enumerate((SOURCE, QUERY, ITEM, ITEM)):
            names = np.array([[1, 2, 3, 4]], np.uint64)
            names[0, place] = 9
            found = learn_capped(
                learner, window, stream.batch, np.zeros(1), names, full_step=None
            ).fates.tolist()
            assert found == [fate if fate == kind + 1 else 0]


def test_an_item_that_was_skipped_is_the_item_that_is_clicked() -> None:
    window, learner = StepWindow(CapsConfig(10, item=1e-6)), Oasis(DIM)
    far = TripletBatch(*(as_block(np.eye(DIM, dtype=np.float32)[k : k + 1]) for k in (0, 1, 2)))
    first = np.array([[0, 1, 2, 3]], np.uint64)
    second = np.array([[0, 1, 3, 5]], np.uint64)
    assert learn_capped(learner, window, far, np.ones(1), first, full_step=None).fates.tolist() == [0]
    assert learn_capped(learner, window, far, np.ones(1), second, full_step=None).fates.tolist() == [ITEM]


def test_what_a_learner_refuses_spends_nothing() -> None:
    window, learner = StepWindow(CapsConfig(10, item=1.0)), Oasis(DIM)
    bad = TripletBatch(*(as_block(np.full((1, DIM), np.nan, np.float32)) for _ in range(3)))
    names = np.array([[0, 1, 2, 3]], np.uint64)
    for weight in (1.0, -1.0, np.nan, np.inf):
        done = learn_capped(learner, window, bad, np.array([weight]), names, full_step=None)
        assert done.info.outcome.tolist() == [3]
        assert np.array_equal(done.weights, [weight], equal_nan=True)
    assert window.arrays()["spent"].tolist() == [0] * 10


def test_without_a_full_step_an_update_spends_its_weight() -> None:
    class Always:
        def learn_many(self, batch: TripletBatch, weights: NDArray[np.float64]) -> StepInfo:
            return replace(StepInfo.empty(len(batch)), tau=np.full(len(batch), 7, np.float32))

    window, stream = StepWindow(CapsConfig(10, source=2.5)), Stream(0, 4)
    names = np.zeros((4, 4), np.uint64)
    done = learn_capped(Always(), window, stream.batch, np.ones(4), names, full_step=None)  # type: ignore[arg-type]
    assert (done.weights.tolist(), done.limited) == ([1.0, 1.0, 0.5], 1)
    assert done.fates.tolist() == [0, 0, 0, SOURCE]


def test_without_caps_nothing_is_kept() -> None:
    window = StepWindow(CapsConfig(100))
    assert window.arrays() == {}
    assert StepWindow.from_arrays(CapsConfig(), {}).arrays() == {}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"names": np.zeros((3, 4), np.uint64)},
        {"admitted": np.array(-1)},
        {"admitted": np.array(1), "spent": np.ones(4, np.int64)},
        {"admitted": np.array(9), "spent": np.full(4, -1)},
        {"admitted": np.array(9), "spent": np.full(4, 2**62)},
    ],
)
def test_altered_arrays_are_refused(arrays: dict[str, NDArray[np.int64]]) -> None:
    whole = StepWindow(CapsConfig(4, item=1.0)).arrays()
    with pytest.raises(StateError):
        StepWindow.from_arrays(CapsConfig(4, item=1.0), {**whole, **arrays} if arrays else {})


@pytest.mark.parametrize("wrong", [{"window": -1}, {"item": 1.0}, {"window": 5, "item": -1.0}])
def test_settings_say_what_is_wrong(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        CapsConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        CapsConfig(5, source=math.nan)


def test_names_must_fit_the_batch() -> None:
    stream = Stream(0, 3)
    with pytest.raises(BlockError):
        learn_capped(
            Oasis(DIM), StepWindow(CapsConfig()), stream.batch, np.ones(3), stream.names[:2], full_step=None
        )


def test_planning_on_what_is_not_settled_ends() -> None:
    window = StepWindow(CapsConfig(10, item=1.0))
    names, weights = np.zeros((3, 4), np.uint64), np.full(3, 0.7)
    assert window.plan(names, weights, 0)[0] == 1
    with pytest.raises(RuntimeError, match="not settled"):
        window.plan(names, weights, 1)


def taken(window: StepWindow) -> dict[str, NDArray[np.int64]]:
    return {name: array.copy() for name, array in window.arrays().items()}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_several_let_in_counts_together_round_after_round(data: st.DataObject) -> None:
    """By the definition: the newest of the base's events and of what each let in since, in turns by age."""
    room, shards = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    config = CapsConfig(room, query=1e6)
    began, number = StepWindow(config), 1
    windows = [StepWindow(config) for _ in range(shards)]
    merged, whole = taken(began), list[int]()
    for _ in range(data.draw(st.integers(1, 4))):
        fresh = [data.draw(st.integers(0, 8)) for _ in windows]
        news = []
        for window, count in zip(windows, fresh, strict=True):
            news.append(list(range(number, number + count)))
            for name in news[-1]:
                window.plan(np.full((1, 4), name, np.uint64), np.ones(1), 0)
                window.settle(np.array([name / UNIT]))
            number += count
        merged = united_steps(config, merged, [taken(one) for one in windows], fresh)
        kept = [one[-room:] for one in news]
        longest = max(map(len, kept))
        whole += [one[-age] for age in range(longest, 0, -1) for one in kept if len(one) >= age]
        held = merged["spent"][merged["spent"] > 0]
        assert sorted(held) == sorted(whole[-room:])
        assert int(merged["admitted"]) == number - 1
        assert merged["names"][:, 0].tolist() == merged["spent"].tolist()
        StepWindow.from_arrays(config, merged)  # it is a window


def test_a_window_that_was_begun_anew_gives_what_it_holds() -> None:
    config = CapsConfig(4, item=1.0)
    window = StepWindow(config)
    window.plan(np.full((1, 4), 7, np.uint64), np.ones(1), 0)
    window.settle(np.array([0.5]))
    united = united_steps(config, taken(StepWindow(config)), [taken(window)], [30])
    assert {n: a.tobytes() for n, a in united.items()} == {n: a.tobytes() for n, a in taken(window).items()}
    assert united_steps(CapsConfig(), {}, [{}], [3]) == {}
