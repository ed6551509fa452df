"""Hundreds of connections that only stay: health, metrics and answers go on, each address has its share."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from daemon.serve.http import HttpLimits
from daemon.serve.http.limits import RESERVED
from tests.daemon.serve.http.clients import QUESTION, SMALL, healthy, is_ended, post
from tests.daemon.serve.http.toy import HOST, Served, all_at_work, error_of, read_all, running
from tests.harness.waiting import until

CROWD = 600
USUAL = HttpLimits()
PLACES, FEW = USUAL.connections + RESERVED, SMALL.connections + RESERVED
IDLE = "tripletd_http_turned_away_total"


def silent(connection: socket.socket) -> None:
    """It says nothing at all."""


def half_a_header(connection: socket.socket) -> None:
    connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: localhost\r\nX-a: ")


def idle_after_an_answer(connection: socket.socket) -> None:
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(1000)


def half_a_body(connection: socket.socket) -> None:
    connection.sendall(post(b'{"id": ', 5_000))


WAYS: list[Callable[[socket.socket], None]] = [silent, half_a_header, idle_after_an_answer, half_a_body]


@pytest.fixture(scope="module")
def usual() -> Iterator[Served]:
    """A server with the limits that everybody has, and time enough that no crowd is gone before we look."""
    with running(replace(USUAL, head_s=120.0, body_s=120.0, idle_s=120.0)) as one:
        one.health.started()
        one.health.set_ready(None)
        yield one


def each_is_answered(served: Served) -> None:
    """Health, metrics and a question, of a client that has just come, and does not wait for those inside."""
    for path, word in (
        ("/livez", "ok"),
        ("/readyz", "ok"),
        ("/metrics", "tripletd_http_connections"),
        ("/v1/similar?id=o1&k=3", '"results"'),
    ):
        connection = http.client.HTTPConnection(HOST, served.port, timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, f"{path}: {text}"
        assert word in text


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_whoever_only_stays_keeps_nobody_out(usual: Served, way: Callable[[socket.socket], None]) -> None:
    assert usual.metric("tripletd_http_connections") < USUAL.connections
    with ExitStack() as held:
        for _ in range(CROWD):
            one = held.enter_context(usual.connect())
            with suppress(OSError):
                way(one)
        until(lambda: usual.metric("tripletd_http_connections") >= USUAL.connections)
        for _ in range(5):
            each_is_answered(usual)
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
