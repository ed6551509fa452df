"""Work that may wait for a disk, off the event loop and away from answers: bounded in number and time.

By hand, because anyio's limiter gives a place back when its caller stops waiting, while the thread still
runs: a disk that hangs would collect threads without a bound. Here a place is taken until the thread ends.
All threads are daemons: a disk that never answers does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, Full, Queue
from typing import Any, TypeVar

from daemon.runtime.watchdog import give_way
from daemon.serve.http.errors import RETRY_AFTER_S, Problem

NICE = 10
WAITING = 8
"""Pieces of work that may wait for their turn."""
IDLE_SECONDS = 5.0
"""How long the thread stays when there is nothing to do."""
SHARE = 0.25
"""Most of the time that loading versions for the page, and comparing them, may take."""
SAVED_SECONDS = 20.0
"""Work that may be done at once after a quiet time: a few large versions."""

Result = TypeVar("Result")


class Busy(Problem):
    """The work was not begun or not ended in time (503); try again in `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(
            503, "busy", f"{message}; ask again in {seconds:.0f} s", retry_after=max(1, math.ceil(seconds))
        )
        self.seconds = seconds


class BoundedThreads:
    """Calls from the event loop: `threads` at once, `waiting` in line, each waited for at most `timeout_s`,
    its turn included.

    A call that takes longer continues in its thread, which counts until it ends; its caller gets 503.
    """

    def __init__(self, threads: int, timeout_s: float, waiting: float = math.inf) -> None:
        self._turn, self._timeout_s = asyncio.Semaphore(threads), timeout_s
        self._most, self._inside = threads + waiting, 0

    async def run(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises. Raises Problem 503: too many wait, or it takes too long."""
        if self._inside >= self._most:
            raise Busy("too many are asking at the same time", 1.0)
        self._inside += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._turn.acquire()
                return await self._start(function)
        except TimeoutError:
            message = f"it did not finish within {self._timeout_s:g} s"
            raise Problem(
                503, "too_slow", message, remedy="look again in a moment", retry_after=RETRY_AFTER_S
            ) from None
        finally:
            self._inside -= 1

    def _start(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def done(settle: Callable[[Any], None], outcome: Any) -> None:
            self._turn.release()
            if not future.done():
                settle(outcome)

        def work() -> None:
            try:
                settled: tuple[Callable[[Any], None], Any] = (future.set_result, function())
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                settled = (future.set_exception, error)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done, *settled)

        threading.Thread(target=work, name="tripletd-http-offload", daemon=True).start()
        return future


class LowPriorityExecutor:
    """One thread of low priority that works off what it is given, one piece at a time; it ends when idle."""

    def __init__(self, name: str, waiting: int = WAITING) -> None:
        self._name = name
        self._work: Queue[Callable[[], None]] = Queue(waiting)
        self._lock = threading.Lock()
        self._alive = False

    def call(self, function: Callable[[], Result], turn_s: float, timeout_s: float) -> Result:
        """What the function returns or raises.

        Raises Busy when its turn has not come after `turn_s`, when it takes longer than `timeout_s` (it then
        runs to its end unheard), or when too many wait.
        """
        begun = threading.Event()

        def work() -> Result:
            begun.set()
            return function()

        future = self.start(work)
        if not begun.wait(turn_s) and future.cancel():
            raise Busy("others are looking at the same time", turn_s)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            raise Busy(f"it did not finish within {timeout_s:g} s", timeout_s) from None

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

        with self._lock:
            try:
                self._work.put_nowait(work)
            except Full:
                raise Busy("too many are looking at the same time", 1.0) from None
            if not self._alive:
                self._alive = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

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
        self, share: float = SHARE, most: float = SAVED_SECONDS, clock: Callable[[], float] = time.monotonic
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
