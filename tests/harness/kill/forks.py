"""The client of `server.py`: learners that start in milliseconds, die at named steps, and are waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness import forked
from tests.harness.kill.learners import START_SECONDS, Learner
from tests.harness.kill.points import KILLED, Act
from tests.harness.kill.site import Site


class Forks:
    """One server; called like a `Start`, it forks a learner. A context manager that leaves nothing behind."""

    def __init__(self) -> None:
        self._asked = 0
        command = [sys.executable, "-m", "tests.harness.kill.server"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._server = forked.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def __call__(self, site: Site, *arguments: str) -> Fork:
        return Fork(self, site, list(arguments), None)

    def fused(self, site: Site, name: str, nth: int, act: Act = "die", record: Path | None = None) -> Fork:
        """A learner up to the end of the stream that dies or freezes at the `nth` passing of a step."""
        log = site.address.path if site.address.scheme == "log" else None
        fuse = [name, nth, act, record and str(record), log]
        return Fork(self, site, ["--exit-when-caught-up"], fuse)

    def dies(self, site: Site, name: str, nth: int, act: Act = "die") -> None:
        """Run a learner that must die at that step."""
        with self.fused(site, name, nth, act) as learner:
            assert learner.wait() == KILLED, f"{name} ({nth}): {learner.said()}"

    def judge(self, folder: Path, name: str = "", nth: int = 0, record: Path | None = None) -> int:
        """Write one verdict and die at a step of it; the exit code."""
        return self._on_the_ledger("judge", folder, name, nth, record)

    def fold(self, folder: Path, name: str = "", nth: int = 0, record: Path | None = None) -> int:
        """Fold the ledger and die at a step of it; the exit code."""
        return self._on_the_ledger("fold", folder, name, nth, record)

    def follow(self, config: Path, said: Path, fuse: list[Any] | None) -> int:
        """A `feed --follow` up to the end of what there is, which may die at a step; its process id."""
        order = {"fork": "follow", "path": str(config), "arguments": ["--exit-when-caught-up"], "fuse": fuse}
        return int(self.ask({**order, "stderr": str(said)}))

    def _on_the_ledger(self, what: str, folder: Path, name: str, nth: int, record: Path | None) -> int:
        fuse = [name, nth, "die", record and str(record)]
        said = folder.parent / f"{what}.stderr"
        order = {"fork": what, "path": str(folder), "arguments": [], "fuse": fuse, "stderr": str(said)}
        return int(self.ask({"wait": self.ask(order), "seconds": START_SECONDS}))

    def ask(self, order: dict[str, Any]) -> Any:
        """One order, one answer. Those that nobody stayed for, as of a test whose time was up, are passed
        over."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._asked += 1
        self._server.stdin.write(json.dumps({**order, "number": self._asked}) + "\n")
        self._server.stdin.flush()
        while True:
            number, answer = json.loads(self._server.stdout.readline())
            if number == self._asked:
                return answer


class Fork(Learner):
    """A learner that `server.py` forked."""

    def __init__(self, forks: Forks, site: Site, arguments: list[str], fuse: list[Any] | None) -> None:
        super().__init__(site)
        self._forks = forks
        self._code: int | None = None
        order = {"fork": "learn", "path": str(site.config), "arguments": arguments, "fuse": fuse}
        self.pid = forks.ask({**order, "stderr": str(site.stderr)})

    @property
    def running(self) -> bool:
        self._look(0)
        return self._code is None

    def wait(self, timeout_s: float = START_SECONDS) -> int:
        self._look(timeout_s)
        assert self._code is not None, f"it did not end within {timeout_s} s: {self.said()}"
        return self._code

    def _look(self, seconds: float) -> None:
        if self._code is None:
            self._code = self._forks.ask({"wait": self.pid, "seconds": seconds})
