"""Is this process started, alive and ready? Three answers, kept apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Health:
    """What the loop tells the outside.

    Alive: the loop has moved within `max_silence_s` (before it has started, always: start-up has its
    own answer). Ready: started, and the loop has named no reason against it.

    Args:
        max_silence_s: seconds without a beat after which the loop counts as stuck.
        silent: who else knows which thread is stuck, in words, None when none is; asked instead of the beats.
    """

    def __init__(self, max_silence_s: float = 60.0, silent: Callable[[], str | None] | None = None) -> None:
        self._max_silence_s = max_silence_s
        self._silent = silent or self._without_beat
        self._lock = threading.Lock()
        self._last_beat = time.monotonic()
        self._started = False
        self._unready: str | None = None

    def beat(self) -> None:
        """The loop went round once more."""
        self._last_beat = time.monotonic()

    def started(self) -> None:
        """Start-up is over: the loop runs."""
        with self._lock:
            self._last_beat = time.monotonic()
            self._started = True

    def set_ready(self, reason: str | None) -> None:
        """None: ready. A text: why not."""
        with self._lock:
            self._unready = reason

    def startup(self) -> str | None:
        """None when start-up is over, else why not."""
        return None if self._started else "starting"

    def liveness(self) -> str | None:
        """None when alive, else why not."""
        return self._silent() if self._started else None

    def readiness(self) -> str | None:
        """None when ready, else why not."""
        return self.startup() or self.liveness() or self._unready

    def _without_beat(self) -> str | None:
        silence = time.monotonic() - self._last_beat
        return f"the loop has not moved for {silence:.0f} s" if silence > self._max_silence_s else None
