"""Ctrl-C for a batch command: stops a wait at once, but never a durable write halfway."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS = 0.05


class Interrupted(BaseException):
    """SIGINT or SIGTERM came; raised where the command stood, or at the end of a shielded write."""


class Interrupts:
    """A context manager in the main thread; inside it SIGINT and SIGTERM raise Interrupted.

    A second signal raises at once even in a shield.
    """

    def __init__(self) -> None:
        self._shielded = False
        self._pending = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._on_signal) for number in _STOPPING}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Hold a signal back until the block is done."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._pending:
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Sleep between two tries of a write; raises Interrupted for a signal that a shield holds back."""
        deadline = time.monotonic() + seconds
        while not self._pending and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        if self._pending:
            raise Interrupted

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._shielded and not self._pending:
            self._pending = True
            return
        raise Interrupted
