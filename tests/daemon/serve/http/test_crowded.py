"""Hundreds of connections that only stay: health, metrics and answers go on, each address has its share."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from prometheus_client import Metric
from prometheus_client.registry import Collector

from daemon.serve.http import HttpLimits
from daemon.serve.http.limits import RESERVED
from daemon.telemetry.server import PAGES
from tests.daemon.serve.http.clients import QUESTION, SMALL, healthy, is_ended, post
from tests.daemon.serve.http.toy import HOST, Served, all_at_work, error_of, read_all, running
from tests.harness.crowds import QUESTION as QUESTION_BY_ID
from tests.harness.crowds import WAYS, Way, crowd, each_is_answered
from tests.harness.waiting import until

USUAL = HttpLimits()
PLACES, FEW = USUAL.connections + RESERVED, SMALL.connections + RESERVED
IDLE = "tripletd_http_turned_away_total"


@pytest.fixture(scope="module")
def usual() -> Iterator[Served]:
    """A server with the limits that everybody has, and time enough that no crowd is gone before we look."""
    with running(replace(USUAL, head_s=120.0, body_s=120.0, idle_s=120.0)) as one:
        one.health.started()
        one.health.set_ready(None)
        yield one


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_whoever_only_stays_keeps_nobody_out(usual: Served, way: Way) -> None:
    assert usual.metric("tripletd_http_connections") < USUAL.connections
    with crowd(usual.port, way):
        until(lambda: usual.metric("tripletd_http_connections") >= USUAL.connections)
        for _ in range(5):
            each_is_answered(usual.port, (*PAGES, QUESTION_BY_ID))
        assert usual.metric("tripletd_http_connections") <= PLACES
    until(lambda: usual.metric("tripletd_http_connections") == 0)


def test_the_oldest_gives_way_first_and_is_told(usual: Served) -> None:
    with ExitStack() as held:
        crowd = [held.enter_context(usual.connect()) for _ in range(PLACES)]
        until(lambda: usual.metric("tripletd_http_connections") == PLACES)
        held.enter_context(usual.connect())
        answer = read_all(crowd[0])
        status, error = error_of(answer)
        assert (status, error["code"]) == (503, "too_many_connections")
        assert b"retry-after: 1\r\n" in answer
        assert healthy(crowd[-1])
        assert healthy(crowd[1]), "more than one gave way to one"
    until(lambda: usual.metric("tripletd_http_connections") == 0)


def test_an_idle_connection_that_was_answered_is_closed_without_a_word(strict: Served) -> None:
    with ExitStack() as held:
        crowd = [held.enter_context(strict.connect()) for _ in range(FEW)]
        assert all(healthy(one) for one in crowd)
        before = strict.metric(IDLE, limit="gave_way")
        assert healthy(held.enter_context(strict.connect()))
        assert read_all(crowd[0]) == b"", "an answer that nobody asked for"
        assert strict.metric(IDLE, limit="gave_way") == before + 1
        assert all(healthy(one) for one in crowd[1:])
    until(lambda: strict.metric("tripletd_http_connections") == 0)


def test_a_client_keeps_its_share_against_one_that_leaks(usual: Served) -> None:
    with ExitStack() as held:
        shop = []
        for _ in range(20):
            one = held.enter_context(socket.create_connection((HOST, usual.port), 30, ("127.0.0.2", 0)))
            assert healthy(one)
            shop.append(one)
        for _ in range(PLACES * 2):
            held.enter_context(usual.connect())  # younger, all of them
        assert all(healthy(one) for one in shop), "an address with twenty lost to one with a thousand"
    until(lambda: usual.metric("tripletd_http_connections") == 0)


def test_one_address_may_use_every_place(strict: Served) -> None:
    # Behind a reverse proxy everybody comes from one address.
    before = strict.metric(IDLE)
    with ExitStack() as held:
        crowd = [held.enter_context(strict.connect()) for _ in range(FEW)]
        for _ in range(3):
            assert all(healthy(one) for one in crowd)
    assert strict.metric(IDLE) == before
    until(lambda: strict.metric("tripletd_http_connections") == 0)


def test_while_every_place_is_at_work_health_has_places_of_its_own() -> None:
    with running(SMALL) as served, ExitStack() as held:
        served.health.started()
        at_work = all_at_work(served, held, SMALL.connections)
        for _ in range(RESERVED * 2):  # stays open after its answer, and gives way to the next
            assert healthy(held.enter_context(served.connect()))
        with served.connect() as late:
            late.sendall(post(QUESTION))
            answer = read_all(late)
        assert error_of(answer)[1]["code"] == "too_many_connections"
        assert b"retry-after: 1\r\n" in answer
        served.searcher.gate.set()
        for one in at_work:
            assert one.recv(1000).startswith(b"HTTP/1.1 200"), "whoever is answered does not give way"


def test_a_question_that_has_arrived_is_not_thrown_away_unread() -> None:
    with running(replace(USUAL, connections=8)) as served, ExitStack() as held:
        for _ in range(10):
            with served.connect() as first:
                first.sendall(post(QUESTION))
                for _ in range(60):  # they come while the question waits to be read
                    held.enter_context(served.connect())
                assert first.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_trickling_header_gives_way_too(strict: Served) -> None:
    with ExitStack() as held:
        trickling = held.enter_context(strict.connect())
        trickling.sendall(b"GET /livez HTTP/1.1\r\n")
        with strict.connect() as other:
            assert healthy(other)  # so its first line was read
        crowd = [held.enter_context(strict.connect()) for _ in range(FEW)]
        assert all(healthy(one) for one in crowd)
        assert is_ended(trickling, b"X-a: b\r\n")
    until(lambda: strict.metric("tripletd_http_connections") == 0)


def test_what_is_said_while_everything_is_taken_is_the_common_shape(strict: Served) -> None:
    with ExitStack() as held:
        crowd = [held.enter_context(strict.connect()) for _ in range(FEW + 1)]
        error = error_of(read_all(crowd[0]))[1]
    assert set(error) == {"code", "message", "field", "remedy"}
    assert json.dumps(error["message"])
    until(lambda: strict.metric("tripletd_http_connections") == 0)


class Slow(Collector):
    """Waits with what it says until the gate is open."""

    def __init__(self) -> None:
        self.begun, self.entered, self.gate = 0, threading.Event(), threading.Event()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        self.begun += 1
        self.entered.set()
        assert self.gate.wait(30)
        return []


def test_metrics_are_collected_once_for_all_who_wait() -> None:
    with running(SMALL) as served, ExitStack() as held:
        slow = Slow()
        served.registry.register(slow)
        asking = [held.enter_context(served.connect()) for _ in range(SMALL.connections)]
        for one in asking:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert slow.entered.wait(30)
        assert healthy(held.enter_context(served.connect())), "by then all have been read"
        slow.gate.set()
        assert all(read_all(one).startswith(b"HTTP/1.1 200") for one in asking)
        assert slow.begun == 2, "that of the first, and one for those who came meanwhile"
