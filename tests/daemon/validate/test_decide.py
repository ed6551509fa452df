"""Best version, guard, early stop and the verdicts to write: tables and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.validate.decide import (
    History,
    StopRule,
    best_version,
    next_to_judge,
    out_of_patience,
    outstanding,
)
from daemon.validate.rules import Judged

RULE = StopRule(patience=3, min_delta=0.01, min_versions=4)
ZERO = Judged(0, 0.2, 0.2)


def run(*gains, start=1):
    """Version 0 and then one version per gain."""
    return (ZERO, *(Judged(start + i, 0.2 + gain, 0.2) for i, gain in enumerate(gains)))


@pytest.mark.parametrize(
    ("gains", "best"),
    [((), 0), ((-0.1, -0.2), 0), ((0.0,), 0), ((0.1, 0.3, 0.2), 2), ((0.1, 0.3, 0.3), 2), ((-0.1, 0.001), 2)],
)
def test_best_version(gains, best):
    assert best_version(run(*gains)) == best


def test_a_version_that_fails_the_guard_is_never_best():
    assert best_version((ZERO, Judged(1, 0.9, 0.2, guarded=False), Judged(2, 0.3, 0.2))) == 2


def test_a_later_judgement_of_the_same_version_counts():
    assert best_version((*run(0.3, 0.2), Judged(1, 0.1, 0.2))) == 2


def test_the_gain_not_the_value_decides_when_the_window_moves():
    assert best_version((ZERO, Judged(1, 0.4, 0.2), Judged(2, 0.5, 0.45))) == 1


@pytest.mark.parametrize(
    ("gains", "stops"),
    [
        ((0.1, 0.1, 0.1), False),  # fewer than min_versions
        ((0.1, 0.1, 0.1, 0.1), True),  # three without a gain
        ((0.1, 0.1, 0.1, 0.2), False),
        ((0.004, 0.008, 0.012, 0.016, 0.020), False),  # slow steps add up past min_delta
        ((-0.1, -0.1, -0.1, -0.1), True),  # version 0 is the mark
        ((0.3, 0.1, 0.1, 0.305), True),  # a gain below min_delta is none
    ],
)
def test_patience(gains, stops):
    assert out_of_patience(History(run(*gains)), RULE) is stops


def test_unguarded_versions_are_no_improvement():
    judged = (ZERO, *(Judged(i, 0.2 + i / 10, 0.2, guarded=False) for i in range(1, 5)))
    assert out_of_patience(History(judged), RULE)


def test_a_yardstick_carried_over_a_resume_sets_the_mark_and_is_not_counted():
    judged = (ZERO, Judged(7, 0.5, 0.2), *run(0.1, 0.2, 0.25, start=8)[1:])
    history = History(judged, baseline=frozenset({0, 7}))
    assert not out_of_patience(history, RULE)
    longer = History((*judged, Judged(11, 0.26, 0.2)), baseline=frozenset({0, 7}))
    assert out_of_patience(longer, RULE)
    assert best_version(longer.judged) == 7


def test_verdicts_are_promote_then_stop_and_nothing_twice():
    history = History(run(0.1, 0.0, 0.0, 0.0))
    assert [(v.kind, v.version) for v in outstanding(history, RULE)] == [("PROMOTE", 1), ("STOP", 1)]
    promoted = History(history.judged, promoted=1)
    stop = outstanding(promoted, RULE)
    assert [(v.kind, v.version, v.reason) for v in stop] == [("STOP", 1, "patience")]
    assert outstanding(History(history.judged, promoted=1, stopped_at={0: 3}), RULE) == ()
    assert outstanding(History(), RULE) == ()


def test_version_0_is_promoted_first_and_again_when_the_best_falls_below_it():
    assert [(v.kind, v.version) for v in outstanding(History((ZERO,)), RULE)] == [("PROMOTE", 0)]
    fallen = History((ZERO, Judged(5, 0.1, 0.2)), baseline=frozenset({0, 5}), promoted=5)
    assert [(v.kind, v.version) for v in outstanding(fallen, RULE)] == [("PROMOTE", 0)]


@pytest.mark.parametrize(
    ("history", "newest", "wanted"),
    [
        (History(), None, None),
        (History(), 5, 0),
        (History((ZERO,)), 5, 5),
        (History((ZERO,)), 0, None),
        (History((ZERO, Judged(5, 0.3, 0.2))), 5, None),
        (History((ZERO,), refused=frozenset({5})), 5, None),
        (History((ZERO,), baseline=frozenset({0, 3})), 5, 3),
        (History((ZERO,), stopped_at={0: 3}), 5, None),
    ],
)
def test_next_to_judge(history, newest, wanted):
    assert next_to_judge(history, newest) == wanted


def test_a_gain_below_the_margin_is_not_best_but_is_progress():
    timid = [Judged(i, 0.2 + i / 1000 * 4, 0.2, margin=0.02) for i in range(1, 5)]
    assert best_version((ZERO, *timid)) == 0
    assert not out_of_patience(History((ZERO, *timid)), StopRule(3, 0.004, 3))
    assert best_version((ZERO, *timid, Judged(5, 0.221, 0.2, margin=0.02))) == 5


def test_windows_that_cannot_decide_promote_nothing_and_wear_out_no_patience():
    few = [Judged(i, 0.9, 0.2, enough=False) for i in range(1, 9)]
    assert best_version((ZERO, *few)) == 0
    assert not out_of_patience(History((ZERO, *few)), RULE)
    assert out_of_patience(History((ZERO, *few, *run(0.1, 0.1, 0.1, 0.1, start=9))), RULE)


entries = st.lists(
    st.builds(
        Judged,
        version=st.integers(0, 9),
        value=st.floats(0, 1),
        reference=st.floats(0, 1),
        guarded=st.booleans(),
    ),
    max_size=20,
)


@given(entries)
def test_best_is_never_worse_than_version_0(judged):
    best = best_version(judged)
    if best:
        latest = {entry.version: entry for entry in judged}
        assert latest[best].guarded
        assert latest[best].value > latest[best].reference
        assert all(latest[best].gain >= e.gain for v, e in latest.items() if v and e.guarded)


@given(entries, st.integers(1, 5), st.integers(1, 8))
def test_stop_needs_min_versions_and_patience(judged, patience, min_versions):
    rule = StopRule(patience, 0.01, min_versions)
    history = History(tuple(judged))
    counted = sum(1 for entry in judged if entry.version)
    if out_of_patience(history, rule):
        assert counted >= max(patience, min_versions)
    calm = History((*judged, *(Judged(100 + i, 0.0, 0.5) for i in range(max(patience, min_versions)))))
    assert out_of_patience(calm, rule)
