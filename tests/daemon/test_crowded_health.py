"""Health and metrics of the roles that do not answer questions, while hundreds of connections only stay."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from daemon.telemetry import Health, TelemetryServer, serve_http
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import (
    FILES,
    MOST_CONNECTIONS,
    PAGES,
    ConnectionTable,
    allow_descriptors,
    client_of,
)
from tests.daemon.test_telemetry import HOST
from tests.harness.crowds import Way, crowd, does_not_read, each_is_answered, half_a_header, silent
from tests.harness.waiting import until


@pytest.fixture
def server() -> Iterator[TelemetryServer]:
    registry, health = CollectorRegistry(), Health()
    add_build_info(registry, "learn")
    health.started()
    one = serve_http(registry, health, HOST, 0)
    yield one
    one.close()


@pytest.mark.parametrize("way", [silent, half_a_header, does_not_read], ids=lambda way: way.__name__)
def test_whoever_only_stays_keeps_no_probe_out(server: TelemetryServer, way: Way) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(crowd(server.port, way, 100))
            each_is_answered(server.port, PAGES)
        until(lambda: threading.active_count() - before <= MOST_CONNECTIONS)
        each_is_answered(server.port, PAGES)
    until(lambda: threading.active_count() <= before)


def test_the_client_with_most_connections_gives_way_and_of_these_the_oldest() -> None:
    table = ConnectionTable[str]()
    for name, client in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("c1", "c"), ("c2", "c")):
        table.add(name, client)
        table.idles(name)
    assert (len(table), table.idle) == (6, 6)
    nobody = lambda name: False
    assert [table.take_waiting(nobody) for _ in range(2)] == ["b1", "b2"]
    assert table.take_waiting(lambda name: name == "c1") == "c2"
    table.works("b3")
    table.stalls("c1")
    assert (len(table), table.idle) == (3, 1)
    assert [table.take_waiting(nobody) for _ in range(3)] == ["a1", "c1", None]
    assert (len(table), table.idle) == (1, 0)


def test_waiting_on_does_not_make_a_connection_younger_and_an_answer_does() -> None:
    table = ConnectionTable[int]()
    for name in range(3):
        table.add(name, "a")
        table.idles(name)
    table.idles(0)
    table.works(1)
    table.idles(1)
    assert [table.take_waiting(lambda name: False) for _ in range(3)] == [0, 2, 1]


def test_what_has_ended_is_not_counted() -> None:
    table = ConnectionTable[int]()
    for how, name in product((table.idles, table.stalls, table.works), range(2)):
        table.add(name, str(name))
        how(name)
        for _ in range(2):
            table.remove(name)
        how(name)
        assert (len(table), table.idle) == (0, 0)
    assert table.take_waiting(lambda name: False) is None


def test_a_client_is_an_address_or_a_network_that_one_party_holds() -> None:
    assert client_of("192.0.2.7") == client_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert client_of("2001:db8:1:2::5") == client_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::"
    assert client_of("2001:db8:1:3::5") != client_of("2001:db8:1:2::5")
    assert client_of("fe80::1%eth0") == "fe80::"
    assert client_of("") == ""


@pytest.mark.parametrize(
    ("limits", "allowed", "said"),
    [
        ((256, 4096), 100 + FILES, False),
        ((256, resource.RLIM_INFINITY), 100 + FILES, False),
        ((256, 300), 300, True),
        ((1024, 4096), None, False),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, False),
    ],
)
def test_as_many_files_may_be_open_as_connections_need(
    limits: tuple[int, int], allowed: int | None, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[object] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: changes.append(wanted))
    with capture_logs() as lines:
        allow_descriptors(100, "serve.connections")
    assert changes == ([] if allowed is None else [(allowed, limits[1])])
    assert [("hard limit is 300" in line["event"], "LimitNOFILE" in line["event"]) for line in lines] == [
        (True, True)
    ] * said
