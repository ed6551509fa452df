"""What signals do to a role that has just been started: a stop ends it, with 0; a reload asks for nothing,
since the configuration is about to be read.

Until a role's own handlers stand there is nothing to finish. This is the first thing that a process of ours
imports, so it knows `os` and `signal` alone. Before it lies nothing but the interpreter's own start, a few
hundredths of a second in which a stop ends the process by the signal itself.
"""

import os
import signal

ROLES = frozenset({"learn", "validate", "serve", "up"})


def leave_when_told() -> None:
    """From now on a stop just ends the process, and a reload does not."""
    signal.signal(signal.SIGTERM, leave_at_once)
    signal.signal(signal.SIGINT, leave_at_once)
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # SIG_IGN would be inherited by what is started


def leave_at_once(number: int, frame: object) -> None:
    """End with 0 (SIGINT: 130).

    Not by an exception: raised in a callback from native code (numba's compiler), one is printed and lost.
    """
    os._exit(os.EX_OK if number == signal.SIGTERM else 128 + number)
