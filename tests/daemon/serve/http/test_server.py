"""Starting and stopping the server."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.serve.http import HttpLimits, Parts, create_app, serve
from daemon.telemetry.server import Health
from tests.daemon.serve.http.toy import (
    HOST,
    ToySearcher,
    ToyStore,
    Watched,
    error_of,
    read_all,
    running,
)
from tests.harness.waiting import until
from tests.harness.wakes import wakes_a_second


def parts(**more: object) -> Parts:
    toys = ToySearcher(), ToySearcher(), Watched().answered, ToyStore()
    return Parts(*toys, ("latest",), Health(), CollectorRegistry(), **more)  # type: ignore[arg-type]


def test_a_taken_port_is_named_with_the_remedy() -> None:
    with (
        running() as served,
        pytest.raises(UserError, match=f"port {served.port} on {HOST} is taken") as told,
    ):
        serve(create_app(parts()), HOST, served.port)
    assert told.value.code == EX_UNAVAILABLE


def test_while_nobody_asks_it_sleeps_and_hears_of_its_end() -> None:
    server = serve(create_app(parts()), HOST, 0)
    until(lambda: server._server.started)
    thread = server._thread.native_id
    assert thread is not None
    until(lambda: wakes_a_second(os.getpid(), 2.0, [thread]) <= 3, "it wakes once a second, for the date")
    server.close()
    assert not server.alive()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b"])
def test_a_host_that_is_not_ours_is_a_user_error(host: str) -> None:
    with pytest.raises(UserError, match="cannot listen on") as told:
        serve(create_app(parts()), host, 0)
    assert told.value.code == EX_CONFIG


def test_ipv6_is_served_where_there_is_any() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        host = HOST
    else:
        host = "::1"
    server = serve(create_app(parts()), host, 0)
    with socket.create_connection((host, server.port), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert read_all(connection).endswith(b"\r\n\r\nok\n")
    server.close()


def test_the_port_is_free_again_and_the_threads_are_gone() -> None:
    with running() as served:
        port = served.port
        served.post({"id": "o1"})
        kept = served.connect()  # an idle client does not hold the server
    assert not served.server.alive()
    names = [thread.name for thread in threading.enumerate()]
    assert not {"tripletd-http", "tripletd-search"} & set(names)
    again = serve(create_app(parts()), HOST, port)
    again.close()
    kept.close()


def test_a_question_in_the_making_is_answered_before_the_end() -> None:
    with running(HttpLimits(drain_s=60.0, answer_s=60.0)) as served:
        served.searcher.gate.clear()
        with served.connect() as connection:
            connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert served.searcher.entered.wait(10)
            served.server.stop()

            def is_refused() -> bool:
                try:
                    served.connect().close()
                except OSError:
                    return True
                return False

            until(is_refused, "no new connection is taken", 20.0)
            time.sleep(0.5)  # the end waits for it
            assert served.server.alive()
            served.searcher.gate.set()
            answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer


def test_a_stuck_question_does_not_hold_the_end() -> None:
    with running(HttpLimits(drain_s=1.0, answer_s=60.0)) as served:
        served.searcher.gate.clear()
        with served.connect() as connection:
            connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert served.searcher.entered.wait(10)
            served.server.close()
            until(lambda: not served.server.alive())


def test_routes_of_the_page_are_served_with_the_same_care() -> None:
    async def page(request: Request) -> Response:
        return Response(b"<p>hello", media_type="text/html")

    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("inside")

    async def half(request: Request) -> Response:
        async def pieces():  # type: ignore[no-untyped-def]
            yield b"some"
            raise ZeroDivisionError("inside")

        return StreamingResponse(pieces())

    async def refusing(request: Request) -> Response:
        raise HTTPException(410, "it is gone")

    routes = [Route("/refusing", refusing), Route("/", page), Route("/broken", broken), Route("/half", half)]
    server = serve(create_app(parts(page=routes)), HOST, 0)

    def get(path: str) -> bytes:
        with socket.create_connection((HOST, server.port), timeout=10) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            return read_all(connection)

    assert get("/").endswith(b"<p>hello")
    assert error_of(get("/refusing")) == (
        410,
        {"code": "refused", "message": "it is gone", "field": None, "remedy": ""},
    )
    assert get("/broken").startswith(b"HTTP/1.1 500")
    assert b"ZeroDivision" not in get("/broken")
    assert not get("/half").endswith(b"0\r\n\r\n"), "a broken answer looks whole"
    assert get("/livez").endswith(b"ok\n")
    server.close()
