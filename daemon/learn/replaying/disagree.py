"""Where the progress that was recomputed is not what a version recorded. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints import Manifest
from daemon.learn.applying.progress import Progress


@dataclass(frozen=True, slots=True)
class EventPlace:
    """One event: partition, offset, and its id where it can be read."""

    partition: int
    offset: int
    id: str | None = None

    def __str__(self) -> str:
        named = "" if self.id is None else f", id {self.id!r}"
        return f"partition {self.partition}, offset {self.offset:,}{named}"


def other_position(found: Progress, manifest: Manifest) -> str | None:
    """The first partition that the schedule leads elsewhere than recorded, in words."""
    for partition, at in sorted(manifest.positions.items()):
        mine = found.positions.get(partition)
        if mine is None or mine.next_offset != at.next_offset:
            stands = "nowhere" if mine is None else f"{mine.next_offset:,}"
            return f"partition {partition} is recorded at {at.next_offset:,}; its schedule leads to {stands}"
    return None


def other_record(found: Progress, manifest: Manifest) -> EventPlace | None:
    """The first record before a position whose sha256 is not the recorded one."""
    for partition, at in sorted(manifest.positions.items()):
        if found.positions[partition].last_digest != at.last_digest:
            return EventPlace(partition, at.next_offset - 1)
    return None


def other_counts(found: Progress, manifest: Manifest) -> str | None:
    """The first counter, or else the watermark, that is not as recorded, in words."""
    for name in sorted({*manifest.counters, *found.counters}):
        old, new = manifest.counters.get(name, 0), found.counters.get(name, 0)
        if old != new:
            return f"counter {name}: recorded {old:,}, recomputed {new:,}"
    if manifest.watermark != found.watermark:
        return f"watermark: recorded {manifest.watermark}, recomputed {found.watermark}"
    return None
