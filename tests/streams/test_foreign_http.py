"""Answers of programs that are not ours: each is bounded as a whole, in bytes, in values and in time."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest

from streams import foreign_http
from streams.foreign_http import (
    HEAD_BYTES,
    BlockingClient,
    ForeignAnswer,
    ForeignError,
    ForeignServer,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ENDLESS = 1024
"""Pieces of 64 KiB, where a sender would go on for ever."""


@contextmanager
def serving(answer: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """The address of a server that hands each connection, with its number, to `answer` in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(16) as pool:

        def accept() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                number += 1
                pool.submit(answered, connection, number)

        def answered(connection: socket.socket, number: int) -> None:
            with connection:
                try:
                    answer(connection, number)
                except OSError:
                    """Who asked has hung up."""

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/base"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def asked(url: str, **more: float) -> ForeignAnswer:
    with closing(BlockingClient(ForeignServer(url, **more))) as client:  # type: ignore[arg-type]
        return client.ask("GET", "/path")


def reason(url: str, **more: float) -> str:
    with pytest.raises(ForeignError) as error:
        asked(url, **more)
    return error.value.reason


def test_what_is_sent_and_a_connection_that_is_kept() -> None:
    seen: list[tuple[int, bytes]] = []

    def answer(connection: socket.socket, number: int) -> None:
        while request := connection.recv(65536):
            seen.append((number, request))
            connection.sendall(OK)

    with serving(answer) as url, closing(BlockingClient(ForeignServer(url, {"X-Key": "k"}))) as client:
        assert client.ask("GET", "/one").json() == {}
        assert client.ask("POST", "/two", b"{}", {"X-More": "m"}).status == 200
    assert [number for number, _ in seen] == [1, 1]
    assert seen[0][1].startswith(b"GET /base/one HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAccept-Encoding: identity\r\n" in seen[0][1]
    assert seen[1][1].endswith(b"X-More: m\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert all(b"\r\nX-Key: k\r\n" in request for _, request in seen)


def test_a_kept_connection_that_has_ended_or_said_more_is_made_anew() -> None:
    def answer(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(OK + (OK if number == 2 else b""))  # an answer that nobody asked for

    with serving(answer) as url, closing(BlockingClient(ForeignServer(url))) as client:
        assert [client.ask("GET", "/").body for _ in range(4)] == [b"{}"] * 4


def test_a_question_is_sent_again_only_where_nothing_of_an_answer_came() -> None:
    """What is asked may cost money: who began to answer has counted it."""
    asked: list[bytes] = []

    def answer(connection: socket.socket, number: int) -> None:
        while request := connection.recv(65536):
            asked.append(request)
            if len(asked) == 2:
                return  # an idle connection that was closed meanwhile looks like this
            connection.sendall(OK if len(asked) != 4 else OK[:-1])
            if len(asked) == 4:
                return

    with serving(answer) as url, closing(BlockingClient(ForeignServer(url))) as client:
        assert [client.ask("POST", "/", b"{}").body for _ in range(2)] == [b"{}"] * 2
        assert len(asked) == 3
        with pytest.raises(ForeignError, match="ended early"):
            client.ask("POST", "/", b"{}")
    assert len(asked) == 4


def test_threads_that_make_the_first_clients_share_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = [], threading.Barrier(2)
    make = foreign_http.asyncio.new_event_loop

    def slowly() -> object:
        made.append(1)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return make()

    foreign_http._loop.cache_clear()
    monkeypatch.setattr(foreign_http.asyncio, "new_event_loop", slowly)
    with ThreadPoolExecutor(2) as pool:
        clients = list(pool.map(BlockingClient, [ForeignServer("http://127.0.0.1:1")] * 2))
    assert len(made) == 1
    assert len({client._made[1] for client in clients}) == 1


@pytest.mark.parametrize(
    ("head", "piece", "expected"),
    [
        (b"", b"X: " + b"x" * 1021 + b"\r\n", "header"),
        (b"X: ", b"x" * 1024, "header"),
        (b"Content-Length: 99999999\r\n\r\n", b"x" * 1024, "too_large"),
        (b"\r\n", b"x" * 1024, "too_large"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 170, "header"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: " + b"x" * 1021 + b"\r\n", "header"),
        (b"Content-Encoding: gzip\r\n\r\n", b"\x1f\x8b" * 512, "encoded"),
        (b"\x00", b"x" * 1024, "malformed"),
    ],
    ids=["fields", "one field", "length", "no length", "chunks", "trailers", "compressed", "no HTTP"],
)
def test_an_answer_without_an_end_is_left_soon(head: bytes, piece: bytes, expected: str) -> None:
    sent = 0

    def answer(connection: socket.socket, number: int) -> None:
        nonlocal sent
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
        for _ in range(ENDLESS):
            connection.sendall(piece * 64)
            sent += 1

    with serving(answer) as url:
        assert reason(url, body_bytes=HEAD_BYTES, timeout_s=60.0) == expected
    assert sent < ENDLESS


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_who_drips_is_left_at_the_deadline_and_holds_no_place(begin: bytes) -> None:
    """A byte at a time: each read would be in time."""
    good, over = threading.Event(), threading.Event()

    def answer(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        if good.is_set():
            connection.sendall(OK)
            return
        connection.sendall(begin)
        for _ in range(250):  # so that a client without a deadline fails here and does not hang
            if over.wait(0.02):
                break
            connection.sendall(b"x" if begin else b"\r\n")

    with serving(answer) as url:
        server = ForeignServer(url, timeout_s=0.3, connections=2)
        with closing(BlockingClient(server)) as client, ThreadPoolExecutor(8) as pool:

            def ask(_: int) -> str:
                with pytest.raises(ForeignError) as error:
                    client.ask("GET", "/")
                return error.value.reason

            assert list(pool.map(ask, range(8))) == ["timeout"] * 8
            good.set()
            assert client.ask("GET", "/").body == b"{}", "the next is answered at once"
            over.set()


def test_another_try_where_that_may_help() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    kinds = {1: busy, 2: b"", 3: OK}
    tries = 0

    def answer(connection: socket.socket, number: int) -> None:
        nonlocal tries
        while connection.recv(65536):
            tries += 1
            connection.sendall(kinds[min(tries, 3)])
            if tries == 2:
                return

    with serving(answer) as url:
        assert asked(url, tries=3).status == 200
        assert tries == 3
        kinds[3] = busy
        assert asked(url, tries=2).status == 503
        assert tries == 5


def test_an_answer_that_is_cut_by_a_reset_is_not_whole() -> None:
    def answer(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n[]")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(answer) as url:
        assert reason(url) == "unreachable"


def test_a_process_that_is_forked_asks_as_well() -> None:
    def answer(connection: socket.socket, number: int) -> None:
        while connection.recv(65536):
            connection.sendall(OK)

    with serving(answer) as url, closing(BlockingClient(ForeignServer(url))) as client:
        client.ask("GET", "/")
        child = os.fork()
        if child == 0:
            os._exit(0 if client.ask("GET", "/").body == b"{}" else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(ForeignError, match=r"no connection to 127\.0\.0\.1:[0-9]+: Connection refused"):
        asked(url, tries=2)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[" * 100_000, b"NaN", b'"\\ud800"', b"9" * 5_000, b"[" + b"{}," * 1_000_000 + b"{}]"],
    ids=lambda body: body[:20].decode(),
)
def test_what_is_no_json_or_far_more_than_its_text(body: bytes) -> None:
    with pytest.raises(ForeignError):
        ForeignAnswer(200, {}, body).json()
