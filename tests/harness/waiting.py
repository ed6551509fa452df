"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
_LOOKS = 0.2
"""The share of the time that waiting spends on looking: what is waited for needs the processor itself."""
_SHORTEST_S, _LONGEST_S = 0.01, 0.1
TRIES = 3


def until(
    happened: Callable[[], Found], what: str | Callable[[], object] = "it", seconds: float = 60.0
) -> Found:
    """What `happened` gives as soon as it is true.

    what: for the message when it never is, or tells it then. seconds: only keep a broken program from hanging
    its test.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := happened():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        rest(time.monotonic() - began)


def soon_enough(action: Callable[[], Found], seconds: float) -> Found:
    """What `action` gives, which takes less than `seconds` in one of `TRIES` tries: a busy machine may stand
    still in one, and what waits for too long does so in each.
    """
    took: list[float] = []
    for _ in range(TRIES):
        began = time.monotonic()
        found = action()
        took.append(time.monotonic() - began)
        if took[-1] < seconds:
            return found
    raise AssertionError(f"not within {seconds:g} s: {took}")


def rest(took_s: float) -> None:
    """Sleep between two looks, of which the last took `took_s`: a page of metrics costs its server 10 ms."""
    time.sleep(min(max(_SHORTEST_S, took_s * (1 / _LOOKS - 1)), _LONGEST_S))
