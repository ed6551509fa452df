"""Several processes of `serve` on one port: a rolling restart and kills under load, and what is posted."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from daemon.cli import main
from daemon.client import WriteClient
from daemon.exits import EX_OK, EX_UNAVAILABLE
from daemon.serve.start import HANDOVER_S
from daemon.up.supervisor import HANDLER_S
from tests.daemon.serve.test_role import Place, Role
from tests.daemon.serve.test_role_writes import learned
from tests.harness.signals import freeze, kill
from tests.harness.waiting import until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    text = made.file.read_text().replace("serve_port = 0", "serve_port = 0\nprocess_ports = 0")
    made.file.write_text(f"{text}[serve.writes]\nenabled = true\n")
    yield made
    made.end()


class Group(Role):
    """A parent with its processes."""

    def __init__(self, role: Role) -> None:
        super().__init__(role.process, role.log)

    def those(self, event: str) -> list[dict[str, object]]:
        return [line for line in self.lines() if line["event"] == event]

    def pids(self) -> dict[str, int]:
        """The process now, by name."""
        return {str(line["role"]): int(str(line["pid"])) for line in self.those("started")}

    def ready_ones(self) -> Counter[str]:
        return Counter(str(line["role"]) for line in self.those("ready"))

    def own_urls(self) -> dict[str, str]:
        told = self.those("answering, with metrics, health and the page")
        return {str(line["role"]): str(line["url"]) for line in told}


def group_of(place: Place, *words: str) -> Group:
    place.feed(20, seed=1)
    place.learn()
    group = Group(place.start("serve", "--processes", "2", *words))
    until(lambda: len(group.ready_ones()) == 2, group.said)
    return group


SLOW_S = HANDOVER_S / 2
"""A client that stood still for so long itself connects anew: one that ends hangs up on who is quiet."""


class Load:
    """Clients of the shared port, half of them with connections that are kept; every answer is counted."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 0)
        self.answers: Counter[int] = Counter()
        self.failed: list[str] = []
        self._inside, self._clients, self._answered = 0, 0, time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def running(self, clients: int = 4) -> Iterator[None]:
        self._clients = clients
        threads = [threading.Thread(target=self._ask, args=(number % 2 == 0,)) for number in range(clients)]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._ended.set()
            for one in threads:
                one.join()

    def all_wait(self) -> bool:
        """Whether every client waits for an answer, and none has come for a while."""
        return self._inside == self._clients and time.monotonic() - self._answered > 1.0

    def _ask(self, keeps: bool) -> None:
        connection = HTTPConnection(self._host, self._port, timeout=60)
        answered = time.monotonic()
        while not self._ended.is_set():
            if time.monotonic() - answered > SLOW_S:
                connection.close()
            with self._lock:
                self._inside += 1
            try:
                connection.request("GET", "/v1/similar?id=o1&k=3")
                answer = connection.getresponse()
                answer.read()
                answered = self._answered = time.monotonic()
                with self._lock:
                    self.answers[answer.status] += 1
            except (OSError, HTTPException) as error:
                self.failed.append(repr(error))
                connection.close()
            with self._lock:
                self._inside -= 1
            if not keeps:
                connection.close()
            time.sleep(0.005)


def test_no_question_fails_while_all_processes_are_started_again(place: Place) -> None:
    group = group_of(place)
    load, before = Load(group.url()), group.pids()
    with load.running():
        until(lambda: load.answers[200] > 100)
        group.process.send_signal(signal.SIGUSR1)
        until(lambda: set(group.ready_ones().values()) == {2}, group.said)
        asked = load.answers.total()
        until(lambda: load.answers.total() > asked + 100)
    after = group.pids()
    assert not load.failed
    assert set(load.answers) == {200}
    assert set(before) == set(after) == {"serve-0", "serve-1"}
    assert not set(before.values()) & set(after.values())
    assert group.stop() == EX_OK


