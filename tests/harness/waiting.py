"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(
    happened: Callable[[], Found], what: str | Callable[[], object] = "it", seconds: float = 60.0
) -> Found:
    """What `happened` gives as soon as it is true.

    what: for the message when it never is, or tells it then. seconds: only keep a broken program from hanging
    its test.
    """
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return found
