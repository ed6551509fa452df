"""Left-right: two sides of which readers use one while the one writer works on the other.

After Ramalhete and Correia, "Left-Right: a concurrency control technique with wait-free population oblivious
reads" (2015): readers announce themselves on the active side; the writer changes the idle side, makes it the
active one, and waits until the last reader of the old side has left before it touches that. Nothing is
allocated, and a reader never waits for the writer's work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Sides(Generic[T]):
    """Two preallocated values: `read` gives the active one, the single writer changes the idle one.

    A side is free for the writer from `drain() == True` on until the next `flip`. At the start both are
    unread, so `idle` is free.
    """

    def __init__(self, left: T, right: T) -> None:
        self._sides = (left, right)
        self._active = 0
        self._readers: tuple[dict[object, tuple[str, float]], ...] = ({}, {})
        self._changed = threading.Condition(threading.Lock())

    @contextmanager
    def read(self) -> Iterator[T]:
        """The active side, which does not change inside the block.

        The lock is held for a few assignments only, never while the writer works or waits.
        """
        me = object()
        entry = (threading.current_thread().name, time.monotonic())
        with self._changed:
            side = self._active
            self._readers[side][me] = entry
        try:
            yield self._sides[side]
        finally:
            with self._changed:
                readers = self._readers[side]
                del readers[me]
                if not readers:
                    self._changed.notify_all()

    @property
    def active(self) -> T:
        """The side that readers get. For the writer, who alone decides when that changes."""
        return self._sides[self._active]

    @property
    def idle(self) -> T:
        """The other side. To be changed by the writer alone, and only once `drain` said that it is free."""
        return self._sides[1 - self._active]

    def flip(self) -> None:
        """Give the idle side to readers who come from now on; those inside stay where they are.

        RuntimeError when the idle side still has readers: one of them could then stay through two flips and
        meet the writer.
        """
        with self._changed:
            if self._readers[1 - self._active]:
                raise RuntimeError("the idle side still has readers: drain it before flipping")
            self._active = 1 - self._active

    def drain(self, timeout_s: float) -> bool:
        """Wait until nobody reads the idle side; False when somebody still does after `timeout_s` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._readers[1 - self._active], timeout_s)

    def lingering(self, longer_than_s: float = 0.0) -> list[str]:
        """Who reads the idle side for at least so long: "name of the thread, 12.3 s" each, longest first."""
        now = time.monotonic()
        with self._changed:
            inside = [(now - since, name) for name, since in self._readers[1 - self._active].values()]
        return [f"{name}, {age:.1f} s" for age, name in sorted(inside, reverse=True) if age >= longer_than_s]
