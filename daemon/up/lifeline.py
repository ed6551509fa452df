"""A child that ends when its parent is gone, however the parent went.

The parent keeps the write end of a pipe and never writes; the child blocks on the read end. When the
parent dies, even by kill -9, the kernel closes the pipe and the child reads end-of-file. Unlike
prctl(PR_SET_PDEATHSIG) this needs no code between fork and exec, does not fire when merely the thread
that forked ends, has no race with a parent that died first, and lets the child end gently.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from daemon.exits import EX_TEMPFAIL

VARIABLE = "TRIPLETD_LIFELINE_FD"
_GRACE_S = 30.0


def open_lifeline() -> tuple[int, int]:
    """(read end for the child's pass_fds, write end the parent keeps); neither is inherited by default."""
    return os.pipe()


def follow_lifeline(grace_s: float = _GRACE_S) -> threading.Thread | None:
    """In the child: SIGTERM to itself when the parent is gone, a hard exit `grace_s` later.

    Returns None when this process was not started with a lifeline.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text.isdigit():
        return None
    thread = threading.Thread(target=_watch, args=(int(text), grace_s), name="lifeline", daemon=True)
    thread.start()
    return thread


def _watch(descriptor: int, grace_s: float) -> None:
    try:
        while os.read(descriptor, 1):
            pass
    except OSError:
        return  # not a pipe of ours: someone set the variable by hand
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(EX_TEMPFAIL)
