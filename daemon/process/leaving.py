"""The two ends of a role's process: before its own signal handlers stand, and after its work is done."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from daemon.exits import EX_OK, INTERRUPTED

ROLES = frozenset({"learn", "validate", "serve", "up"})


def leave_when_told() -> None:
    """Until a role's own handlers stand there is nothing to finish: a stop just ends the process."""
    signal.signal(signal.SIGTERM, leave_at_once)
    signal.signal(signal.SIGINT, leave_at_once)


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """End with 0 (SIGINT: 130).

    Not by an exception: raised in a callback from native code (numba's compiler), one is printed and lost.
    """
    os._exit(EX_OK if number == signal.SIGTERM else INTERRUPTED)


def end(code: int) -> None:
    """End the process with `code`: a role at once, for it has closed and made durable all that matters.

    The interpreter's own way out takes apart what compiled the kernels (0.2 s of a core, seconds on a busy
    host), and runs what libraries have registered, which may wait for a broker that is dead.
    """
    left_behind = any(thread.name.startswith("tripletd-") for thread in threading.enumerate())
    if left_behind or ROLES.intersection(sys.argv[1:]):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)
