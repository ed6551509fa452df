"""Clicks behind a hit: counted by list, for a query and those near it, from the end of a topic."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from daemon.serve import clicks
from daemon.serve.clicks import ClickWindow, RecentClicks
from daemon.serve.query import HitClicks
from streams.codec import encode_event
from streams.errors import StreamUnavailable
from streams.event import PAIR_ABOVE, PAIR_BELOW, Event, ObjectRef
from streams.open import ensure_topic, open_sink, open_source
from streams.source import OutRecord, parse_address
from tests.harness.waiting import until

NUMBERS = itertools.count()


def learned(query: str | None, clicked: str, skipped: str, of: str | None = None, **more: str) -> Event:
    name = more.pop("id", None) or f"e{next(NUMBERS)}"
    asked = ObjectRef(query)
    return Event(name, 1, asked, ObjectRef(clicked), ObjectRef(skipped), impression=of, **more)


def test_a_list_counts_once_however_many_comparisons_it_makes() -> None:
    window = ClickWindow()
    for skipped in "bcd":
        window.take(learned("q", "a", skipped, of="list 1"))
    window.take(learned("q", "b", "a", of="list 2"))
    window.take(learned("q", "a", "b"))
    a, b, unknown = window.clicks_on("q", [], ["a", "b", "z"])
    assert (a.clicked, a.passed_over) == (2, 1)
    assert (b.clicked, b.passed_over) == (1, 2)
    assert unknown == HitClicks(0, 0, 0, 0, 5)


def test_what_chance_drew_was_not_passed_over() -> None:
    window = ClickWindow()
    window.take(learned("q", "a", "b", of="list", id="list/0/r0"))
    window.take(learned("q", "a", "c", of="list", id="list/0/3"))
    assert [one.passed_over for one in window.clicks_on("q", [], ["b", "c"])] == [0, 1]


def test_what_stood_below_the_click_was_not_passed_over() -> None:
    window = ClickWindow()
    for skipped, pair in (("b", PAIR_BELOW), ("c", PAIR_ABOVE)):
        window.take(replace(learned("q", "a", skipped, of="list"), pair=pair))
    assert [one.passed_over for one in window.clicks_on("q", [], ["b", "c"])] == [0, 1]


def test_queries_near_count_apart_and_a_query_without_an_id_has_none_of_its_own() -> None:
    window = ClickWindow()
    window.take(learned("q", "a", "b"))
    window.take(learned("p", "a", "b"))
    window.take(learned("o", "b", "a"))
    assert window.clicks_on("q", ["p", "o", "q"], ["a"]) == [HitClicks(1, 0, 1, 1, 3)]
    assert window.clicks_on(None, ["q", "p"], ["a"]) == [HitClicks(None, None, 2, 0, 3)]


def test_one_key_counts_what_was_learned_for_it() -> None:
    window = ClickWindow()
    window.take(learned("q", "a", "b", key="anna"))
    window.take(learned("q", "a", "b", key="ben"))
    assert window.clicks_on("q", [], ["a"], "anna")[0].clicked == 1
    assert window.clicks_on("q", [], ["a"])[0].clicked == 2


def test_the_oldest_gives_way() -> None:
    window = ClickWindow(size=3)
    for query in ("q", None, "q", "p"):
        window.take(learned(query, "a", "b"))
    assert window.clicks_on("q", ["p"], ["a"]) == [HitClicks(1, 0, 1, 0, 3)]
    for _ in range(3):
        window.take(learned("p", "a", "b"))
    assert window.clicks_on("q", [], ["a"])[0].clicked == 0


@pytest.fixture
def topic() -> str:
    address = f"memory:clicks-{next(NUMBERS)}"
    ensure_topic(parse_address(address), 2)
    return address


def send(topic: str, *events: Event) -> None:
    sink = open_sink(parse_address(topic))
    sink.send([OutRecord(encode_event(one), partition=place % 2) for place, one in enumerate(events)])
    sink.send([OutRecord(b"no event", partition=0)])
    sink.close()


def test_the_end_of_the_topic_is_read_once_somebody_asks(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "RECORDS", 10)
    monkeypatch.setattr(clicks, "POLL_SECONDS", 0.01)
    opened = []

    def opening():  # type: ignore[no-untyped-def]
        opened.append(open_source(parse_address(topic)))
        return opened[-1]

    send(topic, *[learned("q", "a", "b") for _ in range(40)])
    recent = RecentClicks(opening)
    try:
        assert not opened, "who never asks pays nothing"
        assert recent.clicks_on("q", [], ["a"]) is None
        (found,) = until(lambda: recent.clicks_on("q", [], ["a"]))
        assert found.clicked in (9, 10), "the newest of each partition"
        send(topic, learned("p", "a", "b"))
        until(lambda: (recent.clicks_on("p", [], ["a"]) or [found])[0].clicked == 1)
        monkeypatch.setattr(clicks, "REST_SECONDS", 0.0)
        until(lambda: recent._thread is None, "nobody has asked for long")
        monkeypatch.setattr(clicks, "REST_SECONDS", 60.0)
        assert recent.clicks_on("q", [], ["a"]) is None
        until(lambda: recent.clicks_on("q", [], ["a"]))
        assert len(opened) == 2
    finally:
        recent.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_the_program_is_not_the_end_of_it(topic: str) -> None:
    send(topic, learned("q", "a", "b"))
    mistakes = [RuntimeError("a mistake")]

    def opening():  # type: ignore[no-untyped-def]
        if mistakes:
            raise mistakes.pop()
        return open_source(parse_address(topic))

    recent = RecentClicks(opening)
    try:
        until(lambda: recent.clicks_on("q", [], ["a"]))
        assert not mistakes
    finally:
        recent.close()


def test_a_topic_that_does_not_answer_is_asked_again(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "BACKGROUND_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(clicks, "POLL_SECONDS", 0.01)
    send(topic, learned("q", "a", "b"))
    failures = [StreamUnavailable("away")] * 3

    def opening():  # type: ignore[no-untyped-def]
        if failures:
            raise failures.pop()
        return open_source(parse_address(topic))

    recent = RecentClicks(opening)
    try:
        until(lambda: recent.clicks_on("q", [], ["a"]))
        assert not failures
    finally:
        recent.close()
