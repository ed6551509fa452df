"""Slow, endless, oversized and crowding clients: each is ended by its own limit, and others are served."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from daemon.serve.http import Limits
from tests.daemon.serve.http.toy import HOST, Served, error_of, read_all, running

QUESTION = b'{"x": [1, 2, 3, 4]}'
SHORT = Limits(
    body_bytes=10_000,
    head_bytes=4_000,
    connections=8,
    head_s=0.4,
    body_s=0.4,
    idle_s=1.0,
    write_s=0.4,
    k_max=5_000,
    batch_max=256,
    results_max=100_000,
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with running(SHORT) as one:
        yield one


@pytest.fixture(autouse=True)
def _others_are_served(served: Served) -> Iterator[None]:
    yield
    assert _soon(lambda: served.metric("tripletd_http_connections") == 0, 10), "a connection is left open"
    assert served.post(QUESTION)[0] == 200


def post(body: bytes, length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    return b"POST /v1/similar HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s" % (size, more, body)


def trickle(connection: socket.socket, piece: bytes) -> int:
    """Send pieces until the other side has enough; how many went."""
    for sent in range(200):
        try:
            connection.sendall(piece)
        except OSError:
            return sent
        time.sleep(0.05)
    return 200


def _soon(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it holds within that time."""
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def test_a_header_that_never_ends_is_408(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"POST /v1/similar HTTP/1.1\r\nHost: a\r\nX-a: ")
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (408, "slow_header", "header")


