"""What a stop does to a role that has just been started: it ends, with 0.

Until a role's own handlers stand there is nothing to finish. This is the first thing that a process of ours
imports, so it knows `os` and `signal` alone. Before it lies nothing but the interpreter's own start, a few
hundredths of a second in which a stop ends the process by the signal itself.
"""

import os
import signal

ROLES = frozenset({"learn", "validate", "serve", "up"})


def leave_when_told() -> None:
    """From now on a stop just ends the process."""
    signal.signal(signal.SIGTERM, leave_at_once)
    signal.signal(signal.SIGINT, leave_at_once)


def leave_at_once(number: int, frame: object) -> None:
    """End with 0 (SIGINT: 130).

    Not by an exception: raised in a callback from native code (numba's compiler), one is printed and lost.
    """
    os._exit(os.EX_OK if number == signal.SIGTERM else 128 + number)
