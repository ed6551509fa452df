"""When so much of the stream is poison that learning had better pause. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


class PoisonGate:
    """The share of dead letters among the newest `window` records, and whether it is above `share`.

    Records before `forgive`'s positions do not count: somebody has looked at those and said to go on.
    """

    def __init__(self, share: float, window: int) -> None:
        self._limit = share
        self.window = window
        self._batches: deque[tuple[int, float]] = deque()
        self._records = 0
        self._dead = 0.0
        self._forgiven: dict[int, int] = {}

    @property
    def share(self) -> float:
        """Dead letters among the records that count; 0 without any."""
        return self._dead / self._records if self._records else 0.0

    def forgive(self, positions: Mapping[int, int]) -> None:
        """Begin anew: nothing counts below these next offsets per partition."""
        self._batches.clear()
        self._records, self._dead = 0, 0.0
        self._forgiven = dict(positions)

    def forgives(self, positions: Mapping[int, int]) -> bool:
        """Whether a learner that stands there is before the place from which records count."""
        return any(at < self._forgiven.get(partition, 0) for partition, at in positions.items())

    def passed(self, partition: int, first_offset: int, records: int, dead: int) -> None:
        """Count one batch of a partition, learned just now."""
        if not self.forgives({partition: first_offset}):
            self.count(records, dead)

    def count(self, records: int, dead: int) -> None:
        """Count a batch, which is newer than all before. Of the oldest that no longer fits in the window as a
        whole, a part counts, as if its dead letters were spread evenly.
        """
        self._batches.append((records, dead))
        self._records += records
        self._dead += dead
        while (excess := self._records - self.window) > 0:
            old_records, old_dead = self._batches.popleft()
            kept = max(0, old_records - excess)
            dead_kept = old_dead * kept / old_records
            self._records -= old_records - kept
            self._dead -= old_dead - dead_kept
            if kept:
                self._batches.appendleft((kept, dead_kept))

    def too_much(self) -> str | None:
        """Why to pause, in words; None while there is no reason or too few records to tell."""
        if self._records < self.window or self.share <= self._limit:
            return None
        return f"{self._dead:,.0f} of the last {self._records:,} records are dead letters"
