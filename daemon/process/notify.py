"""What systemd is told: ready, reloading, stopping, still alive (sd_notify over $NOTIFY_SOCKET).

The protocol is one datagram of KEY=VALUE lines (man 3 sd_notify); a library for it would be longer than this.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

SEND_SECONDS = 0.5
SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notifier:
    """Tells the service manager; does nothing where there is none. That it fails never disturbs the role."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get(SOCKET, ""))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.settimeout(SEND_SECONDS)
        self._feed_every_s = _feeding(environ)
        self._fed_at = float("-inf")

    @staticmethod
    def of_this_process(environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """For the main process of a service; what it starts does not see the socket."""
        notifier = Notifier(environ)
        for name in (SOCKET, WATCHDOG_USEC, WATCHDOG_PID):
            environ.pop(name, None)
        return notifier

    def ready(self) -> None:
        """Start-up, or a reload, is over."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it. The time is the monotonic clock's, as the protocol asks."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The role finishes its work and ends."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._tell("STATUS=" + " ".join(text.split()))

    def alive(self) -> None:
        """Feed the watchdog where the service asks for one (WatchdogSec=), as often as it needs."""
        now = time.monotonic()
        if self._feed_every_s is not None and now - self._fed_at >= self._feed_every_s:
            self._fed_at = now
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if self._socket is not None and self._address is not None:
            with suppress(OSError):  # a full or closed socket: systemd is told again later, or is gone
                self._socket.sendto("\n".join(lines).encode(), self._address)


def _feeding(environ: Mapping[str, str]) -> float | None:
    """Seconds between two feedings, a quarter of what systemd waits; None when it does not watch us."""
    limit, owner = environ.get(WATCHDOG_USEC, ""), environ.get(WATCHDOG_PID, "")
    if not limit.isdecimal() or owner not in ("", str(os.getpid())):
        return None
    return int(limit) / 4e6


def _address(text: str) -> str | None:
    """A path, or a name in the abstract namespace (written with @); None for anything else."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None
