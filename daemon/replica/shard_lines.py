"""What the steps of several learners mean for a replica of their merged version: it adds the steps of all.

A merged version says which version of each shard it holds; from the cut of that one on, the shard's steps are
taken. The replica is then

    W + sum over the shards of their steps since,

which is none of the shards' W, so nothing is compared. A shard whose steps cannot be followed is left out
until the next merged version; the others go on. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from daemon.replica.decide import Apply, Lost, SegmentMeaning, WriterLine
from daemon.versions.shards import MergeRecord
from streams.steps.segment import Segment


class ShardLines:
    """As `daemon.replica.decide.WriterLine`, for all writers of a merged version."""

    relabels = False
    """Whether a newer version may be what the replica has already: never here."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], WriterLine] = {}
        self._active: dict[tuple[int, int], tuple[WriterLine, int]] = {}
        self._version = self._base_records = 0
        self.lost = False

    @property
    def joined(self) -> bool:
        """Whether steps of any shard are being taken."""
        return not self.lost and any(line.joined for line, _ in self._active.values())

    def begin(self, version: int, records: int, record: MergeRecord) -> int | None:
        """Stand at a merged version that was loaded: its number, its records, what it holds of the shards.

        The offset to read on from where all their cuts were passed by already; None: look for them.
        """
        self._version, self._base_records, self.lost = version, records, False
        self._active, offsets = {}, []
        for part in record.parts:
            key = (part.shard, record.of)
            line = self._lines.setdefault(key, WriterLine(compares=False))
            offsets.append(line.begin(part.version, part.records, part.writer))
            self._active[key] = line, part.records
        self._lines = {key: line for key, line in self._lines.items() if key in self._active}
        known = [offset for offset in offsets if offset is not None]
        return min(known) if known and len(known) == len(offsets) else None

    def hear(self, segment: Segment, next_offset: int) -> SegmentMeaning:
        """What the segment means; `next_offset` is the offset behind its last record."""
        for line, _ in self._active.values():
            meaning = line.hear(segment, next_offset)
            if isinstance(meaning, Apply):
                whole = all(one.whole for one, _ in self._active.values())
                return replace(meaning, records=self._records, whole=whole)
            if isinstance(meaning, Lost) and meaning.reason == "writer":
                return self.lose("writer", self._version)
        return None

    def at_cut(self, digest: str) -> None:
        """Nothing is compared."""

    def mark_shown(self) -> None:
        """What was taken of each shard is in answers now."""
        for line, _ in self._active.values():
            line.mark_shown()

    def lose(self, reason: str, reload: int | None = None) -> Lost:
        """Left, as where the replica failed to apply the steps or the log could not be read further."""
        self.lost = True
        return Lost(reason, reload)

    @property
    def _records(self) -> int:
        """The merged version's, and of each shard what was taken since."""
        taken = (line.records - first for line, first in self._active.values() if line.records > first)
        return self._base_records + sum(taken)
