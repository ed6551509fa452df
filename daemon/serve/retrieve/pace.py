"""Giving way: long work beside answers is cut into short pieces, with a rest after each while questions come.

A thread of low priority is not enough. A system preempts a computing thread for one that wakes up, but not
always at once: on Linux it may run to the next tick, 4 ms at 250 Hz, and a question wakes up half a dozen
threads one after the other. Who computes half a millisecond and sleeps is in nobody's way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

PIECE_S = 0.0005
ALONE_S = 0.01
"""How long a piece may take while questions come, and while nobody asks."""
ASKED_S = 1.0
"""For how long after a question the next one is expected."""


class Pace:
    """Cuts work into pieces by how long the last one took. Any thread; `pieces` once per piece of work."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._asked_at = float("-inf")

    def asked(self) -> None:
        """A question has come."""
        self._asked_at = self._clock()

    def pieces(self, count: int) -> Iterator[slice]:
        """Slices of range(count), in order, the first one of 1; after each a rest as long as it took, where
        a question came within ASKED_S.
        """
        start, size = 0, 1
        while start < count:
            began = self._clock()
            yield slice(start, min(start + size, count))
            start += size
            spent = self._clock() - began
            busy = self._clock() - self._asked_at < ASKED_S
            if busy:
                self._sleep(spent)
            size = next_size(size, spent, PIECE_S if busy else ALONE_S)


def next_size(size: int, spent_s: float, wanted_s: float) -> int:
    """The size that would have taken `wanted_s`, at most twice the last one, at least 1."""
    return max(1, min(2 * size, int(size * wanted_s / max(spent_s, 1e-9))))
