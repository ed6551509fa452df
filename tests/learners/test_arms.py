"""Arms of the race: which events each learns, and the same bits however they are cut."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.arm_kinds import ARM_KINDS
from learners.arms import (
    ABOVE,
    BELOW,
    ONLY_ABOVE,
    ONLY_ARMS,
    ONLY_BOTH,
    RANDOM,
    UNKNOWN,
    ArmConfig,
    Arms,
    PairRule,
    arm_bytes,
    merged_arms,
    own_rows,
    rebased_arms,
    takes,
)
from learners.block import DenseBlock, SparseBlock, TripletBatch
from learners.errors import BlockError, ConfigError
from learners.merge_rules import settle
from learners.oasis import Oasis, OasisConfig
from learners.outcome import Reason
from streams import event
from streams.event import PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM, PAIR_UNKNOWN

DIM, EVENTS = 8, 90
METRIC = np.linspace(0.5, 3, DIM).astype(np.float32)
ALL, CLEAN = ArmConfig("all"), ArmConfig("clean", "above", random=False, C=0.2, geometry="space")
PAIRS = (np.arange(EVENTS) * 7 % 4).astype(np.uint8)


def batch(seed: int = 0, events: int = EVENTS) -> TripletBatch:
    rows = np.random.default_rng(seed).standard_normal((3, events, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    return TripletBatch(*rows)


def learned(cuts: list[int] | None = None, configs: tuple[ArmConfig, ...] = (ALL, CLEAN)) -> Arms:
    arms, events, weights = Arms(DIM, configs, METRIC), batch(), np.linspace(0.2, 1, EVENTS)
    bounds = [0, *sorted(cuts or []), EVENTS]
    for start, stop in itertools.pairwise(bounds):
        arms.learn(events.slice(start, stop), weights[start:stop], PAIRS[start:stop])
    return arms


def same(one: Any, other: Any) -> bool:
    return set(one) == set(other) and all(one[k].tobytes() == other[k].tobytes() for k in one)


PAIR_RULES: tuple[PairRule, ...] = ("above", "all")


def test_pairs_have_the_numbers_that_events_have() -> None:
    assert (UNKNOWN, ABOVE, BELOW, RANDOM) == (PAIR_UNKNOWN, PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM)
    assert (ONLY_ABOVE, ONLY_BOTH, ONLY_ARMS) == (event.ONLY_ABOVE, event.ONLY_BOTH, event.ONLY_ARMS)


def test_which_pairs_a_rule_takes() -> None:
    pairs = np.array([UNKNOWN, ABOVE, BELOW, RANDOM], np.uint8)
    assert takes("above", pairs).tolist() == [True, True, False, True]
    assert takes("all", pairs).tolist() == [True] * 4
    assert takes("above", pairs, random=False).tolist() == [True, True, False, False]
    assert takes("all", pairs, random=False).tolist() == [True, True, True, False]


def test_bits_beside_a_pair_leave_it_to_some_learners() -> None:
    above = np.array([ABOVE, ABOVE | ONLY_ABOVE, ABOVE | ONLY_BOTH], np.uint8)
    assert takes("above", above).tolist() == [True, True, False]
    assert takes("all", above).tolist() == [True, False, True]
    alone = np.array([ABOVE, BELOW, RANDOM, ABOVE | ONLY_ABOVE, ABOVE | ONLY_BOTH], np.uint8)
    for rule in PAIR_RULES:
        assert not takes(rule, alone | ONLY_ARMS).any()
        for random in (True, False):
            among = takes(rule, alone | ONLY_ARMS, random, arm=True)
            assert among.tolist() == takes(rule, alone, random).tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, EVENTS), max_size=12))
def test_arms_have_the_same_bits_however_events_are_cut(cuts: list[int]) -> None:
    assert same(learned(cuts).state(), learned().state())


def test_an_arm_is_oasis_on_the_unit_rows_of_the_own_geometry() -> None:
    alone, events, weights = Oasis(DIM, OasisConfig(0.05)), batch(), np.linspace(0.2, 1, EVENTS)
    rows = [
        own_rows(DenseBlock(one.values), METRIC) for one in (events.query, events.clicked, events.skipped)
    ]
    alone.learn_many(TripletBatch(*rows), weights)
    state = learned().state()
    assert same(alone.state(), {name[4:]: one for name, one in state.items() if name.startswith("all.")})
    mapped, u = rows[0].values, batch().query.values * np.sqrt(METRIC)
    assert np.allclose(mapped, u / np.linalg.norm(u, axis=1, keepdims=True), atol=1e-6)


def test_an_arm_in_the_mapped_space_learns_its_events_alone() -> None:
    alone, events = Oasis(DIM, OasisConfig(0.2)), batch()
    rows = np.flatnonzero((PAIRS == UNKNOWN) | (PAIRS == ABOVE))
    alone.learn_many(events.take(rows), np.linspace(0.2, 1, EVENTS)[rows])
    state = learned().state()
    assert same(alone.state(), {name[6:]: one for name, one in state.items() if name.startswith("clean.")})


def test_a_malformed_event_is_named_and_changes_no_arm() -> None:
    rows = [np.array(one.values) for one in (batch().query, batch().clicked, batch().skipped)]
    rows[1][3, 2] = np.nan
    arms, weights = Arms(DIM, [ALL, CLEAN], METRIC), np.linspace(0.2, 1, EVENTS)
    reasons = arms.learn(TripletBatch(*rows), weights, PAIRS)
    assert np.flatnonzero(reasons).tolist() == [3]
    assert reasons[3] == Reason.NOT_FINITE
    others = np.delete(np.arange(EVENTS), 3)
    without = Arms(DIM, [ALL, CLEAN], METRIC)
    without.learn(batch().take(others), weights[others], PAIRS[others])
    assert same(arms.state(), without.state())


def test_arms_go_on_from_their_state_and_one_without_arrays_begins_untrained() -> None:
    first, half = learned([40]), Arms(DIM, [ALL, CLEAN], METRIC)
    weights = np.linspace(0.2, 1, EVENTS)
    half.learn(batch().slice(0, 40), weights[:40], PAIRS[:40])
    kept = {name: np.array(one) for name, one in half.state().items()}
    again = Arms(DIM, [ALL, CLEAN], METRIC, kept)
    again.learn(batch().slice(40, EVENTS), weights[40:], PAIRS[40:])
    assert same(again.state(), first.state())
    lacking = Arms(DIM, [ALL, CLEAN], METRIC, {k: v for k, v in kept.items() if k.startswith("all.")})
    assert same(
        lacking.state(),
        dict(Arms(DIM, [CLEAN], METRIC).state().items())
        | {name: one for name, one in lacking.state().items() if name.startswith("all.")},
    )


def test_other_arms_keep_what_those_with_the_same_settings_have_learned() -> None:
    before = {name: np.array(one) for name, one in learned().state().items()}
    new = ArmConfig("new")
    now = learned().changed([new, CLEAN]).state()
    assert {name.split(".")[0] for name in now} == {"new", "clean"}
    assert all(now[name].tobytes() == before[name].tobytes() for name in now if name.startswith("clean."))
    assert np.array_equal(now["new.W"], np.eye(DIM))
    other = learned().changed([ArmConfig("all", C=0.1)]).state()
    assert np.array_equal(other["all.W"], np.eye(DIM))


LONG = 200
"""Events of which arms are learned in threads."""


def raced(configs: list[ArmConfig], threads: int) -> Arms:
    """Lists in so many columns that steps wait; two events are malformed, one of them not in the metric."""
    rows = np.random.default_rng(2).standard_normal((3, LONG, 96)).astype(np.float32)
    rows[0], rows[1, 20, 3], rows[2, 30, 0] = np.repeat(rows[0, ::5], 5, axis=0), np.inf, 2e18
    arms = Arms(96, configs, np.full(96, 0.01, np.float32))
    reasons = arms.learn(
        TripletBatch(*rows), np.ones(LONG), (np.arange(LONG) % 4).astype(np.uint8), threads=threads
    )
    expected = {20: Reason.NOT_FINITE, 30: Reason.MAGNITUDE}
    assert {n: reasons[n] for n in np.flatnonzero(reasons).tolist()} == expected
    return arms


def test_an_arm_has_the_same_bits_in_any_number_of_threads_and_with_any_others() -> None:
    soft = ArmConfig.of({"name": "soft", "kind": "adapter", "settings": {"batch": 16}})
    configs = [ALL, soft, *(ArmConfig(f"c{n}", "above", n == 1, 0.1 * n) for n in (1, 2, 3))]
    several = raced(configs, 4).state()
    assert same(several, raced(configs, 1).state())
    assert same(several, raced(configs[::-1], 2).state())
    assert same(raced([ALL], 1).state(), {k: v for k, v in several.items() if k.startswith("all.")})
    assert len({several[f"{one.name}.W"].tobytes() for one in configs}) == 5


@pytest.mark.parametrize("threads", [1, 3])
def test_what_goes_wrong_beside_arms_or_in_one_surfaces_and_no_thread_stays(threads: int) -> None:
    events, pairs = TripletBatch(*np.ones((3, LONG, DIM), np.float32)), np.zeros(LONG, np.uint8)
    arms, weights, where = Arms(DIM, [ALL, CLEAN], METRIC), np.ones(LONG), list[int]()

    def fails() -> None:
        raise MemoryError("the main learner")

    def notes() -> None:
        where.append(threading.get_ident())

    with pytest.raises(MemoryError, match="the main learner"):
        arms.learn(events, weights, pairs, threads=threads, beside=fails)
    with pytest.raises(BlockError, match="map them alike"):
        Arms(DIM + 1, [CLEAN]).learn(events, weights, pairs, threads=threads, beside=notes)
    few = events.slice(0, 9)
    assert not arms.learn(few, weights[:9], pairs[:9], threads=threads, beside=notes).any()
    here = threading.get_ident()
    assert [one == here for one in where] == [threads == 1, True]  # for few events no thread is started
    assert not [one for one in threading.enumerate() if one.name.startswith("arms")]


def test_what_arms_need_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="arm all has the geometry of your own ranking"):
        Arms(DIM, [ALL])
    none = SparseBlock(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), DIM)
    with pytest.raises(ConfigError, match="dense vectors alone"):
        Arms(DIM, [ALL], METRIC).learn(TripletBatch(none, none, none), np.ones(1), np.zeros(1, np.uint8))


def test_an_arm_of_another_size_or_kind_under_one_name_brings_nothing_to_a_merge() -> None:
    small, large = (ArmConfig("all", kind="memory", queries=size) for size in (3, 5))
    states = []
    for config in (small, large, ALL):
        arms = Arms(DIM, [config], METRIC)
        arms.learn(batch(1, 8), np.ones(8), np.zeros(8, np.uint8))
        states.append({name: np.array(one) for name, one in arms.state().items()})
    base = Arms(DIM, [small], METRIC).state()
    assert same(merged_arms([small], base, states), merged_arms([small], base, states[:1]))
    assert same(rebased_arms([large], states[1], states[0], states[0]), states[1])
    assert same(rebased_arms([ALL], states[2], states[0], states[0]), states[2])
    # one that nobody configured here, as of a shard that was restarted first, or last
    assert same(rebased_arms([], states[1], states[0], states[0]), states[1])


def test_what_the_own_geometry_alone_refuses_is_no_fault_of_an_event() -> None:
    """Whatever else is refused near it: in which order arms learn says nothing."""
    rows = np.random.default_rng(0).standard_normal((3, LONG, DIM)).astype(np.float32)
    rows[1, 5, 0], rows[1, 9, 0] = 9e17, np.inf
    arms = Arms(DIM, [ALL, CLEAN, ArmConfig("space", geometry="space")], np.full(DIM, 4, np.float32))
    for threads in (1, 3):
        reasons = arms.learn(
            TripletBatch(*rows), np.ones(LONG), np.full(LONG, BELOW, np.uint8), threads=threads
        )
        assert np.flatnonzero(reasons).tolist() == [9]


def test_merged_arms_are_the_mean_by_the_events_of_each_arm() -> None:
    base = Arms(DIM, [ALL, CLEAN], METRIC).state()
    halves = []
    for seed, events in ((1, 30), (2, 10)):
        arms = Arms(DIM, [ALL, CLEAN], METRIC)
        arms.learn(batch(seed, events), np.ones(events), np.full(events, BELOW, np.uint8))
        halves.append({name: np.array(one) for name, one in arms.state().items()})
    merged = merged_arms([ALL, CLEAN], base, halves)
    whole = [Oasis.from_state({k[4:]: v for k, v in one.items() if k.startswith("all.")}).W for one in halves]
    assert np.allclose(
        merged["all.W"],
        np.eye(DIM) + 0.75 * (whole[0] - np.eye(DIM)) + 0.25 * (whole[1] - np.eye(DIM)),
        atol=1e-6,
    )
    assert merged["all.events"] == 40
    assert np.array_equal(merged["clean.W"], np.eye(DIM))
    one = merged_arms([ALL, CLEAN], base, [halves[0], {}])
    assert np.array_equal(one["all.W"], whole[0])
    on = rebased_arms([ALL, CLEAN], halves[0], halves[0], merged)
    assert np.array_equal(on["all.W"], merged["all.W"])
    alone = rebased_arms([ALL], Arms(DIM, [ALL], METRIC, halves[0]).state(), halves[1], {})
    assert np.array_equal(alone["all.W"], halves[0]["all.W"])
    Arms(DIM, [ALL], METRIC, alone)  # which takes these arrays over


def test_an_arm_that_began_after_what_was_merged_gets_what_the_others_learned() -> None:
    """As an arm that is new in the configuration of one shard first: else the next merge took it away."""
    for config in (ALL, ArmConfig("all", kind="memory", queries=50)):
        states = []
        for seed, events in ((1, 12), (2, 9)):
            arms = Arms(DIM, [config], METRIC)
            arms.learn(batch(seed, events), np.ones(events), np.full(events, BELOW, np.uint8))
            states.append({name: np.array(one) for name, one in arms.state().items()})
        base = Arms(DIM, [config], METRIC).state()
        merged = merged_arms([config], base, [states[1]])
        on = rebased_arms([config], states[0], {}, merged)
        both = merged_arms([config], merged, [on])
        assert int(both["all.events"]) == 21
        whole = rebased_arms([config], states[0], base, merged)
        assert same(on, whole)


KINDS = {
    kind: ArmConfig.of({"name": "arm", "kind": kind, "queries": 20, "settings": more})
    for kind, more in {
        **{kind: {} for kind in ARM_KINDS},
        "oasis-softmax": {"batch": 4, "every": 2, "memory": 16},
        "loreta": {"rank": 3},
        "adapter": {"batch": 8, "rate": 0.05},
    }.items()
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_arm_of_any_kind_has_the_same_bits_however_events_are_cut_and_wherever_it_goes_on(
    kind: str,
) -> None:
    once = learned(configs=(KINDS[kind],)).state()
    assert same(learned([1, 2, 30, 31, 77], (KINDS[kind],)).state(), once)
    arms, weights = Arms(DIM, [KINDS[kind]], METRIC), np.linspace(0.2, 1, EVENTS)
    for start, stop in itertools.pairwise([0, 5, 36, EVENTS]):
        arms.learn(batch().slice(start, stop), weights[start:stop], PAIRS[start:stop])
        arms = Arms(DIM, [KINDS[kind]], METRIC, {name: np.array(one) for name, one in arms.state().items()})
        arms.warm_up()
    assert same(arms.state(), once)


@pytest.mark.parametrize("kind", KINDS)
def test_arms_of_any_kind_are_merged_and_gone_on_with(kind: str) -> None:
    configs, states = [KINDS[kind]], []
    for seed, events in ((1, 40), (2, 60)):
        arms = Arms(DIM, configs, METRIC)
        arms.learn(batch(seed, events), np.ones(events), np.zeros(events, np.uint8))
        states.append({name: np.array(one) for name, one in arms.state().items()})
    base = Arms(DIM, configs, METRIC).state()
    merged = merged_arms(configs, base, states)
    counted = f"arm.{ARM_KINDS[kind].counted}"
    whole, *parts = (int(one[counted].reshape(-1)[-1]) for one in (merged, *states))
    assert whole == sum(parts) > max(parts)
    alone = merged_arms(configs, base, [states[0], {}])
    assert all(np.array_equal(alone[name], one) for name, one in settled(kind, states[0]).items())
    on = rebased_arms(configs, states[0], states[0], merged)
    for state in (merged, alone, on):
        Arms(DIM, configs, METRIC, state).learn(batch(3, 9), np.ones(9), np.zeros(9, np.uint8))


def settled(kind: str, state: Any) -> Any:
    """With every step in its arrays."""
    own = {name.removeprefix("arm."): one for name, one in state.items()}
    learner: Any = KINDS[kind].of_kind.made(DIM, KINDS[kind].learner, {k: v.copy() for k, v in own.items()})
    if kind != "memory":
        settle(learner)
    return {f"arm.{name}": one for name, one in learner.state().items()}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_the_matrix_of_an_arm_is_what_its_learner_serves(kind: str) -> None:
    arm, state = KINDS[kind], learned(configs=(KINDS[kind],)).state()
    own = {name.removeprefix("arm."): one for name, one in state.items()}
    learner: Any = arm.of_kind.learner.from_state(own, arm.learner)
    found, (x, y) = arm.of_kind.matrix(own, arm.learner), (batch(7, 6).query.values, batch(8, 6).query.values)
    diagonal = "diagonal" in kind or "soml" in kind
    scores = learner.form(False).scores(x, y) if diagonal else learner.similarity(x, y)
    assert np.allclose(x @ found @ y.T, scores, atol=1e-5)
    assert not np.allclose(found, np.eye(DIM))
    untrained = {k[4:]: v for k, v in Arms(DIM, [arm], METRIC).state().items()}
    assert np.array_equal(arm.of_kind.matrix(untrained, arm.learner), np.eye(DIM)), "begins with your ranking"


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_an_arm_of_any_kind_is_counted(kind: str) -> None:
    state = learned(configs=(KINDS[kind],)).state()
    counts = sum(one.nbytes for one in state.values() if one.ndim == 0) + 16
    assert sum(one.nbytes for one in state.values()) - counts <= arm_bytes(KINDS[kind], DIM)


def test_what_a_manifest_holds_of_an_arm_is_read_again() -> None:
    for arm in (*KINDS.values(), ArmConfig("all"), ArmConfig("other", C=0.2, geometry="space")):
        assert ArmConfig.of(arm.record) == (arm if arm.kind == "memory" else replace(arm, queries=4096))
    assert ALL.record == {"name": "all", "pairs": "all", "random": True, "C": 0.05, "geometry": "own"}
    whole = ArmConfig.of({"name": "a", "kind": "adapter", "settings": {"batch": 8}})
    assert whole.record["settings"] == {"temperature": 0.2, "rate": 0.001, "batch": 8}, (
        "also what nobody named"
    )
    with pytest.raises(ConfigError, match="of kind adapter have temperature, rate, batch, no symmetric"):
        ArmConfig.of({"name": "a", "kind": "adapter", "settings": {"symmetric": "online"}})
