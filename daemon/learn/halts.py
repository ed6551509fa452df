"""What stops the learner from learning: a STOP of the validator, or its own pause because of poison.

Both are ledger entries, so they outlast a restart, and another process lifts them. A pause is lifted only
by a RESUME for it. Records before the place of the pause then no longer count, so that the same ones do not
cause another pause, now or after a restart; the records of another topic do count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from checkpoints import PAUSE, Ledger, LedgerEntry, VersionStore, stop_in_force
from checkpoints.store import CheckpointError
from daemon.learn.step import ReadyBatch
from daemon.versions.contents import POISON, REJECTED, counted, records_of


class PoisonGate:
    """The share of dead letters among the newest `window` records, and whether it is above `share`.

    Records before `forgive`'s positions do not count: somebody has looked at them and resumed learning.
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
        """Start counting again: nothing counts below these next offsets per partition."""
        self._batches.clear()
        self._records, self._dead = 0, 0.0
        self._forgiven = dict(positions)

    def forgives(self, positions: Mapping[int, int]) -> bool:
        """Whether records at these positions come before those that count."""
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


LOOK_EVERY_S = 0.3
LEARN = "learn"
POSITIONS = "positions"
TOPIC_ID = "topic_id"
NOT_WRITTEN = 0  # entries are numbered from 1

log = structlog.get_logger("tripletd.learn")


def is_pause(entry: LedgerEntry) -> bool:
    """Whether a STOP is the learner's own pause."""
    return PAUSE in entry.measures


class Halts:
    """Looks at the ledger at most every `LOOK_EVERY_S` seconds and remembers what it has read."""

    def __init__(
        self,
        ledger: Ledger,
        gate: PoisonGate,
        positions: Callable[[], Mapping[int, int]],
        clock: Callable[[], float],
        topic_id: str,
    ) -> None:
        self._topic_id = topic_id
        self._ledger = ledger
        self._gate = gate
        self._positions = positions
        self._clock = clock
        self._seen = 0
        self._looked = float("-inf")
        self._stop: LedgerEntry | None = None
        self._pause: LedgerEntry | None = None

    def in_force(self) -> LedgerEntry | None:
        """The STOP or pause that the learner must obey now, or None."""
        if self._clock() - self._looked >= LOOK_EVERY_S:
            self._looked = self._clock()
            self._look()
            if self._pause is not None and self._pause.n == NOT_WRITTEN:
                self._write_pause(self._pause.reason)
        why = self._gate.too_much()
        if why is not None and self._pause is None:
            self._write_pause(why)
        return self._pause or self._stop

    def passed(self, ready: ReadyBatch, dead: int) -> None:
        """A batch is learned, `dead` of its records became dead letters."""
        self._gate.passed(ready.polled.partition, ready.polled.offsets[0], ready.records, dead)

    @property
    def poison_share(self) -> float:
        """Dead letters among the newest records."""
        return self._gate.share

    def _look(self) -> None:
        entries = self._ledger.poll(after=self._seen, report=_passed_over)
        if not entries:
            return
        self._seen = entries[-1].n
        self._stop = stop_in_force(entries, self._stop)
        for entry in filter(is_pause, entries):
            if entry.kind == "STOP":
                self._pause = entry
            elif entry.kind == "RESUME" and self._pause is not None:
                self._gate.forgive(_positions_of(self._pause, self._topic_id))
                self._pause = None

    def _write_pause(self, why: str) -> None:
        """Pause, and make it outlast a restart; tried again at every look while the disk refuses."""
        at = {str(partition): offset for partition, offset in sorted(self._positions().items())}
        entry: dict[str, Any] = {"kind": "STOP", "by": LEARN, "reason": why}
        entry["measures"] = {PAUSE: POISON, POSITIONS: at, TOPIC_ID: self._topic_id}
        try:
            self._pause = self._ledger.append(entry)
        except CheckpointError as error:
            if self._pause is None:
                log.error("the pause could not be written to the ledger", error=str(error))
            self._pause = LedgerEntry(n=NOT_WRITTEN, **entry)


def remember_poison(gate: PoisonGate, versions: VersionStore, newest: int, topic_id: str) -> None:
    """Count what the newest versions say of the records before them: no restart walks on through poison.

    Goes back from `newest`, parent by parent, until the window is full, a version cannot be read, or learned
    from another topic.
    """
    spans: list[tuple[int, int]] = []
    try:
        version = versions.manifest(newest)
        while version.parent is not None and sum(records for records, _ in spans) < gate.window:
            parent = versions.manifest(version.parent)
            offsets = {p: at.next_offset for p, at in parent.positions.items()}
            if parent.stream.get(TOPIC_ID) != topic_id or gate.forgives(offsets):
                break
            dead = counted(version.counters, POISON, REJECTED) - counted(parent.counters, POISON, REJECTED)
            spans.append((records_of(version) - records_of(parent), dead))
            version = parent
    except CheckpointError:  # pruned or damaged: what is known counts
        pass
    for records, dead in reversed(spans):
        gate.count(records, dead)


def _positions_of(pause: LedgerEntry, topic_id: str) -> dict[int, int]:
    """Where it was made; nothing when that was in another topic, or somebody else wrote the entry."""
    found = pause.measures.get(POSITIONS)
    if not isinstance(found, Mapping) or pause.measures.get(TOPIC_ID, topic_id) != topic_id:
        return {}
    return {int(p): at for p, at in found.items() if str(p).isdecimal() and isinstance(at, int)}


def _passed_over(error: CheckpointError) -> None:
    log.warning("verdict passed over", error=str(error))
