"""Best version, guard, early stop and the verdicts to write: tables and properties."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.validate.decide import (
    Incumbent,
    Judged,
    JudgedHistory,
    StopRule,
    Trials,
    best_version,
    outstanding,
    patience_of,
    stopped_by,
    to_judge,
)

RULE = StopRule(events=3, min_versions=4)
ZERO = Judged(0, 0.2, 0.2)
DELTA = 0.01


def over(best, version, value, at, **changes):
    """A version of this value, judged where the best has the value `at` and version 0 has 0.2."""
    return Judged(version, value, 0.2, best=Incumbent(best, at, DELTA) if best else None, **changes)


def run(*values, start=1):
    """Version 0, then versions of one event each, judged one by one on windows that are all alike."""
    judged, best, at = [ZERO], 0, 0.2
    for number, value in enumerate(values, start):
        judged.append(over(best, number, value, at, events=number))
        if judged[-1].beats:
            best, at = number, value
    return tuple(judged)


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ((), 0),
        ((0.1, 0.0), 0),
        ((0.2,), 0),
        ((0.3, 0.5, 0.4), 2),
        ((0.3, 0.5, 0.5), 2),
        ((0.1, 0.201), 2),  # over version 0 its own margin is enough
        ((0.3, 0.309), 1),
        ((0.3, 0.311), 2),
        ((0.3, 0.304, 0.308, 0.312), 4),  # slow steps add up to min_delta over the best
    ],
)
def test_best_version(values, best):
    assert best_version(run(*values)) == best


def test_a_version_that_fails_the_guard_is_never_best():
    assert best_version((ZERO, Judged(1, 0.9, 0.2, guarded=False), Judged(2, 0.3, 0.2))) == 2
    assert best_version((*run(0.3), over(1, 2, 0.9, 0.3, guarded=False))) == 1


def test_only_numbers_of_one_window_are_compared():
    """Later windows give smaller gains over version 0: the second is better where both were judged."""
    first = Judged(1, 0.5, 0.2)
    assert best_version((ZERO, first, Judged(2, 0.45, 0.4, best=Incumbent(1, 0.42, DELTA)))) == 2
    assert best_version((ZERO, first, Judged(2, 0.9, 0.2, best=Incumbent(1, 0.95, DELTA)))) == 1


def test_a_lead_is_not_enough_below_version_0():
    assert best_version((*run(0.3), over(1, 2, 0.19, 0.1))) == 1
    assert best_version((*run(0.3), over(1, 2, 0.21, 0.1, margin=0.02))) == 1


def test_without_min_delta_an_equal_version_is_no_better():
    assert best_version((*run(0.3), Judged(2, 0.3, 0.2, best=Incumbent(1, 0.3, 0.0)))) == 1
    assert best_version((*run(0.3), Judged(2, 0.31, 0.2, best=Incumbent(1, 0.3, 0.0)))) == 2


def test_a_judgement_against_another_best_does_not_count():
    assert best_version((*run(0.3), over(7, 2, 0.9, 0.1))) == 1
    assert best_version((*run(0.3), Judged(2, 0.9, 0.2))) == 1


@pytest.mark.parametrize(
    ("values", "stops"),
    [
        ((0.3, 0.3, 0.3), False),  # fewer than min_versions
        ((0.3, 0.3, 0.3, 0.3), True),  # three without a new best
        ((0.3, 0.3, 0.3, 0.4), False),
        ((0.304, 0.309, 0.315, 0.320, 0.326), False),  # slow steps add up past min_delta
        ((0.1, 0.1, 0.1, 0.1), True),  # version 0 stays best
        ((0.5, 0.3, 0.3, 0.505), True),  # a lead below min_delta is none
    ],
)
def test_patience(values, stops):
    assert (stopped_by(JudgedHistory(run(*values)), RULE) is not None) is stops


BY_EVENTS = StopRule(events=1_000, min_versions=2, gain=0.002)


def learning(*gains, every=400, start=1, best=None, at=0.2):
    """Versions after so many events each; whether each is a gain."""
    judged, number = ([ZERO] if best is None else []), start
    for gain in gains:
        value = at + 0.1 if gain else at
        judged.append(over(best or 0, number, value, at, events=number * every))
        best, at = (number, value) if gain else (best, at)
        number += 1
    return tuple(judged)


@pytest.mark.parametrize("every", [1, 40, 400, 2_000])
def test_patience_counts_events_however_many_versions_are_judged_of_them(every):
    """A machine that judges a version a second stops where one stops that judges one an hour."""
    history, upto = learning(True, *[False] * (5_000 // every), every=every), 2
    while stopped_by(JudgedHistory(history[:upto]), BY_EVENTS) is None:
        upto += 1
    passed = history[upto - 1].events - every
    assert max(1_000, every) <= passed <= max(1_000, 2 * every) + every


def test_a_gain_that_took_long_is_waited_for_as_long_again():
    late = learning(True, *[False] * 2, True, every=400)[:2] + learning(
        True, start=11, every=400, best=1, at=0.3
    )
    assert patience_of(JudgedHistory(late)).took == 4_000
    stale = learning(*[False] * 9, start=12, every=400, best=11, at=0.4)
    assert stopped_by(JudgedHistory((*late, *stale)), BY_EVENTS) is None
    more = learning(*[False] * 10, start=12, every=400, best=11, at=0.4)
    stop = stopped_by(JudgedHistory((*late, *more)), BY_EVENTS)
    assert (stop.events, stop.versions, stop.wait) == (4_000, 10, 4_000)
    assert stop.reason == "no gain of .002 in 4,000 events and 10 judged versions"


def test_what_was_learned_up_to_versions_without_evidence_is_not_counted():
    silent = [Judged(i, 0.2, 0.2, enough=False, events=1_000 * i) for i in range(1, 9)]
    assert patience_of(JudgedHistory((ZERO, *silent, Judged(9, 0.2, 0.2, events=8_100)))).idle == 100


def test_what_was_learned_before_the_first_judged_version_is_not_counted():
    """`validate` may begin late, or have had too few lists: nobody looked whether there was a gain."""
    late = [Judged(i, 0.2, 0.2, events=2_000_000 + 100 * i) for i in range(1, 12)]
    assert stopped_by(JudgedHistory((ZERO, *late[:3])), BY_EVENTS) is None
    assert stopped_by(JudgedHistory((ZERO, *late)), BY_EVENTS).events == 1_000


def test_each_trial_without_a_gain_doubles_the_wait_for_the_next_and_a_gain_ends_that():
    def after(trials, *gains):
        return stopped_by(JudgedHistory(learning(*gains), trials=trials), BY_EVENTS)

    assert after(Trials(), *[False] * 4).wait == 1_000
    assert [after(Trials(n, 3_000), *[False] * 4).wait for n in (0, 1, 2)] == [3_000, 6_000, 12_000]
    gained = after(Trials(2, 3_000), True, *[False] * 4)
    assert (gained.wait, gained.trials) == (1_000, 0)


def test_after_a_resume_only_what_is_learned_then_counts():
    tried = learning(*[False] * 2, start=10)
    assert patience_of(JudgedHistory(tried, trials=Trials(began=3_900))).idle == 500


def test_unguarded_versions_are_no_improvement():
    judged = (ZERO, *(Judged(i, 0.2 + i / 10, 0.2, guarded=False, events=i) for i in range(1, 5)))
    assert stopped_by(JudgedHistory(judged), RULE)


def test_a_yardstick_carried_over_a_resume_may_be_best_and_is_not_counted():
    carried = (ZERO, Judged(7, 0.5, 0.2))
    tries = tuple(over(7, 8 + i, value, 0.5, events=1 + i) for i, value in enumerate((0.3, 0.4, 0.45, 0.46)))
    history = JudgedHistory((*carried, *tries[:3]), baseline=frozenset({0, 7}))
    assert not stopped_by(history, RULE)
    longer = JudgedHistory((*carried, *tries), baseline=frozenset({0, 7}))
    assert stopped_by(longer, RULE)
    assert best_version(longer.judged) == 7


def test_a_best_carried_over_a_resume_is_not_given_up_before_it_is_judged():
    waiting = JudgedHistory((ZERO,), baseline=frozenset({0, 7}), promoted=7)
    assert outstanding(waiting, RULE) == ()
    gone = JudgedHistory((ZERO,), baseline=frozenset({0, 7}), refused=frozenset({7}), promoted=7)
    assert [(v.kind, v.version) for v in outstanding(gone, RULE)] == [("PROMOTE", 0)]


def test_verdicts_are_promote_then_stop_and_nothing_twice():
    history = JudgedHistory(run(0.3, 0.2, 0.2, 0.2))
    assert [(v.kind, v.version) for v in outstanding(history, RULE)] == [("PROMOTE", 1), ("STOP", 1)]
    promoted = JudgedHistory(history.judged, promoted=1)
    stop = outstanding(promoted, RULE)
    assert [(v.kind, v.version, v.reason) for v in stop] == [
        ("STOP", 1, "no gain in 3 events and 3 judged versions")
    ]
    assert outstanding(JudgedHistory(history.judged, promoted=1, stopped_at={0: 3}), RULE) == ()
    assert outstanding(JudgedHistory(), RULE) == ()


def test_version_0_is_promoted_first_and_again_when_the_best_falls_below_it():
    assert [(v.kind, v.version) for v in outstanding(JudgedHistory((ZERO,)), RULE)] == [("PROMOTE", 0)]
    fallen = JudgedHistory((ZERO, Judged(5, 0.1, 0.2)), baseline=frozenset({0, 5}), promoted=5)
    assert [(v.kind, v.version) for v in outstanding(fallen, RULE)] == [("PROMOTE", 0)]


@pytest.mark.parametrize(
    ("history", "versions", "wanted"),
    [
        (JudgedHistory(), [], ()),
        (JudgedHistory(), [0, 3, 2], (0, 2, 3)),
        (JudgedHistory(judged=run(0.1, 0.2), latest=2), [0, 2, 3, 4], (3, 4)),
        (JudgedHistory(judged=run(0.1, 0.2), latest=2), [0, 1, 2], ()),
        (JudgedHistory(refused=frozenset({3}), latest=3), [0, 1, 3], ()),
        (JudgedHistory(latest=4), [0, 3, 4], (4,)),  # after a RESUME, or by another rule than before
        (JudgedHistory(stopped_at={}), [0, 1], ()),
        (JudgedHistory((ZERO,), latest=0, stopped_at={0: 3}), [5], ()),
        (JudgedHistory((ZERO,), latest=0), [5], (5,)),  # the newest alone
        (JudgedHistory((ZERO,), latest=0), [0], ()),
        (JudgedHistory((ZERO, Judged(5, 0.3, 0.2)), latest=5), [5], ()),
        (JudgedHistory((ZERO,), refused=frozenset({5}), latest=5), [5], ()),
    ],
)
def test_to_judge(history, versions, wanted):
    assert to_judge(history, versions) == wanted


def test_a_gain_below_the_margin_is_not_best():
    timid = [Judged(i, 0.2 + i / 1000 * 4, 0.2, margin=0.02) for i in range(1, 5)]
    assert best_version((ZERO, *timid)) == 0
    assert best_version((ZERO, *timid, Judged(5, 0.221, 0.2, margin=0.02))) == 5


def test_windows_that_cannot_decide_promote_nothing_and_wear_out_no_patience():
    few = [Judged(i, 0.9, 0.2, enough=False, events=i) for i in range(1, 9)]
    assert best_version((ZERO, *few)) == 0
    assert not stopped_by(JudgedHistory((ZERO, *few)), RULE)
    assert stopped_by(JudgedHistory((ZERO, *few, *run(*[0.3] * 10, start=9))), RULE)


def test_the_reason_names_whom_the_best_beat():
    (first,) = outstanding(JudgedHistory(run(0.3)), RULE)
    assert first.reason == "best by +0.1000 over version 0"
    (second,) = outstanding(JudgedHistory(run(0.3, 0.35), promoted=1), RULE)
    assert second.reason == "best by +0.1500 over version 0, +0.0500 over version 1"


entries = st.lists(
    st.builds(
        Judged,
        version=st.integers(0, 9),
        value=st.floats(0, 1),
        reference=st.floats(0, 1),
        guarded=st.booleans(),
        margin=st.sampled_from([0.0, 0.1]),
        enough=st.booleans(),
        best=st.none()
        | st.builds(Incumbent, st.integers(1, 9), st.floats(0, 1), st.sampled_from([0.0, 0.1])),
    ),
    max_size=20,
)


@given(entries)
def test_best_changes_only_to_a_version_better_than_0_and_than_the_best_on_its_window(judged):
    best = 0
    for upto, entry in enumerate(judged, 1):
        now = best_version(judged[:upto])
        if now != best:
            assert now == entry.version
            assert entry.guarded
            assert entry.enough
            assert entry.value > entry.reference
            assert entry.gain >= entry.margin
            assert (0 if entry.best is None else entry.best.version) == best
            assert entry.best is None or entry.value > entry.best.value
            assert entry.best is None or entry.lead >= entry.best.min_delta
        best = now


@given(entries, st.integers(1, 5), st.integers(1, 8))
def test_stop_needs_min_versions_and_patience(judged, patience, min_versions):
    """Each version has learned an event more."""
    rule = StopRule(events=patience, min_versions=min_versions)
    learned = accumulate(bool(entry.version) for entry in judged)
    judged = [replace(entry, events=events) for entry, events in zip(judged, learned, strict=True)]
    counted = [upto for upto, entry in enumerate(judged, 1) if entry.version and entry.enough]
    if stopped_by(JudgedHistory(tuple(judged)), rule):
        assert len(counted) >= max(patience, min_versions)
        since = {best_version(judged[:upto]) for upto in counted[-patience:]}
        assert len(since | {best_version(judged[: counted[-patience] - 1])}) == 1
    enough = range(max(patience, min_versions, len(judged)) + 1)  # up to the first nothing counts
    calm = (*judged, *(Judged(100 + i, 0.0, 0.5, events=len(judged) + 1 + i) for i in enough))
    assert stopped_by(JudgedHistory(calm), rule)
