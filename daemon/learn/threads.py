"""The threads beside the loop: started together, and left in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from daemon.learn.errands import Errands
from daemon.learn.letters import Letters
from daemon.learn.pipeline import Reader

STOP_SECONDS = 0.4  # what they get to end after a stop: one of them may wait for a broker that is dead
END_SECONDS = 10.0  # and after the end of the stream, when nobody is in a hurry
SLICE_SECONDS = 0.02

log = structlog.get_logger("tripletd.learn")


class Part(Protocol):
    """What the three have in common."""

    name: str

    def stop(self) -> None:
        """Begin to end; returns at once."""
        ...

    def ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; whether the thread has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Threads:
    """Each owns what it talks to, and closes it."""

    reader: Reader
    errands: Errands
    letters: Letters

    def start(self) -> None:
        """Begin to read, to ask and to write dead letters."""
        for part in (self.letters, self.errands, self.reader):
            part.start()

    def leave(self, in_a_hurry: Callable[[], bool]) -> None:
        """Let them end, but wait for none for long: what matters is durable, nothing of theirs is needed."""
        began = time.monotonic()
        left: list[Part] = [self.reader, self.errands, self.letters]
        for part in left:
            part.stop()
        while left := [part for part in left if not part.ended(SLICE_SECONDS)]:
            if time.monotonic() - began > (STOP_SECONDS if in_a_hurry() else END_SECONDS):
                log.info("left behind: the stream did not answer", threads=[part.name for part in left])
                return
