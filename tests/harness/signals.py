"""Signals that have taken effect when the call returns: until then the threads of another process may run on
for a moment, and take one more connection."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.harness.waiting import until


def freeze(pid: int) -> None:
    """Let it hang: its connections stay open, and nothing answers."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stands_still(pid), "every thread stands still")


def kill(pid: int) -> None:
    """End it as a crash would; its parent has still to hear of it."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: stands_still(pid, "ZX"), "every thread is gone")


def stands_still(pid: int, states: str = "TtZX") -> bool:
    """Whether each of its threads is in one of these states (proc(5)); by default stopped, or gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    return all(_state(task) in states for task in tasks)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return "X"
