"""Whether a role does its work: told to those who ask, to the service manager, and any change to the log."""

from __future__ import annotations

import re

from structlog.typing import FilteringBoundLogger

from daemon.process.notify import Notifier
from daemon.telemetry import Health

_COUNT = re.compile(r"\d+")


class Standing:
    """A role's readiness. `working`: one word for what it does when nothing stands in its way."""

    def __init__(self, health: Health, notifier: Notifier, log: FilteringBoundLogger, working: str) -> None:
        self._health, self._notifier, self._log, self._working = health, notifier, log, working
        self._kind: str | None = None

    def now(self, reason: str | None, *, loading: bool = False) -> None:
        """None: ready. A text: why not; another count in it, or other words after its colon, are not news.

        loading: it is on its way, which is no trouble; the log hears what comes of it.
        """
        self._health.set_ready(reason)
        if loading:
            self._kind = ""
            return
        kind = reason and _COUNT.sub("", reason.partition(":")[0])
        if kind == self._kind:
            return
        self._kind = kind
        self._log.warning("not ready", reason=reason) if reason else self._log.info("ready")
        self._notifier.status(f"not ready: {reason}" if reason else self._working)
