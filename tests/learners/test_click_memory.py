"""A memory of clicks: what is kept and what leaves, the same bits however events are cut, merges, scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.arms import ArmConfig, Arms, merged_arms, rebased_arms
from learners.block import TripletBatch
from learners.click_memory import ClickMemory, ClickMemoryConfig, click_memory_bytes
from learners.errors import ConfigError, StateError
from learners.forms.click_memory import NEAREST, ClickMemoryForm, nearest
from learners.outcome import Outcome, Reason

DIM = 6
METRIC = np.linspace(0.5, 3, DIM).astype(np.float32)
OBJECTS = np.random.default_rng(0).standard_normal((30, DIM)).astype(np.float32)
ROWS = OBJECTS * np.sqrt(METRIC)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
ARM = ArmConfig("seen", kind="memory", queries=8)
Pair = tuple[int, int]


def events(pairs: Sequence[Pair], rows: Any = ROWS) -> TripletBatch:
    queries, clicked = np.array(pairs, np.int64).reshape(-1, 2).T
    return TripletBatch(rows[queries], rows[clicked], rows[np.zeros_like(queries)])


def remembered(pairs: Sequence[Pair], queries: int = 8) -> ClickMemory:
    memory = ClickMemory(DIM, ClickMemoryConfig(queries))
    memory.learn_many(events(pairs), np.ones(len(pairs)))
    return memory


def known(state: Any) -> list[Pair]:
    """The pairs of a state, the oldest first."""
    places = np.argsort(state["stamps"])[np.count_nonzero(state["stamps"] == 0) :]
    number = {row.tobytes(): at for at, row in enumerate(ROWS)}
    return [(number[state["queries"][at].tobytes()], number[state["clicked"][at].tobytes()]) for at in places]


def copied(state: Any) -> dict[str, Any]:
    return {name: np.array(one) for name, one in state.items()}


def same(one: Any, other: Any) -> bool:
    return set(one) == set(other) and all(one[k].tobytes() == other[k].tobytes() for k in one)


def numbered(pairs: int, seed: int = 0, among: int = 5) -> list[Pair]:
    return [(int(q), int(c)) for q, c in np.random.default_rng(seed).integers(among, size=(pairs, 2))]


def test_pairs_are_kept_once_and_the_one_that_came_longest_ago_makes_room() -> None:
    assert known(remembered([(1, 2), (3, 4), (1, 2), (1, 5)], 3).state()) == [(3, 4), (1, 2), (1, 5)]
    assert known(remembered([(1, 2), (3, 4), (1, 2), (1, 5), (6, 7)], 3).state()) == [(1, 2), (1, 5), (6, 7)]
    every = numbered(500, among=6)
    wanted = list(dict.fromkeys(reversed(every)))[:8]
    assert known(remembered(every).state()) == wanted[::-1]


def test_several_events_of_a_click_count_as_it_does_once() -> None:
    pairs = numbered(60)
    often = [one for one in pairs for _ in range(4)]
    assert known(remembered(often).state()) == known(remembered(pairs).state())
    assert remembered(often).events == 240


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 90), max_size=8))
def test_a_memory_has_the_same_bits_however_events_are_cut_and_wherever_it_is_restored(
    cuts: list[int],
) -> None:
    pairs = [one for one in numbered(30) for _ in range(3)]
    config, cut = ClickMemoryConfig(8), ClickMemory(DIM, ClickMemoryConfig(8))
    for start, stop in itertools.pairwise([0, *sorted(cuts), 90]):
        cut = ClickMemory.from_state(copied(cut.state()), config, copy=False)
        cut.learn_many(events(pairs[start:stop]), np.ones(stop - start))
    assert same(cut.state(), remembered(pairs).state())


def test_what_cannot_be_remembered_changes_nothing() -> None:
    rows, weights = np.vstack([ROWS, np.zeros((1, DIM), np.float32)]), np.ones(7)
    rows[20, 1], rows[21, 1] = np.nan, 1e30
    weights[4], weights[5] = 0, -1
    memory = ClickMemory(DIM, ClickMemoryConfig(8))
    info = memory.learn_many(
        events([(1, 2), (1, 20), (21, 1), (30, 1), (3, 4), (3, 5), (1, 2)], rows), weights
    )
    updated, passive, degenerate, rejected = Outcome
    assert info.outcome.tolist() == [updated, rejected, rejected, degenerate, passive, rejected, passive]
    assert info.reason[1:3].tolist() == [Reason.NOT_FINITE, Reason.MAGNITUDE]
    assert same(memory.state(), remembered([(1, 2), (1, 2)]).state())


def test_a_state_that_is_none_is_refused() -> None:
    good, config = copied(remembered(numbered(20)).state()), ClickMemoryConfig(8)
    for name, array, why in (
        ("clicked", good["clicked"][:, 1:], "shape"),
        ("queries", good["queries"] * np.nan, "not finite"),
        ("stamps", good["stamps"] + 100, "outside 0..20"),
        ("events", np.array(-1, np.int64), "events"),
    ):
        with pytest.raises(StateError, match=why):
            ClickMemory.from_state(good | {name: array}, config)
    with pytest.raises(StateError, match="8 rows: it must have 9"):
        ClickMemory.from_state(good, ClickMemoryConfig(9))
    for wrong in (0, 1 << 21, True, 2.5):
        with pytest.raises(ConfigError, match="queries must be"):
            ClickMemoryConfig(wrong)  # type: ignore[arg-type]


def test_memory_of_a_full_one_is_counted() -> None:
    memory = remembered(numbered(500, among=30), 64)
    assert sum(one.nbytes for one in memory.state().values()) < click_memory_bytes(DIM, 64)


def arms(pairs: Sequence[Pair] = (), state: Any = None) -> dict[str, Any]:
    made = Arms(DIM, [ARM], METRIC, state)
    learned = events(pairs, OBJECTS) if pairs else None
    if learned is not None:
        made.learn(learned, np.ones(len(pairs)), np.zeros(len(pairs), np.uint8))
    return copied(made.state())


def pairs_of(arrays: Any) -> list[Pair]:
    state = {name.removeprefix("seen."): one for name, one in arrays.items()}
    Arms(DIM, [ARM], METRIC, arrays)  # which takes it
    rows = [
        row.tobytes() for row in np.concatenate([arms([(at, at)])["seen.queries"][:1] for at in range(30)])
    ]
    at = np.argsort(state["stamps"])[np.count_nonzero(state["stamps"] == 0) :]
    return [
        (rows.index(state["queries"][n].tobytes()), rows.index(state["clicked"][n].tobytes())) for n in at
    ]


def test_merged_memories_hold_the_newest_pairs_of_all_each_once() -> None:
    base = arms([(1, 1), (2, 2), (3, 3)])
    one, other = arms([(4, 4), (5, 5), (1, 1)], copied(base)), arms([(6, 6), (5, 5)], copied(base))
    merged = merged_arms([ARM], base, [one, other])
    assert pairs_of(merged) == [(2, 2), (3, 3), (4, 4), (6, 6), (5, 5), (1, 1)]
    assert int(merged["seen.events"]) == 8
    assert same(merged, merged_arms([ARM], base, [one, other, base])), "who has had none brings none"
    assert same(merged_arms([ARM], base, [one, base]), one), "a single one keeps its bits"
    assert same(merged_arms([ARM], base, [base, base]), base)
    changes = [{f"seen.{one}": base[f"seen.{one}"][1:]} for one in ("queries", "stamps")]
    for strange in (*changes, {"seen.W": np.eye(DIM, dtype=np.float32)}):
        assert same(merged_arms([ARM], base, [one, {**base, **strange}]), one), (
            "of another size or kind: none"
        )
    many = [arms(numbered(40, seed, 30), copied(base)) for seed in (1, 2)]
    full = pairs_of(merged_arms([ARM], base, many))
    assert len(full) == 8
    assert set(full) <= {*pairs_of(many[0])[-4:], *pairs_of(many[1])[-4:]}


def test_who_goes_on_from_a_merge_has_its_pairs_and_behind_them_its_own_since() -> None:
    base = arms([(1, 1)])
    counted = arms([(2, 2)], copied(base))
    merged = merged_arms([ARM], base, [counted, arms([(3, 3)], copied(base))])
    current = arms([(4, 4), (1, 1)], copied(counted))
    on = rebased_arms([ARM], current, counted, merged)
    assert pairs_of(on) == [(3, 3), (2, 2), (4, 4), (1, 1)]
    assert int(on["seen.events"]) == 5
    assert same(rebased_arms([ARM], current, counted, counted), current)
    assert pairs_of(rebased_arms([ARM], counted, counted, merged)) == pairs_of(merged)
    assert pairs_of(merged_arms([ARM], merged, [on])) == pairs_of(on)


def naive(pairs: Sequence[Pair], queries: Any, items: Any, share: float) -> Iterator[list[float]]:
    """By a loop, in float64. pairs: the oldest first, each once."""

    def unit(rows: Any) -> Any:
        u = np.asarray(rows, np.float64) * np.sqrt(METRIC.astype(np.float64))
        return u / np.linalg.norm(u, axis=1, keepdims=True)

    own = unit(OBJECTS)
    took: dict[int, set[int]] = {}
    for query, clicked in reversed(pairs):
        took.setdefault(query, set()).add(clicked)
    for query in unit(queries):
        near = sorted((one for one in took if own[one] @ query > 0), key=lambda one: -(own[one] @ query))
        yield [
            share * float(query @ item)
            + sum(any(own[one] @ item > 1 - 1e-5 for one in took[asked]) for asked in near[:NEAREST])
            for item in unit(items)
        ]


@pytest.mark.parametrize("share", [0.0, 3.0])
@pytest.mark.parametrize(("pairs", "queries"), [(0, 8), (3, 8), (60, 64), (900, 512)])
def test_scores_are_those_of_a_naive_loop(pairs: int, queries: int, share: float) -> None:
    arm = ArmConfig("seen", kind="memory", queries=queries)
    came = numbered(pairs, 3, 30)
    made = Arms(DIM, [arm], METRIC)
    if came:
        made.learn(events(came, OBJECTS), np.ones(len(came)), np.zeros(len(came), np.uint8))
    arrays = {name.removeprefix("seen."): one for name, one in made.state().items()}
    form = ClickMemoryForm.of(arrays, METRIC, share)
    kept = list(dict.fromkeys(reversed(came)))[:queries][::-1]
    others = np.random.default_rng(5).standard_normal((7, DIM)).astype(np.float32)
    asked, items = np.vstack([OBJECTS, others]), np.vstack([3 * OBJECTS, others])  # whatever their lengths
    np.testing.assert_allclose(form.scores(asked, items), [*naive(kept, asked, items, share)], atol=1e-5)


def test_of_equally_near_queries_the_newest_are_asked() -> None:
    cosines = np.repeat(np.array([0.5, 0.9, -0.1, 0.0], np.float32), 6)
    assert nearest(cosines).tolist() == [6, 7, 8, 9, 10, 11, 0, 1, 2, 3]
    assert nearest(cosines[-6:]).tolist() == []
    eye, more = np.eye(8, dtype=np.float32), ClickMemory(8, ClickMemoryConfig(20))
    asked = np.concatenate([eye[0] + eye[1:], eye[0] - eye[1:]]) * np.float32(0.5**0.5)
    clicked = np.concatenate([eye[1:], -eye[1:]])
    for at in (3, *range(14)):  # where 3 moves to the newest
        more.learn_many(TripletBatch(asked[[at]], clicked[[at]], eye[:1]), np.ones(1))
    found = ClickMemoryForm.of(more.state(), np.ones(8, np.float32)).scores(eye[:1], clicked)[0]
    assert np.flatnonzero(found == 0).tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_zero_scores_nothing_and_what_is_not_finite_no_number() -> None:
    form = ClickMemoryForm.of(remembered([(1, 2), (3, 2)]).state(), np.ones(DIM, np.float32), 1.0)
    rows = np.vstack([ROWS[1:3], np.zeros((2, DIM), np.float32)])
    rows[3, 0] = np.inf
    found = form.scores(rows, rows)
    assert found[2, :3].tolist() == found[:3, 2].tolist() == [0, 0, 0]
    assert np.isnan(found[3]).all() and np.isnan(found[:, 3]).all()  # noqa: PT018
    assert found[0, 1] > 1
    with pytest.raises(StateError, match="not of 3 dimensions"):
        ClickMemoryForm.of(remembered([(1, 2)]).state(), np.ones(3, np.float32))
