"""Cadence decisions as tables."""

from __future__ import annotations

import pytest

from daemon.learn.publishing import Cadence


@pytest.mark.parametrize(
    ("every_s", "every_events", "since", "records", "at_last", "moved", "due"),
    [
        (30, 0, 29.9, 10, 0, True, False),
        (30, 0, 30.0, 10, 0, True, True),
        (30, 0, 99.0, 10, 10, False, False),  # nothing learned since
        (30, 0, 30.0, 10, 10, True, True),  # the last one failed
        (30, 100, 1.0, 99, 0, True, False),
        (30, 100, 1.0, 100, 0, True, True),
        (30, 100, 1.0, 100, 100, True, False),  # once per multiple
        (30, 100, 1.0, 101, 0, True, False),  # a missed multiple waits for the next
        (0, 100, 1e9, 101, 0, True, False),
        (30, -1, 1.0, 4_000, 0, True, True),
        (30, -1, 1.0, 4_000, 4_000, True, False),
        (30, -1, 1.0, 8_000, 4_000, True, True),
        (30, -1, 1.0, 12_000, 8_000, True, False),
        (30, -1, 1.0, 4_096_000, 8_000, True, True),
        (30, -1, 1.0, 0, 0, False, False),
    ],
)
def test_due(
    every_s: float, every_events: int, since: float, records: int, at_last: int, moved: bool, due: bool
) -> None:
    assert Cadence(every_s, every_events).due(since, records, at_last, moved) is due


@pytest.mark.parametrize(
    ("every_events", "most", "polled", "limit"),
    [
        (0, 500, 123, 500),
        (100, 500, 0, 100),
        (100, 500, 130, 70),
        (100, 7, 130, 7),
        (100, 500, 200, 100),
        (-1, 5_000, 0, 4_000),
        (-1, 5_000, 3_999, 1),
        (-1, 5_000, 4_000, 4_000),
        (-1, 5_000, 11_000, 5_000),
        (-1, 5_000, 15_999, 1),
        (-1, 50_000, 16_000, 16_000),
    ],
)
def test_polls_end_on_multiples(every_events: int, most: int, polled: int, limit: int) -> None:
    assert Cadence(30, every_events).poll_limit(most, polled) == limit
