"""Work in background threads, with a bounded end."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress


class BackgroundThread(ABC):
    """A thread of its own, and a daemon: a process that ends does not wait for it."""

    name: str

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"tripletd-{self.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @abstractmethod
    def stop(self) -> None:
        """Begin to end; returns at once."""

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread up to `timeout_s`; whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """What the thread does, to its end."""


def give_way(nice: int) -> None:
    """Lower the priority of the calling thread, where the system knows priorities of threads."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