def test_a_header_that_trickles_is_ended_all_the_same(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert trickle(connection, b"X-a: b\r\n") < 60


@pytest.mark.parametrize("piece", [b"", b"\r\n"])
def test_a_connection_that_never_asks_is_ended(served: Served, piece: bytes) -> None:
    with served.connect() as connection:
        if piece:
            assert trickle(connection, piece) < 60
        else:
            assert error_of(read_all(connection))[0] == 408


@pytest.mark.parametrize("piece", [b"", b"\r\n"])
def test_an_idle_connection_is_ended(served: Served, piece: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        if piece:
            assert trickle(connection, piece) < 60
        else:
            read_all(connection)  # ends, or the socket's own limit fails the test


def test_a_body_that_never_ends_is_408(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(post(b'{"x":', 100))
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (408, "slow_body", "body")


def test_a_body_that_trickles_is_408(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(post(b"", 9_000))
        assert trickle(connection, b" ") < 60


def test_a_body_that_nobody_reads_may_not_trickle_for_ever(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n")
        assert trickle(connection, b" ") < 100


def test_a_declared_body_beyond_the_limit_is_413_at_once(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(post(b"", 10_001))
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (413, "body_too_large", "Content-Length")


def test_a_declared_length_of_a_thousand_digits(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(
            b"POST /v1/similar HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 1000 + b"\r\n\r\n"
        )
        assert error_of(read_all(connection))[0] in (400, 413)


def test_an_endless_chunked_body_is_413(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"POST /v1/similar HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
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


def test_a_large_body_to_a_route_that_needs_a_token_is_not_read(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(post(b"", 9_000).replace(b"/v1/similar", b"/v1/models/gc"))
        connection.settimeout(5)
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nX-a: " + b"a" * 5_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X-a: b\r\n" * 600 + b"\r\n",
        b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /livez?" + b"a" * 5_000 + b" HTTP/1.1\r\n",
        b"GET /livez HTTP/1.1\r\nX-a: " + b"a" * 5_000,
        b"GET /livez HTTP/1.1\r\n" + b"a" * 5_000,
    ],
    ids=["value", "many", "path", "query", "unfinished value", "unfinished name"],
)
def test_a_large_header_is_431(served: Served, head: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(head)
        status, error = error_of(read_all(connection))
    assert (status, error["code"], error["field"]) == (431, "header_too_large", "header")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/similar HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/similar HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nA\x00b: c\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400_or_ended(served: Served, raw: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(raw)
        answer = read_all(connection)
    if answer:
        status, error = error_of(answer)
        assert (status, error["code"]) == (400, "bad_http")


def test_connections_beyond_the_limit_are_told_to_come_again(served: Served) -> None:
    crowd = [served.connect() for _ in range(8)]
    try:
        for connection in crowd:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        with served.connect() as late:
            answer = read_all(late)
        status, error = error_of(answer)
        assert (status, error["code"]) == (503, "too_many_connections")
        assert b"retry-after: 1\r\n" in answer
        crowd[0].sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")  # those inside are not disturbed
        assert b"HTTP/1.1 200" in crowd[0].recv(1000)
    finally:
        for connection in crowd:
            connection.close()


def test_a_reader_that_does_not_read_is_ended(served: Served) -> None:
    queries = [{"x": [1, 2, 3, 4], "k": 10}] * 256
    body = json.dumps({"queries": queries}).encode()
    before = served.metric("tripletd_http_turned_away_total", limit="slow_reader")
    asked = served.metric("tripletd_http_requests_total")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((HOST, served.port))
    connection.settimeout(1)
    with connection:
        request = post(body).replace(b"/v1/similar", b"/v1/similar/batch")
        sent = 0

        def is_ended() -> bool:  # the answers fill every buffer in between, until one cannot be written
            nonlocal sent
            if served.metric("tripletd_http_requests_total") >= asked + sent:
                with suppress(OSError):
                    connection.sendall(request)
                sent += 1
            return served.metric("tripletd_http_turned_away_total", limit="slow_reader") > before

        assert _soon(is_ended, 60)
    assert served.metric("tripletd_http_turned_away_total", limit="slow_reader") == before + 1


def test_a_hundred_clients_that_hang_up_leave_nothing(served: Served) -> None:
    for n in range(100):
        with served.connect() as connection:
            connection.sendall(post(QUESTION)[: 20 + n])
    threads = {thread.name for thread in threading.enumerate()}
    assert sum(name == "tripletd-http" for name in threads) == 1


def test_pipelined_questions_are_answered_in_order(served: Served) -> None:
    with served.connect() as connection:
        ask = b"GET /v1/similar?id=o%d&k=1 HTTP/1.1\r\nHost: a\r\n%s\r\n"
        connection.sendall(ask % (1, b"") + ask % (2, b"") + ask % (3, b"Connection: close\r\n"))
        answers = read_all(connection)
    found = [
        json.loads(b"{" + part.split(b"\r\n\r\n{")[1])["results"]
        for part in answers.split(b"HTTP/1.1 200")[1:]
    ]
    assert found == [served.post({"id": f"o{n}", "k": 1})[1]["results"] for n in (1, 2, 3)]


def test_thousands_of_pipelined_questions_are_not_taken_in(served: Served) -> None:
    before = served.metric("tripletd_http_turned_away_total", limit="pipelined")
    served.searcher.gate.clear()
    with served.connect() as connection:
        connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: a\r\n\r\n" * 5_000)
        read_all(connection)
    served.searcher.gate.set()
    assert served.metric("tripletd_http_turned_away_total", limit="pipelined") == before + 1


def test_an_upgrade_is_not_taken(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(
            b"GET /livez HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        connection.settimeout(5)
        assert not connection.recv(1000).startswith(b"HTTP/1.1 101")


def test_all_bodies_together_are_bounded(served: Served) -> None:
    limits = Limits(body_bytes=10_000, bodies_bytes=12_000, body_s=10.0)
    with running(limits) as other:
        first, second = other.connect(), other.connect()
        with first, second:
            first.sendall(post(b" " * 9_000, 9_500))  # waits for its last bytes
            assert _soon(lambda: other.metric("tripletd_http_connections") == 2, 10)
            time.sleep(0.2)  # the first body's bytes are read
            second.sendall(post(b" " * 4_000))
            answer = read_all(second)
            status, error = error_of(answer)
            assert (status, error["code"], error["field"]) == (503, "bodies_too_large", "body")
            assert b"retry-after: 1\r\n" in answer
            first.sendall(QUESTION + b" " * (500 - len(QUESTION)))
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert other.post(b" " * 9_000 + QUESTION)[0] == 200
