"""A learner as a process, whether started as `tripletd learn` or forked from one that has all loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from checkpoints.manifest import Manifest
from daemon.exits import EX_OK
from tests.harness import forked
from tests.harness.kill.site import Site
from tests.harness.log_lines import json_lines
from tests.harness.signals import stands_still
from tests.harness.waiting import until

START_SECONDS = 120.0
CATCH_UP_SECONDS = 240.0


class Learner(ABC):
    """A running learner of a site; a context manager that leaves no process behind."""

    pid: int

    def __init__(self, site: Site) -> None:
        self._log = site.stderr
        self._log.touch()
        self._from = self._log.stat().st_size
        self._url = ""

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the process is there."""

    @abstractmethod
    def wait(self, timeout_s: float = START_SECONDS) -> int:
        """Its exit code; negative for a signal. AssertionError when it does not end in time."""

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL where it still runs, and gone."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()

    def said(self) -> str:
        """What it wrote to stderr."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def frozen(self) -> bool:
        """Whether it is stopped (SIGSTOP), not merely waiting."""
        return stands_still(self.pid, "T")

    def url(self) -> str:
        """Where it serves metrics and health, once it has said so."""
        if not self._url:
            wait_until(self._told_url, self)
            self._url = self._told_url()
        return self._url

    def _told_url(self) -> str:
        return next((str(line["url"]) for line in json_lines(self.said()) if "url" in line), "")

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(f"{self.url()}/{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = [line.split(" ") for line in self.get("metrics")[1].splitlines()]
        return sum(float(line[1]) for line in lines if line[0].partition("{")[0] == name)


class Process(Learner):
    """`tripletd learn` in a process of its own; as a user starts it, imports and all, where it is `real`."""

    command = "learn"

    def __init__(
        self, site: Site, *arguments: str, program: Sequence[str] = ("-m", "daemon"), real: bool = False
    ) -> None:
        super().__init__(site)
        command = [sys.executable, *program, self.command, "--config", str(site.config), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with self._log.open("ab") as stderr:
            start = subprocess.Popen if real else forked.Popen
            self._process = start(command, stderr=stderr, stdin=subprocess.DEVNULL, env=environment)
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float = START_SECONDS) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"it did not end within {timeout_s} s: {self.said()}") from None


def as_users_start(site: Site, *arguments: str) -> Process:
    """A learner that nothing was forked for: it imports all by itself."""
    return Process(site, *arguments, real=True)


Start = Callable[..., Learner]
"""Starts a learner: (site, *arguments of `tripletd learn`)."""


def wait_until(
    what: Callable[[], object], learner: Learner | None = None, seconds: float = START_SECONDS
) -> None:
    """Wait for a condition; the deadline only keeps a broken test from hanging."""

    def happened() -> bool:
        found = bool(what())
        assert found or learner is None or learner.running, learner.said()
        return found

    until(happened, learner.said if learner else "it", seconds)


def catch_up(site: Site, start: Start = Process) -> Manifest:
    """Learn everything that is in the log, uninterrupted; the last version."""
    with start(site, "--exit-when-caught-up") as learner:
        assert learner.wait(CATCH_UP_SECONDS) == EX_OK, learner.said()
    return site.newest()
