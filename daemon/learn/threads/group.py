"""The threads beside the loop: started together, and left in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from daemon.learn.threads.errands import Errands
from daemon.learn.threads.letters import Letters
from daemon.learn.threads.part import Part
from daemon.learn.threads.reader import Reader

STOP_SECONDS = 0.4  # what they get to end after a stop: one of them may wait for a broker that is dead
END_SECONDS = 10.0  # and after the end of the stream, when nobody is in a hurry
SLICE_SECONDS = 0.02

log = structlog.get_logger("tripletd.learn")


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
