"""How a process of ours ends: on a signal before its own handlers are installed, when its parent is gone, and
when its work is done.

Until a role installs its own handlers there is nothing to finish: a stop ends it with 0, and a reload or a
request for a version does nothing, since the configuration has not been read yet. A process of ours imports
this module first, so it imports only what the interpreter has loaded anyway, and the rest where it is
needed. Before it, during the interpreter's own start of a few hundredths of a second, a stop ends the
process by the signal itself.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # that of `typing` costs a millisecond more
if TYPE_CHECKING:
    from threading import Thread

ROLES = frozenset({"learn", "merge", "validate", "serve", "up"})


def leave_on_signals() -> None:
    """From now on a stop just ends the process; a reload or a request for a version does not."""
    signal.signal(signal.SIGTERM, leave_at_once)
    signal.signal(signal.SIGINT, leave_at_once)
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)  # SIG_IGN would be inherited by what is started


def leave_at_once(number: int, frame: object) -> None:
    """End with 0 (SIGINT: 130).

    Not by an exception: raised in a callback from native code (numba's compiler), one is printed and lost.
    """
    os._exit(os.EX_OK if number == signal.SIGTERM else 128 + number)


LIFELINE = "TRIPLETD_LIFELINE_FD"
_GRACE_S = 30.0


def open_lifeline() -> tuple[int, int]:
    """(read end for the child's pass_fds, write end the parent keeps); neither is inherited by default.

    The parent never writes; the child blocks on the read end. When the parent dies, even by kill -9, the
    kernel closes the pipe and the child reads end-of-file. Unlike prctl(PR_SET_PDEATHSIG) this needs no code
    between fork and exec, does not fire when merely the thread that forked ends, has no race with a parent
    that died first, and lets the child end gently.
    """
    return os.pipe()


def follow_lifeline() -> Thread | None:
    """In the child: SIGTERM to itself when the parent is gone, a hard exit `_GRACE_S` later.

    Returns None when this process was not started with a lifeline.
    """
    text = os.environ.pop(LIFELINE, "")
    if not text.isdigit():
        return None
    import threading

    thread = threading.Thread(target=_watch, args=(int(text),), name="lifeline", daemon=True)
    thread.start()
    return thread


def _watch(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1):
            pass
    except OSError:
        return  # not a pipe of ours: someone set the variable by hand
    import time

    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(os.EX_TEMPFAIL)


def end(code: int) -> None:
    """End the process with `code`: a role at once, for it has closed and made durable all that matters.

    The interpreter's own way out takes apart what compiled the kernels (0.2 s of a core, seconds on a busy
    host), and runs what libraries have registered, which may wait for a broker that is dead.
    """
    import threading
    from contextlib import suppress

    left_behind = any(thread.name.startswith("tripletd-") for thread in threading.enumerate())
    if left_behind or ROLES.intersection(sys.argv[1:]):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def learner_is_running() -> bool:
    """Whether a learner started along with this role has not finished: their starter holds stdin open."""
    import select

    try:
        return not select.select([sys.stdin], [], [], 0.0)[0]
    except (OSError, ValueError, TypeError):  # no stdin at all
        return False
