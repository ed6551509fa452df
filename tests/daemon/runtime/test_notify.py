"""What systemd is told, over a real socket; reload: what is taken over and what is refused."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.config import Config, load_config
from daemon.exits import UserError
from daemon.runtime.logs import configure, get_logger
from daemon.runtime.runtime import ConfigReloader, Signals, differing
from daemon.runtime.watchdog import SEND_SECONDS, SOCKET, WATCHDOG_PID, WATCHDOG_USEC, Notifier


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(30)

    def heard(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def nothing_more(self) -> bool:
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Manager, str]]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@tripletd-test-{os.getpid()}"
    made = Manager(address)
    yield made, address
    made.close()


def test_each_message_as_the_protocol_has_it(manager: tuple[Manager, str]) -> None:
    other, address = manager
    notifier = Notifier({SOCKET: address, WATCHDOG_USEC: "60000000", WATCHDOG_PID: str(os.getpid())})
    notifier.ready()
    assert other.heard() == {"READY": "1"}
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    told = other.heard()
    assert told["RELOADING"] == "1"
    assert before <= int(told["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.status("not ready:\nno stream")
    assert other.heard() == {"STATUS": "not ready: no stream"}
    notifier.alive()
    notifier.alive()  # four times per limit are enough
    assert other.heard() == {"WATCHDOG": "1"}
    notifier.stopping()
    assert other.heard() == {"STOPPING": "1"}
    assert other.nothing_more()


@pytest.mark.parametrize("watched", [{}, {WATCHDOG_USEC: "1000", WATCHDOG_PID: "1"}])
def test_nobody_is_fed_who_does_not_watch_us(manager: tuple[Manager, str], watched: dict[str, str]) -> None:
    other, address = manager
    Notifier({SOCKET: address, **watched}).alive()
    assert other.nothing_more()


@pytest.mark.parametrize(
    ("environ", "tried"),
    [
        ({}, []),
        ({SOCKET: ""}, []),
        ({SOCKET: "vsock:2:1"}, []),
        ({SOCKET: "/nowhere/at/all"}, [(b"READY=1", "/nowhere/at/all")]),
    ],
)
def test_without_a_manager_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], tried: list[tuple[bytes, str]]
) -> None:
    found = []

    class Kept(socket.socket):
        def sendto(self, *told: Any) -> int:
            found.append(told)
            return super().sendto(*told)

    monkeypatch.setattr(socket, "socket", Kept)
    notifier = Notifier(environ)
    notifier.ready()
    notifier.alive()
    assert found == tried


def test_what_is_started_does_not_speak_for_the_service(tmp_path: Path) -> None:
    environ = {SOCKET: str(tmp_path / "x"), WATCHDOG_USEC: "1", WATCHDOG_PID: "1", "PATH": "/bin"}
    Notifier.of_this_process(environ)
    assert environ == {"PATH": "/bin"}


def config(**changes: Any) -> Config:
    return load_config(None, {key.replace("__", "."): value for key, value in changes.items()}, {})


def test_differing_keys_are_named_without_their_values() -> None:
    kafka = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}
    broker = {"stream__address": "kafka://h:1/t"} | {f"stream__kafka__{k}": v for k, v in kafka.items()}
    one = config(**broker, stream__kafka__sasl_password="a", learner__C=0.1)
    other = config(**broker, stream__kafka__sasl_password="b", learner__C=0.2)
    assert differing(one, other) == ["learner.C", "stream.kafka.sasl_password"]
    assert differing(one, one) == []


class Said:
    """A notifier that keeps what it was told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def reloading(self) -> None:
        self.words.append("reloading")

    def ready(self) -> None:
        self.words.append("ready")


def test_a_reload_takes_the_log_level_and_refuses_learner_keys() -> None:
    fresh = config(log__level="error", learner__C=0.2, stream__poll_records=7)
    said: Any = Said()
    configure("info", "json")
    reloading = ConfigReloader(config(), lambda: fresh, said)
    reloading.when(False)
    assert said.words == []
    try:
        with capture_logs() as lines:
            reloading.when(True)
        assert said.words == ["reloading", "ready"]
        assert [line.get("keys") for line in lines] == [["learner.C", "stream.poll_records"], None]
        assert lines[1]["changed"] == ["log.level"]
        logger: Any = get_logger()
        with capture_logs() as lines:
            logger.info("not shown")
            logger.error("shown")
        assert [line["event"] for line in lines] == ["shown"]
    finally:
        configure("info", "json")


def test_a_broken_file_changes_nothing_and_ends_nothing() -> None:
    def broken() -> Config:
        raise UserError("tripletd.toml: learner.C: found -1")

    said: Any = Said()
    with capture_logs() as lines:
        ConfigReloader(config(), broken, said).when(True)
    assert said.words == ["reloading", "ready"]
    assert [line["log_level"] for line in lines] == ["error"]
    assert "learner.C" in lines[0]["reason"]


def test_a_hangup_asks_for_a_reload_once() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.take_reload_request()
        assert not signals.take_reload_request()
        assert not signals.stopping


def test_a_manager_that_reads_nothing_costs_next_to_no_processor_time(manager: tuple[Manager, str]) -> None:
    other, address = manager
    notifier = Notifier({SOCKET: address})
    while True:  # until its queue is full
        began, worked = time.monotonic(), time.process_time()
        notifier.ready()
        waited, worked = time.monotonic() - began, time.process_time() - worked
        if waited >= SEND_SECONDS:
            break
    assert worked < 0.5 * waited
    assert other.heard() == {"READY": "1"}