def answer_of(url: str) -> bytes:
    """Its body; of an error, too: who is ready may still be loading one of its names."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return bytes(error.read())


def test_up_hands_the_request_on_to_its_servers_and_its_learner(place: Place) -> None:
    place.feed(20, seed=1)
    place.learn()
    before = place.newest().number
    group = Group(place.start("up", "--set", "serve.processes=2", "--set", "http.up_port=0"))
    until(lambda: {"learn", "serve"} <= set(group.pids()), group.said)
    begun = time.monotonic()
    until(lambda: group.ready_ones()["serve-0"] == group.ready_ones()["serve-1"] == 1, group.said)
    place.feed(5, seed=2)
    learned_of = f"{group.own_urls()['serve-0']}/v1/similar?id=o1&alias=latest"
    until(lambda: b'"version":"1+' in answer_of(learned_of), group.said)
    until(lambda: time.monotonic() > begun + HANDLER_S)
    group.process.send_signal(signal.SIGUSR1)
    until(lambda: group.ready_ones()["serve-0"] == group.ready_ones()["serve-1"] == 2, group.said)
    until(lambda: place.newest().number > before, group.said)
    assert len([one for one in group.those("started") if one["role"] in ("learn", "serve")]) == 2
    assert group.stop() == EX_OK


def test_of_a_killed_process_the_others_take_the_connections(place: Place) -> None:
    group = group_of(place)
    asked = Load(group.url())
    frozen = group.pids()["serve-0"]
    freeze(frozen)  # what comes for it now waits in its socket
    with asked.running(clients=8):
        # Once in sixteen times all connections that are kept are with the frozen one, and soon all clients.
        until(lambda: asked.answers[200] > 20 or asked.all_wait())
        os.kill(frozen, signal.SIGKILL)
        until(lambda: group.ready_ones()["serve-0"] == 2, group.said)
    assert set(asked.answers) == {200}
    # With it only connections are lost that it had taken, and it was frozen before the first came.
    assert not asked.failed


def test_each_process_says_how_it_is_on_a_port_of_its_own(place: Place) -> None:
    group = group_of(place, "--set", "serve.drain=10s")  # time enough to ask who is ending
    urls = group.own_urls()
    assert len(set(urls.values()) | {group.url()}) == 3
    for name, pid in group.pids().items():
        with urllib.request.urlopen(urls[name] + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        assert 'tripletd_serving{alias="latest"} 1.0' in text
        found = re.search(r"^process_start_time_seconds (\S+)", text, re.MULTILINE)
        assert found is not None, pid
    os.kill(group.pids()["serve-1"], signal.SIGTERM)
    until(lambda: bool(group.those("draining")), group.said)
    connection = HTTPConnection(urls["serve-1"].removeprefix("http://"), timeout=60)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (503, "close")
    assert b"ending" in answer.read()
    connection.request("GET", "/v1/similar?id=o1")  # connects again, and is answered
    assert connection.getresponse().status == 200


def test_the_port_is_not_shared_with_another_configuration(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    group = group_of(place)
    port = str(urlsplit(group.url()).port)
    command = ["serve", "--config", str(place.file), "--processes", "2", "--set", f"http.serve_port={port}"]
    assert main(command) == EX_UNAVAILABLE
    assert f"port {port} on 127.0.0.1 is taken" in capsys.readouterr().err


def test_what_is_posted_to_any_process_is_learned_once(place: Place) -> None:
    group = group_of(place)
    before = len(learned(place))
    for number in range(30):
        client = WriteClient(group.url())  # a connection each, so that both processes get some
        shown = client.impression("o1", ["o2", "o3"], impression=f"list{number}")
        client.close()
        client.click(shown, "o3")
        client.close()
        WriteClient(group.url()).click(shown, "o3")  # sent again, perhaps to the other one
        if number == 20:
            kill(group.pids()["serve-0"])
    raw = place.folder / "clicks.log.raw"
    assert len(list(raw.iterdir())) >= 2
    for _ in range(2):
        assert main(["feed", str(raw), "--mapping", "http", "--config", str(place.file)]) == EX_OK
    events = {one.id: one for one in learned(place)[before:]}  # fed twice, of which one is learned
    assert sorted(one.impression or "" for one in events.values()) == sorted(f"list{n}" for n in range(30))
