"""The writer's side of the index: changes in, snapshots out, merges in between. One thread at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.display import DisplayFile
from daemon.serve.items.merging import Merge, Sizes, choose, size_of
from daemon.serve.items.parts import Changes, Rows, make_part, without
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot

_serials = count(1)
"""Of parts and snapshots of this process: never used twice, whatever index they belong to."""


class ItemIndex:
    """Parts and the newest snapshot of them; every method leaves `snapshot` whole and true to all changes."""

    def __init__(self, map_id: str, shown: DisplayFile, sizes: Sizes | None = None) -> None:
        self._map_id = map_id
        self._shown = shown
        self._sizes = sizes or Sizes()
        self._merge: Merge | None = None
        self.merges = 0
        """Merges finished."""
        self.snapshot = self._published(())

    def load(self, rows: Iterable[Rows]) -> None:
        """Add the objects of a file, a part for each of the pieces given; no id may be there already."""
        made = tuple(make_part(next(_serials), one) for one in rows)
        self.snapshot = self._published((*self.snapshot.parts, *made))

    def apply(self, changes: Changes) -> bool:
        """Take a batch of changes in; False where it changed nothing (removals of what was not there)."""
        before = self.snapshot.parts
        parts = [without(part, changes.touched) for part in before]
        fresh = changes.rows is not None and len(changes.rows.ids)
        if not fresh and all(new is old for new, old in zip(parts, before, strict=True)):
            return False
        if changes.rows is not None and fresh:
            parts.append(make_part(next(_serials), changes.rows))
        self.snapshot = self._published(part for part in parts if part.dead < len(part))
        return True

    def work(self) -> bool:
        """One bounded piece of merging, the last of which gives a new snapshot; False without any to do."""
        if self._merge is None:
            serials = choose([size_of(part) for part in self.snapshot.parts], self._sizes)
            if not serials:
                return False
            chosen = [part for part in self.snapshot.parts if part.serial in serials]
            self._merge = Merge(next(_serials), chosen, self._sizes)
        elif self._merge.advance():
            self._install(self._merge)
            self._merge = None
            self.merges += 1
        return True

    def _install(self, merge: Merge) -> None:
        """Put the merged part in place of its sources, with what died in them meanwhile dead."""
        assert merge.merged is not None
        now = {part.serial: part for part in self.snapshot.parts}
        alive = np.concatenate(
            [
                _alive(now.get(source.serial), rows)
                for source, rows in zip(merge.parts, merge.rows, strict=True)
            ]
        )
        dead = int(len(alive) - np.count_nonzero(alive))
        merged = replace(merge.merged, alive=alive if dead else None, dead=dead)
        gone = {source.serial for source in merge.parts}
        kept = [part for part in self.snapshot.parts if part.serial not in gone]
        self.snapshot = self._published([merged, *kept] if dead < len(merged) else kept)

    def _published(self, parts: Iterable[IndexPart]) -> IndexSnapshot:
        """A snapshot of these parts, the largest first."""
        ordered = sorted(parts, key=lambda part: (-len(part), part.serial))
        return IndexSnapshot(next(_serials), self._map_id, tuple(ordered), self._shown)


def _alive(part: IndexPart | None, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which of these rows of a part still live; none of a part that is gone because all of it died."""
    if part is None:
        return np.zeros(len(rows), np.bool_)
    return np.ones(len(rows), np.bool_) if part.alive is None else part.alive[rows]
