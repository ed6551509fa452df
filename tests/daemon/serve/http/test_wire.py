"""What comes over the wire: headers, pipelines, and what is not HTTP."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.daemon.serve.http.clients import QUESTION, post
from tests.daemon.serve.http.toy import Served, error_of, read_all

pytestmark = pytest.mark.usefixtures("others")


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
def test_a_large_header_is_431(strict: Served, head: bytes) -> None:
    with strict.connect() as connection:
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
def test_what_is_not_http_is_400_or_ended(strict: Served, raw: bytes) -> None:
    with strict.connect() as connection:
        connection.sendall(raw)
        answer = read_all(connection)
    if answer:
        status, error = error_of(answer)
        assert (status, error["code"]) == (400, "bad_http")


def test_a_hundred_clients_that_hang_up_leave_nothing(strict: Served) -> None:
    for n in range(100):
        with strict.connect() as connection:
            connection.sendall(post(QUESTION)[: 20 + n])
    threads = {thread.name for thread in threading.enumerate()}
    assert sum(name == "tripletd-http" for name in threads) == 1


def test_pipelined_questions_are_answered_in_order(strict: Served) -> None:
    with strict.connect() as connection:
        ask = b"GET /v1/similar?id=o%d&k=1 HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        connection.sendall(ask % (1, b"") + ask % (2, b"") + ask % (3, b"Connection: close\r\n"))
        answers = read_all(connection)
    found = [
        json.loads(b"{" + part.split(b"\r\n\r\n{")[1])["results"]
        for part in answers.split(b"HTTP/1.1 200")[1:]
    ]
    assert found == [strict.post({"id": f"o{n}", "k": 1})[1]["results"] for n in (1, 2, 3)]


def test_thousands_of_pipelined_questions_are_not_taken_in(strict: Served) -> None:
    before = strict.metric("tripletd_http_turned_away_total", limit="pipelined")
    strict.searcher.gate.clear()
    with strict.connect() as connection:
        connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000)
        read_all(connection)
    strict.searcher.gate.set()
    assert strict.metric("tripletd_http_turned_away_total", limit="pipelined") == before + 1


def test_a_request_that_would_upgrade_is_answered_as_if_it_did_not(strict: Served) -> None:
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    question = post(QUESTION).replace(b"\r\n\r\n", b"\r\n" + wish + b"\r\n", 1)
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with strict.connect() as connection:
        connection.sendall(question + question[:-5])
        time.sleep(0.1)
        connection.sendall(question[-5:] + last)
        answers = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 3
    assert b'"results"' in answers[0]
    assert answers[1].split(b"took_ms")[0][-40:] == answers[0].split(b"took_ms")[0][-40:]
    assert answers[2].endswith(b"ok\n")


@pytest.mark.parametrize("body", [b"-1\r\n", b"2\r\nabcdef\r\n", b"f" * 20 + b"\r\n", b"2;\x00\r\n"])
def test_a_body_that_is_no_chunks_is_400(strict: Served, body: bytes) -> None:
    with strict.connect() as connection:
        head = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + body)
        status, error = error_of(read_all(connection))
    assert (status, error["code"]) == (400, "bad_http")


def test_an_upgrade_is_not_taken(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert not connection.recv(1000).startswith(b"HTTP/1.1 101")


NOSNIFF = "x-content-type-options"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/similar?id=o1", None),
        ("POST", "/v1/similar", b"{"),
        ("GET", "/v1/openapi.json", None),
        ("GET", "/status", None),
        ("GET", "/metrics", None),
        ("GET", "/livez", None),
        ("GET", "/nowhere", None),
        ("POST", "/v1/models/gc", b"{}"),
    ],
)
def test_no_answer_is_taken_for_another_type(
    served: Served, method: str, path: str, body: bytes | None
) -> None:
    assert served.ask(method, path, body)[2][NOSNIFF] == "nosniff"


def test_what_is_answered_before_there_is_a_request_is_not_either(strict: Served) -> None:
    with strict.connect() as connection:
        connection.sendall(b"\x00\r\n\r\n")
        head = read_all(connection).partition(b"\r\n\r\n")[0]
    assert NOSNIFF.encode() + b": nosniff" in head.split(b"\r\n")
