"""Slow, endless, oversized and crowding clients: each is ended by its own limit, and others are served."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.daemon.serve.http.clients import QUESTION, SMALL, is_ended, post
from tests.daemon.serve.http.toy import HOST, Served, all_at_work, error_of, read_all, running
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("others")


def asked(served: Served) -> socket.socket:
    """A connection whose first question was answered; another one where we were too slow ourselves."""
    for _ in range(20):
        connection = served.connect()
        with suppress(OSError):
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if connection.recv(1000).startswith(b"HTTP/1.1 200"):
                return connection
        connection.close()
    raise AssertionError("no question is answered")


def told(served: Served, raw: bytes) -> tuple[int, Any]:
    """Status and error with which a connection ends that sends this and waits; once more where we were so
    slow that the end came before we had sent it."""
    for _ in range(20):
        with served.connect() as connection, suppress(OSError):
            connection.sendall(raw)
            if answer := read_all(connection):
                return error_of(answer)
    raise AssertionError("nothing is told")


def test_a_header_that_never_ends_is_408(no_time_for_heads: Served) -> None:
    status, error = told(no_time_for_heads, b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nX-a: ")
    assert (status, error["code"], error["field"]) == (408, "slow_header", "header")


def test_a_header_that_trickles_is_ended_all_the_same(no_time_for_heads: Served) -> None:
    with no_time_for_heads.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert is_ended(connection, b"X-a: b\r\n")


@pytest.mark.parametrize("piece", [b"", b"\r\n"])
def test_a_connection_that_never_asks_is_ended(no_time_for_heads: Served, piece: bytes) -> None:
    with no_time_for_heads.connect() as connection:
        if piece:
            assert is_ended(connection, piece)
        else:
            assert error_of(read_all(connection))[0] == 408


@pytest.mark.parametrize("piece", [b"", b"\r\n"])
def test_an_idle_connection_is_ended(no_time_for_heads: Served, piece: bytes) -> None:
    with asked(no_time_for_heads) as connection:
        if piece:
            assert is_ended(connection, piece)
        else:
            read_all(connection)  # ends, or the socket's own limit fails the test


def test_a_body_that_never_ends_is_408(no_time_for_bodies: Served) -> None:
    status, error = told(no_time_for_bodies, post(b'{"x":', 100))
    assert (status, error["code"], error["field"]) == (408, "slow_body", "body")


def test_a_body_that_trickles_is_408(no_time_for_bodies: Served) -> None:
    with no_time_for_bodies.connect() as connection:
        connection.sendall(post(b"", 9_000))
        assert is_ended(connection, b" ")


def test_a_body_that_nobody_reads_may_not_trickle_for_ever(no_time_for_bodies: Served) -> None:
    with no_time_for_bodies.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n")
        assert is_ended(connection, b" ")


def test_a_declared_body_beyond_the_limit_is_413_at_once(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(post(b"", 10_001))
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (413, "body_too_large", "Content-Length")


def test_a_declared_length_of_a_thousand_digits(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(
            b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 1000 + b"\r\n\r\n"
        )
        assert error_of(read_all(connection))[0] in (400, 413)


def test_an_endless_chunked_body_is_413(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(
            b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        sent = 0
        try:
            for sent in range(10_000):
                connection.sendall(chunk)
        except OSError:
            pass
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (413, "body_too_large", "body")
    assert sent < 9_999


def test_a_large_body_to_a_route_that_needs_a_token_is_not_read(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(post(b"", 9_000).replace(b"/v1/similar", b"/v1/models/gc"))
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_questions_beyond_the_limit_are_told_to_come_again() -> None:
    with running(SMALL) as served, ExitStack() as held:
        crowd = all_at_work(served, held, 8)
        with served.connect() as late:
            late.sendall(post(QUESTION))
            answer = read_all(late)
        status, error = error_of(answer)
        assert (status, error["code"]) == (503, "too_many_connections")
        assert b"retry-after: 1\r\n" in answer
        served.searcher.gate.set()
        for connection in crowd:
            assert connection.recv(100).startswith(b"HTTP/1.1 200"), "those inside are disturbed"


def test_a_reader_that_does_not_read_is_ended() -> None:
    body = json.dumps({"queries": [{"x": [1, 2, 3, 4], "k": 10}] * 256}).encode()
    request = post(body).replace(b"/v1/similar", b"/v1/similar/batch")
    with running(replace(SMALL, write_s=1.0)) as served, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((HOST, served.port))
        connection.settimeout(1)
        sent = 0

        def is_turned_away() -> bool:  # the answers fill every buffer in between, until one cannot be written
            nonlocal sent
            if served.metric("tripletd_http_requests_total") >= sent:
                with suppress(OSError):
                    connection.sendall(request)
                sent += 1
            return served.metric("tripletd_http_turned_away_total", limit="slow_reader") == 1

        until(is_turned_away)
        until(lambda: served.metric("tripletd_http_connections") == 0)


def test_all_bodies_together_are_bounded() -> None:
    with running(replace(SMALL, bodies_bytes=12_000)) as served:

        def held() -> float:
            return served.metric("tripletd_http_bodies_bytes")

        with served.connect() as first, served.connect() as second:
            first.sendall(post(b" " * 9_000, 9_500))  # waits for its last bytes
            until(lambda: held() == 9_000)
            second.sendall(post(b" " * 4_000))
            answer = read_all(second)
            status, error = error_of(answer)
            assert (status, error["code"], error["field"]) == (503, "bodies_too_large", "body")
            assert b"retry-after: 1\r\n" in answer
            first.sendall(QUESTION + b" " * (500 - len(QUESTION)))
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert served.post(b" " * 9_000 + QUESTION)[0] == 200
        until(lambda: held() == 0)


@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"0\r\n", b"X-a: b\r\n" * 100), (b"0\r\nX-a: ", b"a" * 1000), (b"0;a=", b"a" * 1000)],
    ids=["trailers", "one trailer", "chunk extension"],
)
def test_what_follows_a_body_without_end_is_ended(strict: Served, start: bytes, piece: bytes) -> None:
    before = strict.metric("tripletd_http_turned_away_total", limit="head_bytes")
    with strict.connect() as connection:
        head = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"2\r\n{}\r\n" + start)
        sent = 0
        with suppress(OSError):
            for sent in range(20_000):
                connection.sendall(piece)
        read_all(connection)
    assert sent < 19_999, "megabytes were taken in"
    assert strict.metric("tripletd_http_turned_away_total", limit="head_bytes") == before + 1


def test_trailers_are_no_headers(strict: Served) -> None:
    with strict.connect() as connection:
        head = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        body = b"%x\r\n%s\r\n0\r\nContent-Encoding: gzip\r\n\r\n" % (len(QUESTION), QUESTION)
        connection.sendall(head + body)
        assert read_all(connection).startswith(b"HTTP/1.1 200")
