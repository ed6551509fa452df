"""Calls that end in time, whatever the library underneath does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Attempt(Generic[T]):
    """`work()` in a thread of its own, which ends when `work` does; whoever waits may wait in pieces."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._discard: Callable[[T], object] | None = None
        self._value: T
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="kafka-call", daemon=True)
        self._thread.start()

    def result(self, timeout_s: float) -> T:
        """What `work` returned or raised; TimeoutError when it is not done by then."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"no answer within {timeout_s:.1f} s")
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def abandon(self, discard: Callable[[T], object]) -> None:
        """Nobody waits any more: a result goes to `discard`, now or when it comes."""
        with self._lock:
            self._discard = discard
            late = self._done.is_set()
        if late and self._error is None:
            discard(self._value)

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._value = work()
        except BaseException as problem:  # noqa: BLE001 (raised again in the thread that waits)
            self._error = problem
        with self._lock:
            self._done.set()
            discard = self._discard
        if discard is not None and self._error is None:
            discard(self._value)


def call_within(timeout_s: float, work: Callable[[], T], discard: Callable[[T], object]) -> T:
    """What `work()` returns or raises; TimeoutError after `timeout_s`, a later result goes to `discard`."""
    attempt = Attempt(work)
    try:
        return attempt.result(timeout_s)
    except TimeoutError:
        attempt.abandon(discard)
        raise


def ignore(_: Any) -> None:
    """For results that nobody has to clean up."""
