"""Work in background threads, with a name, a bound and an end.

Every thread is a daemon: a disk or broker that never answers does not hold the process when it ends.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

SLICE_SECONDS = 0.02


class BackgroundThread(ABC):
    """A named thread that runs `_run` from `start` on and ends soon after `stop`."""

    name: str

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"tripletd-{self.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @abstractmethod
    def stop(self) -> None:
        """Ask the thread to end; returns at once."""

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread up to `timeout_s`; whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """The work of the thread, to its end."""


def end_all(
    threads: Sequence[BackgroundThread], limit_s: Callable[[list[BackgroundThread]], float]
) -> list[BackgroundThread]:
    """Stop all threads, then wait for them; those that did not end in time.

    `limit_s` gives the longest wait in seconds since the stop, for the threads that are still running. It is
    asked every `SLICE_SECONDS`, so it may shrink meanwhile.
    """
    began, running = time.monotonic(), list(threads)
    for thread in running:
        thread.stop()
    while running := [thread for thread in running if not thread.ended(SLICE_SECONDS)]:
        if time.monotonic() - began > limit_s(running):
            break
    return running


def give_way(nice: int) -> None:
    """Lower the priority of the calling thread, where the system knows priorities of threads."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
