"""When a run that is to leave has learned everything: gaps without records, and answers that are too old."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from daemon.exits import EX_OK
from daemon.learn import start as build
from daemon.learn.observe import StreamReadiness
from streams.errors import StreamUnavailable
from streams.open import MemorySource, open_sink
from streams.source import OutRecord, RecordBatch
from tests.daemon.learn.conftest import Site, make_events

Bounds = dict[int, tuple[int, int]]


def test_offsets_without_a_record_at_the_end_are_passed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with markers of transactions: the end is 3 past the last record; a source knows when it is there."""
    site.feed(make_events(20))
    bounds, reached = MemorySource.bounds, MemorySource.reached

    def with_markers(source: MemorySource) -> Bounds:
        return {partition: (start, end + 3) for partition, (start, end) in bounds(source).items()}

    def past_them(source: MemorySource) -> dict[int, int]:
        return {partition: at + 3 if at == 20 else at for partition, at in reached(source).items()}

    monkeypatch.setattr(MemorySource, "bounds", with_markers)
    monkeypatch.setattr(MemorySource, "reached", past_them)
    assert site.learn() == EX_OK
    assert site.newest().counters["records"] == 20


def test_records_that_came_after_the_question_are_learned(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a question that was asked before the loop had nothing to do does not count."""
    site.feed(make_events(20))
    turned, fed = StreamReadiness.turned, threading.Event()

    def feeding(readiness: StreamReadiness, busy: bool) -> None:
        turned(readiness, busy)
        if not busy and not fed.is_set():
            fed.set()
            with_more(site)

    monkeypatch.setattr(StreamReadiness, "turned", feeding)
    assert site.learn() == EX_OK
    assert site.newest().counters["records"] == 25


def with_more(site: Site) -> None:
    sink = open_sink(site.address)
    sink.send([OutRecord(event) for event in make_events(5, seed=1)])
    sink.close()


def test_many_partitions_must_all_be_at_their_end(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.feed(make_events(50), partitions=5)
    assert site.learn(stream__partitions=5) == EX_OK
    assert {at.next_offset for at in site.newest().positions.values()} == {10}


def test_a_stream_that_is_away_while_the_maps_are_fitted_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.feed(make_events(20))
    monkeypatch.setattr(build, "RETRY_SECONDS", 0.001)
    poll, polls = MemorySource.poll, []

    def away(source: MemorySource, *args: float) -> RecordBatch | None:
        polls.append(1)
        if len(polls) in (1, 2, 4):
            raise StreamUnavailable("away")
        return poll(source, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(MemorySource, "poll", away)
    assert site.learn(space__views__x__map="standardise") == EX_OK
    assert site.newest().counters["records"] == 20
