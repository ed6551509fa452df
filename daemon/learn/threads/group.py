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
STEPS_SECONDS = 2.0  # but no longer for the step log alone: replicas can do without its end
SLICE_SECONDS = 0.02

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Threads:
    """Each owns what it talks to, and closes it. `steps`: what nobody waits for, however slow it is."""

    reader: Reader
    errands: Errands
    letters: Letters
    steps: Part | None = None

    def start(self) -> None:
        """Begin to read, to ask, to write dead letters and steps."""
        for part in (self.letters, self.steps, self.errands, self.reader):
            if part is not None:
                part.start()

    def leave(self, in_a_hurry: Callable[[], bool]) -> None:
        """Let them end, but wait for none for long: what matters is durable, nothing of theirs is needed."""
        began = time.monotonic()
        left: list[Part] = [part for part in (self.reader, self.errands, self.letters, self.steps) if part]
        for part in left:
            part.stop()
        while left := [part for part in left if not part.ended(SLICE_SECONDS)]:
            waited = time.monotonic() - began
            patience = STEPS_SECONDS if left == [self.steps] else END_SECONDS
            if waited > (STOP_SECONDS if in_a_hurry() else patience):
                log.info("left behind: the stream did not answer", threads=[part.name for part in left])
                return
