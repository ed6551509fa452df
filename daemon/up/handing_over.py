"""Which of several processes on one port takes connections from which of its listening sockets: pure.

The kernel spreads connections over all listening sockets of a port (SO_REUSEPORT), by their addresses. Each
process has a socket of its own; while one does not answer, others take from its socket as well. No socket is
ever closed, so no connection that waits in one is reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

State = Literal["gone", "starting", "ready", "not_ready", "draining"]
_ALIVE: tuple[tuple[State, ...], ...] = (("ready",), ("not_ready",), ("starting",), ("draining",))
"""Who takes connections: those of the first kind that there are. One that is not ready says why not."""


def shared_out(states: Sequence[State]) -> list[list[int]]:
    """For each process, the sockets that it takes from: its own where it can, and its share of the rest."""
    able: list[int] = []
    for kind in _ALIVE:
        able = able or [number for number, state in enumerate(states) if state in kind]
    shares: list[list[int]] = [[] for _ in states]
    for number in able:
        shares[number].append(number)
    left = [number for number in range(len(states)) if number not in able]
    for place, number in enumerate(left if able else ()):
        shares[able[place % len(able)]].append(number)
    return shares


class RollingRestart:
    """Processes are stopped and started again one after another, each when all others answer."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._left: list[int] = []
        self._under_way: tuple[int, int] | None = None

    def begin(self) -> None:
        """All of them are to be started again."""
        self._left = list(range(self._count))

    def next(self, states: Sequence[State], starts: Sequence[int]) -> int | None:
        """The process to be started again now. starts: how often each was started."""
        if self._under_way is not None:
            number, before = self._under_way
            if starts[number] == before:
                return None
            self._under_way = None
        if not self._left or any(state != "ready" for state in states):
            return None
        number = self._left.pop(0)
        self._under_way = number, starts[number]
        return number
