"""HAProxy with the very file of deploy/balancer, in front of two servers on loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.harness.kafka.lifeline import guard_process, release_process
from tests.harness.kafka.ports import free_ports
from tests.harness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "balancer" / "haproxy.cfg"
INTER_S, FALL = 1.0, 2
"""As the file has them: seconds between two checks, and failures until a server is out."""


def haproxy_program() -> Path | None:
    """haproxy of this machine, or where `make haproxy` has unpacked it."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path=ROOT / ".cache" / "haproxy")
    return None if found is None else Path(found)


@contextmanager
def balancer(folder: Path, one: str, two: str) -> Iterator[str]:
    """The URL of one in front of the servers at `one` and `two`, HOST:PORT. What it says is in `folder`."""
    program = haproxy_program()
    if program is None:
        pytest.skip("no haproxy: run deploy/setup_haproxy.sh")
    (port,) = free_ports(1)
    places = {"TRIPLETD_BALANCER": f"127.0.0.1:{port}", "TRIPLETD_ONE": one, "TRIPLETD_TWO": two}
    said = folder / "haproxy.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [program, "-db", "-f", FILE], stdout=log, stderr=log, env={**os.environ, **places}
        )
    guard_process(process.pid)
    try:
        until(lambda: _listens(port) or process.poll() is not None, said.read_text)
        assert process.poll() is None, said.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        release_process(process.pid)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Asking:
    """What one client got. answers: (line, records) in order; seconds: of each, until it was read; failed:
    what came in the place of an answer; statuses: of all questions, 0 for none."""

    answers: list[tuple[str, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def went_back(self) -> int:
        """Answers of an older state than the answer before, or of another line."""
        return sum(later[0] != before[0] or later[1] < before[1] for before, later in pairwise(self.answers))


class Clients:
    """Threads that ask one question after another over a connection that is kept, and never ask one again.

    Args:
        pinned: for each client, whether it names the state of its last answer in the next question.
        pause_s: between two questions of a client.
    """

    def __init__(self, url: str, path: str, pinned: Sequence[bool], pause_s: float = 0.02) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = str(parts.hostname), int(parts.port or 0), path
        self._pinned, self._pause_s = pinned, pause_s
        self.each = [Asking() for _ in pinned]
        self._ended = threading.Event()

    def those(self, pinned: bool) -> list[Asking]:
        """What the clients got that name a state, or those that do not."""
        return [one for one, names in zip(self.each, self._pinned, strict=True) if names == pinned]

    @property
    def answered(self) -> int:
        """Questions of all that were answered."""
        return sum(len(one.answers) for one in self.each)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """They ask as long as the block runs."""
        threads = [
            threading.Thread(target=self._ask, args=(one, names), daemon=True)
            for one, names in zip(self.each, self._pinned, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def _ask(self, found: Asking, names: bool) -> None:
        connection = HTTPConnection(self._host, self._port, timeout=30)
        while not self._ended.is_set():
            headers = {}
            if names and found.answers:
                line, records = found.answers[-1]
                headers["X-Tripletd-At-Least"] = f"{line}@{records}"
            began = time.perf_counter()
            try:
                connection.request("GET", self._path, headers=headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, HTTPException) as error:
                found.statuses[0] += 1
                found.failed.append(repr(error))
                connection.close()
                continue
            found.statuses[answer.status] += 1
            if answer.status == 200:
                body = json.loads(text)
                found.answers.append((body["line"], body["records"]))
                found.seconds.append(time.perf_counter() - began)
            else:
                found.failed.append(f"{answer.status} {text[:300].decode()}")
            self._ended.wait(self._pause_s)
        connection.close()
