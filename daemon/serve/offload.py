"""Work for people who look at the page, kept from hurting the answers: one thread, low priority, a budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import Any, TypeVar

from daemon.replica.refine import give_way

NICE = 10
WAITING = 8
"""Pieces of work that may wait for their turn."""
IDLE_SECONDS = 5.0
"""How long the thread stays when there is nothing to do."""
SHARE = 0.25
"""Most of the time that loading versions to be looked at, and comparing them, may go on."""
SAVED_SECONDS = 20.0
"""Work that may be done at once after a quiet time: a few large versions."""

Result = TypeVar("Result")


class Busy(Exception):
    """The work was not begun or not ended in time; ask again in `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class LowPriorityExecutor:
    """One thread of low priority that works off what it is given, one piece at a time.

    The thread ends when it has been idle; it is a daemon, so that a disk that never answers does not hold
    the process when it ends.
    """

    def __init__(self, name: str, waiting: int = WAITING) -> None:
        self._name = name
        self._work: Queue[Callable[[], None]] = Queue(waiting)
        self._lock = threading.Lock()
        self._alive = False

    def call(self, function: Callable[[], Result], turn_s: float, patience_s: float) -> Result:
        """What the function gives or raises.

        Raises Busy when its turn has not come after `turn_s`, when it takes longer than `patience_s` (it then
        goes on, nobody hears of it), or when too many wait.
        """
        begun = threading.Event()

        def work() -> Result:
            begun.set()
            return function()

        future = self.start(work)
        if not begun.wait(turn_s) and future.cancel():
            raise Busy("others are looking at the same time", turn_s)
        try:
            return future.result(patience_s)
        except TimeoutError:
            if future.done():
                raise
            raise Busy(f"there was no end within {patience_s:g} s", patience_s) from None

    def start(self, function: Callable[[], Result]) -> Future[Result]:
        """Have it done when its turn comes. Raises Busy when too many wait."""
        future: Future[Result] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                future.set_exception(error)

        self._give(work)
        return future

    def _give(self, work: Callable[[], None]) -> None:
        with self._lock:
            try:
                self._work.put_nowait(work)
            except Full:
                raise Busy("too many are looking at the same time", 1.0) from None
            if not self._alive:
                self._alive = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        give_way(NICE)
        while True:
            try:
                work: Callable[[], Any] = self._work.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._work.empty():
                        self._alive = False
                        return
                continue
            work()


class TimeBudget:
    """A budget of seconds: `share` of each second comes back, at most `most` are saved. Any thread."""

    def __init__(
        self,
        share: float = SHARE,
        most: float = SAVED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share, self._most, self._clock = share, most, clock
        self._lock = threading.Lock()
        self._left, self._at = most, clock()

    @contextmanager
    def spending(self) -> Iterator[None]:
        """For the length of the work. Raises Busy while nothing is left."""
        with self._lock:
            self._earn()
            left = self._left
        if left <= 0:
            seconds = -left / self._share + 1.0
            raise Busy("many versions were opened to be looked at just now, which is limited", seconds)
        began = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._earn()
                self._left -= self._clock() - began

    def _earn(self) -> None:
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._share)
        self._at = now
