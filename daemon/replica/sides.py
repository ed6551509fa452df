"""Left-right: two sides of which readers use one while the writer works on the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Sides(Generic[T]):
    """Two preallocated values; `read` gives the active one, the single writer changes the idle one."""

    def __init__(self, left: T, right: T) -> None:
        raise NotImplementedError

    @contextmanager
    def read(self) -> Iterator[T]:
        """The active side; it does not change inside the block. Microseconds, never blocks on the writer."""
        raise NotImplementedError

    @property
    def idle(self) -> T:
        """The side for the writer; free to be changed once `drain` said so."""
        raise NotImplementedError

    def flip(self) -> None:
        """Make the idle side active, for readers who come from now on. Writer only."""
        raise NotImplementedError

    def drain(self, timeout_s: float) -> bool:
        """Wait until nobody reads the idle side any more; False when somebody still does after the time."""
        raise NotImplementedError
