"""Two servers with folders of their own behind HAProxy, as deploy/balancer has it: a rolling restart, a kill,
and clients that name the state they have seen."""

from __future__ import annotations

import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.exits import EX_OK
from tests.daemon.serve.test_role import Place, Role
from tests.harness.balancer import FALL, FILE, INTER_S, Clients, balancer
from tests.harness.kafka.ports import free_ports
from tests.harness.s3_server import BUCKET, S3Server
from tests.harness.waiting import until

DRAIN_S = 3.0
LAGS = {"one": "50ms", "two": "700ms"}
"""How often each looks for versions, so that the second is behind."""
VERSION_EVERY_S = 0.9
QUESTION = "/v1/similar?id=o1&k=3&alias=latest"
PINNED = (True, True, True, False)


class Hosts(Place):
    """Versions in a bucket; each server has a port of its own and keeps states in a folder of its own."""

    def __init__(self, folder: Path, s3: S3Server, prefix: str) -> None:
        super().__init__(folder)
        kept = f'path = "s3://{BUCKET}/{prefix}/shop"\nendpoint = "{s3.url}"'
        text = self.file.read_text().replace("[checkpoints]", f"[checkpoints]\n{kept}")
        self.file.write_text(f"{text}[steps]\nenabled = false\n")
        self.ports = dict(zip(LAGS, free_ports(len(LAGS)), strict=True))
        self.roles = dict[str, Role]()
        self._seed, self.learned_at = 0, 0.0

    def start_host(self, name: str) -> None:
        """Ready when this returns."""
        role = self.roles[name] = self.start(
            "serve",
            *("--set", f"http.serve_port={self.ports[name]}", "--set", f"checkpoints.cache=states-{name}"),
            *("--set", f"serve.look_every={LAGS[name]}", "--set", f"serve.drain={DRAIN_S}s"),
        )
        until(lambda: role.get("/readyz")[0] == 200, role.said)

    def learn_more(self) -> None:
        """Another version."""
        self._seed += 1
        self.feed(6, self._seed)
        self.learn()
        self.learned_at = time.monotonic()

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def answered(self, name: str) -> float:
        """Questions that a server has answered since it was started."""
        with urllib.request.urlopen(f"http://{self.address(name)}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        found = re.findall(r'tripletd_http_requests_total\{route="/v1/similar",status="200"\} (\S+)', page)
        return sum(map(float, found))


@pytest.fixture
def hosts(tmp_path: Path, s3: S3Server, prefix: str) -> Iterator[Hosts]:
    made = Hosts(tmp_path, s3, prefix)
    made.learn_more()
    for name in LAGS:
        made.start_host(name)
    yield made
    made.end()


def meanwhile(hosts: Hosts, happened: Callable[[], bool]) -> None:
    """Versions are made until it has happened."""

    def look() -> bool:
        if time.monotonic() > hosts.learned_at + VERSION_EVERY_S:
            hosts.learn_more()
        return happened()

    until(look)


def test_the_file_says_what_the_test_believes() -> None:
    text = FILE.read_text()
    (found,) = re.findall(r"default-server inter (\d+)s fall (\d+) ", text)
    assert tuple(map(int, found)) == (INTER_S, FALL)
    assert INTER_S * FALL < DRAIN_S


def test_a_rolling_restart_and_a_kill_fail_no_question_and_nobody_goes_back(hosts: Hosts) -> None:
    with balancer(hosts.folder, hosts.address("one"), hosts.address("two")) as url:
        clients, said = Clients(url, QUESTION, PINNED), hosts.folder / "haproxy.log"
        with clients.asking():
            meanwhile(hosts, lambda: all(hosts.answered(name) > 50 for name in LAGS))
            meanwhile(hosts, lambda: clients.those(pinned=False)[0].went_back > 0)  # else nothing was tried
            for name in LAGS:  # one host after another, the next when the balancer asks this one again
                role = hosts.roles[name]
                role.process.send_signal(signal.SIGTERM)
                meanwhile(hosts, lambda role=role: role.process.poll() is not None)  # type: ignore[misc]
                assert role.process.wait() == EX_OK
                hosts.start_host(name)
                meanwhile(hosts, lambda name=name: hosts.answered(name) > 30)  # type: ignore[misc]
            killed = hosts.roles["one"].process
            killed.kill()
            killed.wait()
            # A check that a busy machine kept waiting may have told so before.
            states = re.compile("Server servers/one is (UP|DOWN)")
            meanwhile(hosts, lambda: states.findall(said.read_text())[-1] == "DOWN")
            asked = clients.answered
            meanwhile(hosts, lambda: clients.answered > asked + 100)
    assert [one.failed for one in clients.each] == [[]] * len(PINNED)
    assert [one.went_back for one in clients.those(pinned=True)] == [0] * sum(PINNED)
    assert all(one.answers[-1][1] > one.answers[0][1] for one in clients.each)
