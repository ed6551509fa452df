"""How far the learner is: positions, run-length coded schedule since the parent version, counters, watermark.

No I/O and no clock. One `Progress` belongs to one learning loop and changes only in `advance` and `control`;
what a version records is the frozen `Snapshot`. The schedule is appended to rather than copied because with
many slow partitions it holds tens of thousands of runs between two versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from checkpoints.manifest import Manifest, PartitionPosition, ScheduleEntry
from daemon.learn.applying.controls import damaged, moved
from daemon.versions.counters import LOSS_SUM, RECORDS, counted


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying one batch of one partition did.

    `next_offset` is one past the last record of the batch, poison included; `last_digest` is that record's
    sha256 (hex). `counts` adds to the counters (events by outcome, dead letters by reason); `losses`
    float32[n] are the hinge losses of the applied events in order; `newest_ts` their newest event time, ms.
    `damaged`: it stands for a stretch of the log that could not be read, and there is no digest.
    """

    partition: int
    next_offset: int
    last_digest: str | None
    records: int
    counts: Mapping[str, int]
    losses: npt.NDArray[np.float32]
    newest_ts: int | None = None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Progress at one event boundary, as a version records it. `entries`: the schedule since its parent."""

    positions: dict[int, PartitionPosition]
    entries: tuple[ScheduleEntry, ...]
    counters: dict[str, int | float]
    watermark: int | None


@dataclass(slots=True)
class Progress:
    """Positions, schedule since the last durable version, counters since version 0, newest event time."""

    positions: dict[int, PartitionPosition]
    counters: dict[str, int | float] = field(default_factory=dict)
    watermark: int | None = None
    _entries: list[ScheduleEntry] = field(default_factory=list)
    _sealed: int = 0  # runs before this index belong to a captured snapshot: never extended

    @classmethod
    def of_version(cls, manifest: Manifest) -> Self:
        """The progress a version stands at."""
        return cls(dict(manifest.positions), dict(manifest.counters), manifest.watermark)

    @property
    def records(self) -> int:
        """Records passed since version 0, poison included: what `checkpoints.every_events` counts."""
        return counted(self.counters, RECORDS)

    @property
    def moved(self) -> bool:
        """Whether anything happened since the last durable version."""
        return bool(self._entries)

    def next_offsets(self) -> dict[int, int]:
        """Next offset to read, per partition."""
        return {partition: position.next_offset for partition, position in self.positions.items()}

    def last_digests(self) -> dict[int, str]:
        """sha256 (hex) of the last record learned, per partition that has one right before its position."""
        return {p: at.last_digest for p, at in self.positions.items() if at.last_digest is not None}

    def advance(self, applied: Applied) -> None:
        """Move past one batch. Only call it once the batch is applied and its dead letters are durable."""
        start = self.positions[applied.partition].next_offset
        if applied.next_offset <= start:
            raise ValueError(f"partition {applied.partition} at {start} cannot move to {applied.next_offset}")
        if applied.damaged:
            self.control(damaged(applied.partition, start, applied.next_offset))
        else:
            self._append_run(applied.partition, start, applied.next_offset)
        self.positions[applied.partition] = PartitionPosition(applied.next_offset, applied.last_digest)
        for name, count in applied.counts.items():
            self.counters[name] = self.counters.get(name, 0) + count
        self.counters[RECORDS] = self.records + applied.records
        self.counters[LOSS_SUM] = add_in_order(float(self.counters.get(LOSS_SUM, 0.0)), applied.losses)
        if applied.newest_ts is not None:
            self.watermark = (
                applied.newest_ts if self.watermark is None else max(self.watermark, applied.newest_ts)
            )

    def control(self, entry: dict[str, Any]) -> None:
        """Record a control entry, and take the positions it sets."""
        self._entries.append(entry)
        self._sealed = len(self._entries)
        self.positions = moved(entry, self.positions)

    def snapshot(self) -> Snapshot:
        """What a version records now. Later runs are kept apart from the captured ones, for `published`."""
        self._sealed = len(self._entries)
        return Snapshot(dict(self.positions), tuple(self._entries), dict(self.counters), self.watermark)

    def published(self, snapshot: Snapshot) -> None:
        """The snapshot is durable: it is the parent now, and its part of the schedule is forgotten."""
        del self._entries[: len(snapshot.entries)]
        self._sealed = max(0, self._sealed - len(snapshot.entries))

    def _append_run(self, partition: int, start: int, stop: int) -> None:
        last = self._entries[-1] if len(self._entries) > self._sealed else None
        if isinstance(last, tuple) and last[0] == partition and last[2] == start:
            self._entries[-1] = (partition, last[1], stop)
        else:
            self._entries.append((partition, start, stop))


def add_in_order(total: float, losses: npt.NDArray[np.float32]) -> float:
    """`total` plus each loss in order, in float64, so that the sum does not depend on the batch sizes."""
    if losses.size == 0:
        return total
    return float(np.cumsum(np.concatenate(([total], losses.astype(np.float64))))[-1])
