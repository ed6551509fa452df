"""Is this process started, alive and ready? Three answers, kept apart."""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> str | None:
    return None


class Health:
    """What the loop tells the outside.

    Alive: no thread is stuck (before the loop has started, always: start-up has its own answer). Ready:
    started, alive, and the loop has named no reason against it.

    Args:
        silent: which thread does not move, in words, None when all do: the watchdog knows.
    """

    def __init__(self, silent: Callable[[], str | None] = _nobody) -> None:
        self._silent = silent
        self._started = False
        self._unready: str | None = None

    def started(self) -> None:
        """Start-up is over: the loop runs."""
        self._started = True

    def set_ready(self, reason: str | None) -> None:
        """None: ready. A text: why not."""
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
