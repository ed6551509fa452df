"""The account of clicks that no answer has used yet: each once, exact, bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.serve import freshness
from daemon.serve.freshness import Ages, Freshness

HORIZON_S = 3600.0
NOW = 1_800_000_000_000


def ms(*times: int) -> np.ndarray:
    return np.array(times, np.int64)


def told(ages: Ages | None) -> list[tuple[float, int]]:
    if ages is None:
        return []
    return sorted(zip(ages.seconds.tolist(), ages.counts.tolist(), strict=True))


def begun() -> Freshness:
    account = Freshness(HORIZON_S)
    account.begin(0)
    return account


def test_an_event_is_counted_at_the_first_answer_that_holds_it_and_never_again() -> None:
    account = begun()
    account.learned(3, ms(NOW - 500, NOW - 500, NOW - 100), NOW)
    account.learned(4, ms(NOW - 50), NOW)
    assert account.answered(2, NOW) is None  # a state before them
    assert told(account.answered(3, NOW + 200)) == [(0.3, 1), (0.7, 2)]
    assert account.answered(3, NOW + 300) is None
    assert told(account.answered(9, NOW + 300)) == [(0.35, 1)]
    assert account.waiting == 0


def test_what_was_there_before_the_first_answer_is_not_counted() -> None:
    account = Freshness(HORIZON_S)
    account.learned(5, ms(NOW - 9000), NOW)
    account.learned(7, ms(NOW - 8500), NOW)
    account.begin(7)
    account.learned(6, ms(NOW - 8000), NOW)  # read from the log again
    account.learned(8, ms(NOW - 10), NOW)
    assert told(account.answered(8, NOW)) == [(0.01, 1)]


def test_clicks_from_before_the_server_are_not_counted_as_slow() -> None:
    """They waited for somebody to start it: a log that was fed first would make every click an old one."""
    account = Freshness(HORIZON_S, since_ms=NOW - 1000)
    account.begin(0)
    account.learned(3, ms(NOW - 9000, NOW - 1001, NOW - 400), NOW)
    account.learned_between(7, NOW - 3000, NOW + 1000, 4, NOW + 1000)
    account.learned_between(8, NOW - 9000, NOW - 1001, 2, NOW)  # all of them before it
    account.learned(9, ms(NOW - 7_200_000), NOW)
    assert told(account.answered(9, NOW + 1000)) == [(0.0, 1), (0.5, 1), (1.0, 1), (1.4, 1), (1.5, 1)]


def test_a_clock_that_is_ahead_makes_no_negative_age() -> None:
    account = begun()
    account.learned(1, ms(NOW + 60_000), NOW)
    assert told(account.answered(1, NOW + 250)) == [(0.25, 1)]


def test_a_branch_forgets_what_only_the_abandoned_line_holds() -> None:
    account = begun()
    account.learned(10, ms(NOW - 1000), NOW)
    account.learned(20, ms(NOW - 900), NOW)
    account.learned(12, ms(NOW - 100), NOW)  # went back to 10, and on
    assert told(account.answered(30, NOW)) == [(0.1, 1), (1.0, 1)]


def test_an_alias_that_moves_from_version_to_version_counts_at_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freshness, "MOST_GROUPS", 8)
    account = begun()
    for total in range(1, 101):  # a version every 20 records
        account.learned(total, ms(NOW - 1000 + total), NOW)
        if total % 20 == 0:
            account.cut(total)
    assert len(account.groups) <= 8
    first = account.answered(40, NOW)
    assert first is not None
    assert int(first.counts.sum()) == 40
    assert told(first)[-1] == (0.999, 1)
    assert account.waiting == 60


def test_what_is_past_the_horizon_keeps_its_number_and_sum() -> None:
    account = begun()
    ancient = NOW - int(HORIZON_S * 1000) - 1000 * np.arange(1, 5001)
    account.learned(1, ancient.astype(np.int64), NOW)
    ages = account.answered(1, NOW)
    assert ages is not None
    assert ages.counts.tolist() == [5000]
    assert ages.seconds @ ages.counts == pytest.approx(float((NOW - ancient).sum()) / 1000)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10_000_000)), max_size=60))
def test_every_event_is_counted_once_and_nearly_exactly(steps: list[tuple[int, int]]) -> None:
    account, total, expected = begun(), 0, []
    for step, age in steps:
        total += step + 1
        account.learned(total, ms(NOW - age), NOW)
        expected.append(age / 1000)
    ages = account.answered(total, NOW)
    counted = [] if ages is None else np.repeat(ages.seconds, ages.counts).tolist()
    assert len(counted) == len(expected)
    assert sum(counted) == pytest.approx(sum(expected), abs=0.5 * len(expected) + 1e-6)
    young = sorted(age for age in expected if age <= freshness.FINE_S)
    assert sorted(age for age in counted if age <= freshness.FINE_S) == young


def test_versions_without_events_to_wait_for_are_not_remembered() -> None:
    account = begun()
    for total in range(1000):
        account.cut(total)
    account.learned(2000, ms(NOW), NOW)
    for total in range(1000, 1900):
        account.cut(total)
    assert account._cuts == set()
    account.cut(2000)
    account.learned(3000, ms(NOW), NOW)
    account.cut(3000)
    assert account._cuts == {2000, 3000}


def test_the_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "MOST_TIMES", 5000)
    rng, account = np.random.default_rng(1), begun()
    for total in range(1, 400):
        now = NOW + 1000 * total
        account.learned(1000 * total, now - rng.integers(0, 20_000_000, 1000), now)
    assert sum(len(times.ms) for _, times in account.groups) <= 5000 + 1000
    assert account.waiting == 399_000
