"""No broker outlives the process that started it, however that ends.

A guard process reads from a pipe whose other end only this process holds. It is told of every child and
every data folder; when the pipe closes, it kills the children and removes the folders.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

_GUARD = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids, folders = set(), set()
for line in sys.stdin:
    what, _, name = line.rstrip("\\n").partition(" ")
    {"+pid": pids.add, "-pid": pids.discard, "+dir": folders.add, "-dir": folders.discard}[what](name)
for pid in pids:
    try:
        os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
for folder in folders:
    shutil.rmtree(folder, ignore_errors=True)
"""


class _Lifeline:
    """The guard of this process, started with the first child."""

    def __init__(self) -> None:
        self._pipe: IO[str] | None = None
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        with self._lock:
            if self._pipe is None:
                guard = subprocess.Popen(
                    [sys.executable, "-S", "-E", "-c", _GUARD],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # a signal to our group must not reach the guard
                )
                self._pipe = guard.stdin
            assert self._pipe is not None
            self._pipe.write(line + "\n")
            self._pipe.flush()


_lifeline = _Lifeline()


def guard_process(pid: int) -> None:
    """Have this child killed when this process ends."""
    _lifeline.say(f"+pid {pid}")


def release_process(pid: int) -> None:
    """The child is gone: its number may soon belong to somebody else."""
    _lifeline.say(f"-pid {pid}")


def guard_folder(folder: Path) -> None:
    """Have this folder removed when this process ends."""
    _lifeline.say(f"+dir {folder}")


def release_folder(folder: Path) -> None:
    """The folder is gone."""
    _lifeline.say(f"-dir {folder}")
