"""STOP and RESUME from the ledger: whether the learner should be parked now, and by what."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from checkpoints.aliases import stop_in_force
from checkpoints.errors import CheckpointError
from checkpoints.ledger import Ledger, LedgerEntry

LOOK_EVERY_S = 0.3

log = structlog.get_logger("tripletd.learn")


def _passed_over(error: CheckpointError) -> None:
    log.warning("verdict passed over", error=str(error))


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
            entries = self._ledger.entries(after=self._seen, report=_passed_over)
            if entries:
                self._seen = entries[-1].n
            self._standing = stop_in_force(entries, self._standing)
        return self._standing
