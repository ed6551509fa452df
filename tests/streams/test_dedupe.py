"""The window of known event ids: what it admits is a function of the ids in their order."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.errors import StreamError
from streams.ids import IdWindow, united_ids


def ids_of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def by_hand(capacity: int, ids: list[int]) -> list[bool]:
    """The definition: known until `capacity` others were admitted after it."""
    known: deque[int] = deque(maxlen=capacity)
    fresh = []
    for one in ids:
        fresh.append(one not in known)
        if fresh[-1]:
            known.append(one)
    return fresh


def in_pieces(window: IdWindow, ids: np.ndarray, cuts: list[int]) -> list[bool]:
    return np.concatenate([window.admit(part) for part in np.split(ids, cuts)]).tolist()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_admitted_follows_the_definition_however_batches_are_cut(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(1, 9))
    # few ids, many of them with one home in the table, some of which wraps round its end
    pool = [*range(1, 12), *(16 * k + 15 for k in range(8)), 2**64 - 1, 2**63]
    ids = data.draw(st.lists(st.sampled_from(pool), max_size=120))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    window = IdWindow(capacity)
    assert in_pieces(window, ids_of(*ids), cuts) == by_hand(capacity, ids)
    whole = IdWindow(capacity)
    whole.admit(ids_of(*ids))
    assert {name: array.tobytes() for name, array in window.arrays().items()} == {
        name: array.tobytes() for name, array in whole.arrays().items()
    }
    assert len(window) == min(capacity, sum(by_hand(capacity, ids)))


def looked(window: IdWindow, ids: list[int], learned: list[bool], cuts: list[int]) -> list[bool]:
    """Which ids were not known, where those that are learned alone are admitted."""
    fresh: list[bool] = []
    for part in np.split(ids_of(*ids), cuts):
        at = 0
        while at < len(part):
            stop, news = window.look(part, at)
            assert stop > at
            takes = [new and learned[len(fresh) + place] for place, new in enumerate(news.tolist())]
            window.admit(part[at:stop][takes])
            fresh += news.tolist()
            at = stop
    return fresh


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_id_that_was_refused_is_not_known_however_batches_are_cut(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(0, 9))
    pool = [*range(1, 12), *(16 * k + 15 for k in range(8)), 2**64 - 1, 2**63]
    ids = data.draw(st.lists(st.sampled_from(pool), max_size=120))
    learned = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    known: deque[int] = deque(maxlen=capacity)
    fresh = []
    for one, takes in zip(ids, learned, strict=True):
        fresh.append(one not in known)
        if fresh[-1] and takes:
            known.append(one)
    window = IdWindow(capacity)
    assert looked(window, ids, learned, cuts) == fresh
    assert len(window) == len(known)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(1, 9), max_size=40), st.integers(0, 40))
def test_a_restored_window_goes_on_as_if_never_stopped(capacity: int, ids: list[int], cut: int) -> None:
    cut = min(cut, len(ids))
    before = IdWindow(capacity)
    before.admit(ids_of(*ids[:cut]))
    after = IdWindow.from_arrays(capacity, {name: array.copy() for name, array in before.arrays().items()})
    assert after.admit(ids_of(*ids[cut:])).tolist() == by_hand(capacity, ids)[cut:]
    assert before.admit(ids_of(*ids[cut:])).tolist() == by_hand(capacity, ids)[cut:]  # nothing is shared


def test_a_restored_window_that_was_full_forgets_its_oldest_id_next() -> None:
    window = IdWindow(3)
    window.admit(ids_of(1, 2, 3, 4))  # 4 is where 1 was
    restored = IdWindow.from_arrays(3, window.arrays())
    assert restored.arrays()["admitted"] == 4
    assert restored.admit(ids_of(5, 4, 3, 2)).tolist() == [True, False, False, True]


def test_an_id_is_known_until_exactly_capacity_others_were_admitted() -> None:
    window = IdWindow(5)
    window.admit(ids_of(7, 1, 2, 3, 4))
    assert window.admit(ids_of(7)).tolist() == [False]  # the fifth newest
    window.admit(ids_of(4, 4, 4))  # repetitions push nothing out
    assert window.admit(ids_of(7)).tolist() == [False]
    assert window.admit(ids_of(5, 7)).tolist() == [True, True]


def test_a_repetition_does_not_make_an_id_newer() -> None:
    window = IdWindow(3)
    window.admit(ids_of(1, 2, 3, 1))
    assert window.admit(ids_of(4, 1)).tolist() == [True, True]


def test_a_window_smaller_than_a_batch() -> None:
    ids = [1, 2, 3, 1, 3, 3, 2, 4, 1, 2]
    assert IdWindow(2).admit(ids_of(*ids)).tolist() == by_hand(2, ids)
    assert IdWindow(1).admit(ids_of(5, 5, 6, 5)).tolist() == [True, False, True, True]


def test_the_id_zero_is_an_id() -> None:
    assert IdWindow(4).admit(ids_of(0, 0, 2)).tolist() == [True, False, True]


def test_without_a_capacity_everything_is_admitted_and_nothing_kept() -> None:
    window = IdWindow(0)
    assert window.admit(ids_of(1, 1)).tolist() == [True, True]
    assert window.arrays() == {}
    assert len(window) == 0


def test_a_full_window_of_the_usual_size_stays_right() -> None:
    rng = np.random.default_rng(3)
    capacity = 100_000
    ids = rng.integers(1, 2**64, 3 * capacity, dtype=np.uint64)
    again = rng.random(len(ids)) < 0.3
    back = rng.integers(1, 2 * capacity, len(ids))
    ids = np.where(again & (np.arange(len(ids)) >= back), ids[np.arange(len(ids)) - back], ids)
    known, ages = set(), deque()
    expected = []
    for one in ids.tolist():
        expected.append(one not in known)
        if expected[-1]:
            known.add(one)
            ages.append(one)
            if len(ages) > capacity:
                known.remove(ages.popleft())
    assert 0.1 < 1 - np.mean(expected) < 0.4
    assert IdWindow(capacity).admit(ids).tolist() == expected


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ids_of(1, 2, 2)},
        {"ids": ids_of(1, 0, 2)},
        {"ids": ids_of(1, 2)},
        {"ids": np.array([1, 2, 3])},
        {"ids": ids_of(1, 2, 3).reshape(1, 3)},
        {"admitted": np.array(2, np.int64)},
        {"admitted": np.array(-1, np.int64)},
        {"admitted": np.array([3], np.int64)},
        {"other": np.zeros(1)},
    ],
)
def test_altered_arrays_are_refused(change: dict[str, Any]) -> None:
    window = IdWindow(4)
    window.admit(ids_of(1, 2, 3))
    with pytest.raises(StreamError):
        IdWindow.from_arrays(4, {**window.arrays(), **change})


def test_another_capacity_is_refused() -> None:
    window = IdWindow(4)
    window.admit(ids_of(1, 2, 3, 4, 5))
    with pytest.raises(StreamError, match="capacity"):
        IdWindow.from_arrays(5, window.arrays())
    with pytest.raises(ValueError, match="-1"):
        IdWindow(-1)


def arrays_of(window: IdWindow) -> dict[str, Any]:
    return {name: array.copy() for name, array in window.arrays().items()}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_several_know_is_known_together_round_after_round(data: st.DataObject) -> None:
    """By the definition: of the base's ids, then of what each admitted since, in turns by age, the newest."""
    capacity, shards = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    began = data.draw(st.integers(0, 12))
    base, whole = IdWindow(capacity), list(range(1, began + 1))
    base.admit(ids_of(*whole))
    merged, number = arrays_of(base), 100
    windows = [IdWindow.from_arrays(capacity, merged) for _ in range(shards)]
    for _ in range(data.draw(st.integers(1, 4))):
        fresh = []
        for window in windows:
            count = data.draw(st.integers(0, 12))
            fresh.append(list(range(number, number + count)))
            window.admit(ids_of(*fresh[-1]))
            number += count
        merged = united_ids(capacity, merged, [arrays_of(one) for one in windows], list(map(len, fresh)))
        kept = [ids[-capacity:] for ids in fresh]
        longest = max(map(len, kept))
        whole += [ids[-age] for age in range(longest, 0, -1) for ids in kept if len(ids) >= age]
        again = IdWindow.from_arrays(capacity, merged)
        assert not again.admit(ids_of(*whole[-capacity:])).any()
        assert len(again) == min(capacity, len(whole))


def test_one_window_goes_on_as_itself_and_none_leaves_the_base() -> None:
    base = IdWindow(5)
    base.admit(ids_of(1, 2, 3))
    alone = IdWindow.from_arrays(5, arrays_of(base))
    alone.admit(ids_of(4, 5, 6, 7))
    united = united_ids(5, arrays_of(base), [arrays_of(alone)], [4])
    assert {name: array.tobytes() for name, array in united.items()} == {
        name: array.tobytes() for name, array in alone.arrays().items()
    }
    assert united_ids(5, arrays_of(base), [], [])["ids"].tolist() == [1, 2, 3]
    assert united_ids(0, {}, [{}, {}], [3, 4]) == {}


def test_a_window_that_forgot_gives_what_it_knows() -> None:
    begun_anew = IdWindow(5)
    begun_anew.admit(ids_of(8))
    assert united_ids(5, {**arrays_of(IdWindow(5))}, [arrays_of(begun_anew)], [40])["ids"].tolist() == [8]
    with pytest.raises(StreamError, match="make a window of 5"):
        united_ids(5, arrays_of(IdWindow(5)), [{"ids": ids_of(1, 2), "admitted": np.array(9)}], [1])
