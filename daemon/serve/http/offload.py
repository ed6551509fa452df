"""Work that may wait for a disk, off the event loop: bounded in number and in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from daemon.serve.http.errors import Problem

Result = TypeVar("Result")


class BoundedThreads:
    """At most `threads` calls at once, each waited for at most `patience_s`, its turn included.

    A call that takes longer goes on in its thread, which counts until it ends; whoever asked is told 503. The
    threads are daemons: a disk that never answers does not hold the process when it ends.
    """

    def __init__(self, threads: int, patience_s: float) -> None:
        self._turn, self._patience_s = asyncio.Semaphore(threads), patience_s

    async def run(self, function: Callable[[], Result]) -> Result:
        """What the function gives or raises. Raises Problem 503 when it takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._turn.acquire()
                return await self._start(function)
        except TimeoutError:
            message = f"there was no end within {self._patience_s:g} s"
            raise Problem(
                503, "too_slow", message, None, "look again in a moment", retry_after=True
            ) from None

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

        threading.Thread(target=work, name="tripletd-http-aside", daemon=True).start()
        return future
