"""Signals of a role (stop gently, stop at once, checkpoint now, reload, show the stacks), the lifeline to
whoever started it, and how its process ends.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from daemon.exits import EX_TEMPFAIL
from daemon.runtime.leaving import ROLES, leave_at_once

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2


class Signals:
    """Flags a loop looks at between batches; a context manager that restores the old handlers.

    First SIGTERM or SIGINT: `stopping` becomes true (finish the batch, checkpoint, exit 0).
    Second: the process exits at once with 128 + the signal's number.
    SIGUSR1: `take_checkpoint_request` answers true once; SIGHUP: so does `take_reload_request`, unless the
    terminal was closed, which is a stop. SIGUSR2: every thread's stack to stderr.
    Must be entered in the main thread; elsewhere it only keeps the flags (`request_stop`).

    A handler may interrupt the very call that waits for it, so nothing here takes a lock that is not free for
    handlers: an Event would hang the process, were the signal to come while its own lock is held.

    Args:
        leave_at_once: until `finish_first` there is nothing to finish, and much that may wait for a network:
            a stop ends the process at once, with 0 (SIGINT: 130).
    """

    def __init__(self, leave_at_once: bool = False) -> None:
        self._at_once = leave_at_once
        self._stop = self._checkpoint = self._reload = False
        self._news = threading.Lock()  # free when something came that `wait` has not seen
        self._news.acquire()
        self._listeners: list[Callable[[], object]] = []
        self._terminal = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._terminal = os.isatty(_STDERR)
            for number in _STOPPING:
                self._previous[number] = signal.signal(number, self._on_stop)
            self._previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_checkpoint)
            self._previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._on_hangup)
            with suppress(RuntimeError, ValueError, AttributeError):  # standard error has no descriptor
                faulthandler.register(signal.SIGUSR2, all_threads=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            faulthandler.unregister(signal.SIGUSR2)
        self._previous.clear()

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end after this batch."""
        return self._stop

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to `timeout_s`, less when anything arrives; whether the loop is to end."""
        if not self._stop:
            self._news.acquire(timeout=max(0.0, timeout_s))
        return self._stop

    def listen(self, listener: Callable[[], object]) -> None:
        """Have `listener` called whenever something arrives, also in the midst of a signal's handler: it may
        take no lock.
        """
        self._listeners.append(listener)

    def finish_first(self) -> None:
        """From now on there is something to finish before the process ends."""
        self._at_once = False

    def request_stop(self) -> None:
        """What a first SIGTERM does to a loop."""
        self._stop = True
        self._tell()

    def request_reload(self) -> None:
        """What SIGHUP does."""
        self._reload = True
        self._tell()

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        if not self._checkpoint:
            return False
        self._checkpoint = False
        return True

    def take_reload_request(self) -> bool:
        """Whether a reload was asked for since the last call."""
        if not self._reload:
            return False
        self._reload = False
        return True

    def _tell(self) -> None:
        with suppress(RuntimeError):  # free already
            self._news.release()
        for listener in self._listeners:
            listener()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._at_once:
            leave_at_once(number, frame)
        if self._stop:
            os._exit(128 + number)
        self.request_stop()

    def _on_checkpoint(self, number: int, frame: FrameType | None) -> None:
        self._checkpoint = True
        self._tell()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._terminal and not os.isatty(_STDERR):
            self._on_stop(signal.SIGTERM, frame)
        else:
            self.request_reload()


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


def follow_lifeline(grace_s: float = _GRACE_S) -> threading.Thread | None:
    """In the child: SIGTERM to itself when the parent is gone, a hard exit `grace_s` later.

    Returns None when this process was not started with a lifeline.
    """
    text = os.environ.pop(LIFELINE, "")
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
