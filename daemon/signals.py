"""Signals of a role: stop gently, stop at once, checkpoint now, show the stacks."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Flags a loop looks at between batches; a context manager that restores the old handlers.

    First SIGTERM or SIGINT: `stopping` becomes true (finish the batch, checkpoint, exit 0).
    Second: the process exits at once with 128 + the signal's number.
    SIGUSR1: `take_checkpoint_request` answers true once. SIGUSR2: every thread's stack to stderr.
    Must be entered in the main thread; elsewhere it only keeps the flags (`request_stop`).
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._checkpoint = threading.Event()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                self._previous[number] = signal.signal(number, self._on_stop)
            self._previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_checkpoint)
            faulthandler.register(signal.SIGUSR2, all_threads=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            faulthandler.unregister(signal.SIGUSR2)
        self._previous.clear()

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end after this batch."""
        return self._stop.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to `timeout_s`, less when a stop arrives; whether the loop is to end."""
        return self._stop.wait(timeout_s)

    def request_stop(self) -> None:
        """What a first SIGTERM does."""
        self._stop.set()

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        asked = self._checkpoint.is_set()
        self._checkpoint.clear()
        return asked

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()

    def _on_checkpoint(self, number: int, frame: FrameType | None) -> None:
        self._checkpoint.set()
