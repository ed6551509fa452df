"""A thread that notices when another one is stuck, and ends the process so that it is started again.

It depends on nothing that could be stuck with the others: it takes no lock of theirs, calls no client and
writes no log; it reads two attributes per watched thread. What it counts is its own turns, not a clock: a
process that was suspended (SIGSTOP, a closed laptop) has silence in nobody's account. A thread that computes
or waits for a disk says so beforehand (`Pulse.patient`), for that takes as long as it takes.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from daemon.exits import EX_SOFTWARE

TURN_S = 0.5
DUMP_SECONDS = 5.0  # standard error may be a pipe that nobody reads: the end must come all the same


class Pulse:
    """One thread's signs of life: written by that thread alone, read by the watchdog."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.beats = 0
        self.doing = "starting"
        self.is_patient = True

    def beat(self, doing: str) -> None:
        """The thread moves; from now on it does something that ends by itself within seconds."""
        self.doing, self.is_patient = doing, False
        self.beats += 1

    @contextmanager
    def patient(self, doing: str) -> Iterator[None]:
        """Around what may take any time by its nature: computing, or waiting for a disk."""
        before, self.doing, self.is_patient = (self.doing, self.is_patient), doing, True
        try:
            yield
        finally:
            self.doing, self.is_patient = before
            self.beats += 1

    def rest(self) -> None:
        """The thread has ended, or waits for work without a limit: silence means nothing."""
        self.doing, self.is_patient = "resting", True
        self.beats += 1


class Watchdog:
    """Watches pulses from a thread of its own; a context manager.

    Args:
        stuck_after_s: silence of one thread after which the process is ended.
        feed: called every turn in which nobody is near that limit (systemd's watchdog).
        bark: ends the process; gets the name of the thread, what it does and the seconds of silence.
    """

    def __init__(
        self,
        stuck_after_s: float,
        feed: Callable[[], None] = lambda: None,
        bark: Callable[[str, str, float], None] | None = None,
    ) -> None:
        self._stuck_after_s = stuck_after_s
        self._feed = feed
        self._bark = bark or dump_and_exit
        self._pulses: list[Pulse] = []
        self._seen: dict[Pulse, tuple[int, int]] = {}  # beats, and own turns since they changed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tripletd-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join()

    def watch(self, name: str) -> Pulse:
        """A pulse to be kept beating; until its first beat its silence means nothing."""
        pulse = Pulse(name)
        self._pulses.append(pulse)
        return pulse

    def silent(self) -> str | None:
        """Which thread has been silent for half the limit, in words; None when all move."""
        for pulse in self._pulses:
            seconds = self._silence(pulse)
            if seconds >= self._stuck_after_s / 2:
                return f"{pulse.name} has not moved for {seconds:.0f} s ({pulse.doing})"
        return None

    def turn(self) -> None:
        """One look at every pulse; barks at the first that is stuck."""
        for pulse in self._pulses:
            beats, turns = self._seen.get(pulse, (-1, 0))
            moved = pulse.beats != beats or pulse.is_patient
            self._seen[pulse] = (pulse.beats, 0 if moved else turns + 1)
            if self._silence(pulse) >= self._stuck_after_s:
                self._bark(pulse.name, pulse.doing, self._silence(pulse))
        if self.silent() is None:
            self._feed()

    def _silence(self, pulse: Pulse) -> float:
        return self._seen.get(pulse, (0, 0))[1] * TURN_S

    def _run(self) -> None:
        while not self._ending.wait(TURN_S):
            self.turn()


def dump_and_exit(name: str, doing: str, seconds: float) -> None:
    """Every thread's stack to standard error, then the end (70), whether or not anybody reads it."""
    writer = threading.Thread(target=_dump, args=(name, doing, seconds), daemon=True)
    writer.start()
    writer.join(DUMP_SECONDS)
    os._exit(EX_SOFTWARE)


def _dump(name: str, doing: str, seconds: float) -> None:
    text = (
        f"tripletd: stuck: {name} has not moved for {seconds:.0f} s ({doing}); the stacks of all threads:\n"
    )
    with suppress(OSError, ValueError):
        os.write(2, text.encode())
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
