"""STOP and RESUME from the ledger: whether the learner should be parked now, and by what."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from checkpoints.ledger import Ledger, LedgerEntry

STOP = "STOP"
RESUME = "RESUME"
LOOK_EVERY_S = 0.3


def standing_stop(standing: LedgerEntry | None, entries: Iterable[LedgerEntry]) -> LedgerEntry | None:
    """The STOP in force after `entries` (in order), given the one before; None when learning may go on."""
    for entry in entries:
        if entry.kind == STOP:
            standing = entry
        elif entry.kind == RESUME:
            standing = None
    return standing


class Verdicts:
    """Looks at the ledger at most every `LOOK_EVERY_S` seconds and remembers what it has read."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._seen = 0
        self._looked = float("-inf")
        self._standing: LedgerEntry | None = None

    def stop_in_force(self) -> LedgerEntry | None:
        """The STOP the learner must obey now, or None."""
        now = self._clock()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            entries = self._ledger.entries(after=self._seen)
            if entries:
                self._seen = entries[-1].n
            self._standing = standing_stop(self._standing, entries)
        return self._standing
