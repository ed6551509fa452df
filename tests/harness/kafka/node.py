"""One broker as a process of its own."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness.kafka.classes import archive
from tests.harness.kafka.jars import jars
from tests.harness.kafka.java import java
from tests.harness.kafka.lifeline import guard_process, release_process
from tests.harness.signals import freeze

HEAP = "384m"
STOP_SECONDS = 120.0
"""Only keeps a broken node from hanging its test: on a busy machine Java takes long to leave."""


def command(main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """How one of Kafka's classes is run: a small heap and quick compilation, for two cores. options: of
    Java's, instead of the archive of classes."""
    known = [f"-XX:SharedArchiveFile={archive()}"] if archive().exists() else []
    return [
        str(java()),
        *(options or known),
        "-Xms64m",
        f"-Xmx{HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        "-cp",
        f"{jars()}/*",
        main,
        *arguments,
    ]


def format_storage(configuration: Path, cluster_id: str, scram: Sequence[str]) -> None:
    """Prepare the data folder that `configuration` names, with users for SCRAM."""
    users = [word for user in scram for word in ("--add-scram", user)]
    done = subprocess.run(
        command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration), *users),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Node:
    """A broker that can be stopped, killed, frozen, thawed and started again, on its data and ports."""

    def __init__(self, number: int, configuration: Path, options: Sequence[str] = ()) -> None:
        self.number, self._options = number, options
        self._configuration = configuration
        self._log = configuration.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self.thawed_at = -math.inf
        """By the monotonic clock; never, for one that was not."""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process number; only while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin; `Cluster.wait_ready` tells when it serves."""
        assert not self.running
        self._frozen = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command("kafka.Kafka", str(self._configuration), options=self._options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._configuration.parent,
                start_new_session=True,  # Ctrl-C is for the tests, which then end their brokers
            )
        guard_process(self._process.pid)

    def stop(self) -> None:
        """Ask it to leave in order: it hands its leaderships over."""
        self._signal(signal.SIGTERM)
        self._gone(STOP_SECONDS)

    def kill(self) -> None:
        """End it as a crash of its machine would."""
        if self.running:
            self._signal(signal.SIGKILL)
            self._gone(STOP_SECONDS)

    def freeze(self) -> None:
        """Let it hang: its connections stay open and nothing answers, from the return of this call on."""
        freeze(self.pid)
        self._frozen = True

    def thaw(self) -> None:
        """Let a frozen one go on; nothing for one that is not frozen."""
        if self._frozen:
            self._frozen, self.thawed_at = False, time.monotonic()
        self._signal(signal.SIGCONT)

    def said(self) -> str:
        """The end of what it wrote to its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:] if self._log.exists() else ""

    def _signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def _gone(self, seconds: float) -> None:
        assert self._process is not None
        self._process.wait(seconds)
        release_process(self._process.pid)
