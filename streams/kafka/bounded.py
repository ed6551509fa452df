"""A call that ends in time, whatever the library underneath does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Outcome(Generic[T]):
    """What a worker thread came back with, and whether anybody still waits for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.error: BaseException | None = None
        self.done = False
        self.abandoned = False


def call_within(timeout_s: float, work: Callable[[], T], discard: Callable[[T], None]) -> T:
    """What `work()` returns or raises; TimeoutError after `timeout_s`.

    A result that comes too late goes to `discard`, in the thread that made it. That thread ends when `work`
    does: whoever abandons it closes what it waits for.
    """
    outcome: _Outcome[T] = _Outcome()
    thread = threading.Thread(target=_work, args=(outcome, work, discard), name="kafka-call", daemon=True)
    thread.start()
    thread.join(timeout_s)
    with outcome.lock:
        if not outcome.done:
            outcome.abandoned = True
            raise TimeoutError(f"no answer within {timeout_s:g} s")
    thread.join()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]  # done without an error: this is the value


def _work(outcome: _Outcome[T], work: Callable[[], T], discard: Callable[[T], None]) -> None:
    value: T | None = None
    error: BaseException | None = None
    try:
        value = work()
    except BaseException as problem:  # noqa: BLE001 (raised again in the thread that waits)
        error = problem
    with outcome.lock:
        outcome.value, outcome.error, outcome.done = value, error, True
        abandoned = outcome.abandoned
    if abandoned and error is None:
        discard(value)  # type: ignore[arg-type]  # as above
