"""One value computed at most every so often, however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """What `make` gives, kept for `seconds`; askers that come while it is made wait for it.

    What takes long to make is kept longer: making it takes at most `share` of the time.
    """

    def __init__(
        self,
        make: Callable[[], T],
        seconds: float,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._share = share
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None

    def get(self) -> T:
        """The value; raises what `make` raises, and keeps nothing then."""
        with self._lock:
            began = self._clock()
            if self._known is None or began >= self._known[0]:
                made = self._make()
                ended = self._clock()
                self._known = ended + max(self._seconds, (ended - began) / self._share), made
            return self._known[1]
