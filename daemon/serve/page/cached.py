"""One value computed at most every so often, however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """What `make` gives, kept for `seconds`; askers that come while it is made wait for it."""

    def __init__(
        self, make: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None

    def get(self) -> T:
        """The value; raises what `make` raises, and keeps nothing then."""
        with self._lock:
            if self._known is None or self._clock() - self._known[0] >= self._seconds:
                self._known = (self._clock(), self._make())
            return self._known[1]
