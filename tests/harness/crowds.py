"""Crowds of connections that only stay, each in its own way, and what others are answered meanwhile."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from prometheus_client import CollectorRegistry

from daemon.serve.http import HttpLimits
from daemon.telemetry import Health, serve_http
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import PAGES
from tests.daemon.serve.http.toy import HOST, running
from tests.harness.kill.tally import Tally

CROWD = 600
QUESTION = "/v1/similar?id=o1&k=3"
TIMES = 5


def silent(connection: socket.socket) -> None:
    """It says nothing at all."""


def half_a_header(connection: socket.socket) -> None:
    """A header whose end never comes."""
    connection.sendall(b"GET /v1/similar?id=o1 HTTP/1.1\r\nHost: localhost\r\nX-a: ")


def idle_after_an_answer(connection: socket.socket) -> None:
    """It asked once, and stays."""
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(1000)


def half_a_body(connection: socket.socket) -> None:
    """A body whose end never comes."""
    head = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
    connection.sendall(head + b'{"id": ')


def does_not_read(connection: socket.socket) -> None:
    """It asks and takes no answer."""
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")


Way = Callable[[socket.socket], None]
WAYS: tuple[Way, ...] = (silent, half_a_header, idle_after_an_answer, half_a_body, does_not_read)


@contextmanager
def crowd(port: int, way: Way, count: int = CROWD) -> Iterator[None]:
    """So many connections that stay while the block runs, as far as they are let."""
    with ExitStack() as held:
        asked: list[socket.socket] = []
        for _ in range(count):
            one = held.enter_context(socket.create_connection((HOST, port), timeout=30))
            with suppress(OSError):
                way(one)
            asked += [one] if way is does_not_read else []
        for one in asked:
            with suppress(OSError):
                one.recv(1, socket.MSG_PEEK)  # until its answer is there, it does not only stay
        yield


def each_is_answered(port: int, paths: Sequence[str]) -> float:
    """The seconds of the slowest answer to a client that has just come. AssertionError: one is not 200."""
    slowest = 0.0
    for path in paths:
        began = time.monotonic()
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, f"{path}: {answer.status} {text}"
        assert text, path
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def crowds() -> Tally:
    """Each way of staying, at the port of a server and at that of a learner: what others are not answered."""
    tally, slowest = Tally("hundreds of connections that only stay: others are answered"), 0.0
    registry, health = CollectorRegistry(), Health()
    add_build_info(registry, "learn")
    health.started()
    patient = replace(HttpLimits(), head_s=120.0, body_s=120.0, idle_s=120.0, write_s=120.0)
    learner = serve_http(registry, health, HOST, 0)
    try:
        with running(patient) as served:
            served.health.started()
            for way in WAYS:
                for role, port, paths in (
                    ("serve", served.port, (*PAGES, QUESTION)),
                    ("learn", learner.port, PAGES),
                ):
                    with tally.case(f"{role}, {way.__name__}"), crowd(port, way):
                        for _ in range(TIMES):
                            slowest = max(slowest, each_is_answered(port, paths))
    finally:
        learner.close()
    tally.worst = f"slowest of {TIMES * (2 * len(PAGES) + 1) * len(WAYS)} answers after {slowest:.2f} s"
    return tally
