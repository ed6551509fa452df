"""The index's one writer: changes in, snapshots out, small parts merged in between. One thread at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items import snapshot
from daemon.serve.items.display import DisplayFile
from learners.block import Block, DenseBlock, SparseBlock
from streams.ids import IdColumn, Packed, join


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes. part: most of the living in a merged part, which bounds what a merge needs besides the index.
    small: parts up to here are merged whenever there are two. piece: copied between two looks at the stream.
    """

    part: int = 256 << 20
    small: int = 1 << 20
    piece: int = 4 << 20


@dataclass(frozen=True, slots=True)
class PartSize:
    """A part as the rule sees it: its serial, bytes of its living rows, share of its rows that are dead."""

    serial: int
    living: int
    dead: float


def size_of(part: snapshot.IndexPart) -> PartSize:
    """How large a part is."""
    dead = part.dead / max(1, len(part))
    return PartSize(part.serial, int(part.nbytes * (1 - dead)), dead)


def choose(parts: Sequence[PartSize], sizes: Sizes) -> tuple[int, ...]:
    """Serials of the parts to merge into one now; () for none.

    A part joins those smaller than itself once they are together as large as it is, or while it is small: so
    parts at least double in size from one to the next, and there are few. A part that is half dead is
    rewritten alone. No merge holds more living bytes than `sizes.part`.
    """
    run: list[PartSize] = []
    total = 0
    for one in sorted(parts, key=lambda part: (part.living, part.serial)):
        if total + one.living > sizes.part or (run and one.living > max(total, sizes.small)):
            break
        run.append(one)
        total += one.living
    if len(run) > 1:
        return tuple(one.serial for one in run)
    return next(((one.serial,) for one in parts if one.dead >= 0.5), ())


class Merge:
    """One merge under way: reads its source parts, which stay as they are, and writes a new one.

    Rows that are alive at its start are copied; those that die meanwhile are left to the caller
    that installs the merged part.
    """

    def __init__(self, serial: int, parts: Sequence[snapshot.IndexPart], sizes: Sizes) -> None:
        self.serial = serial
        self.parts = tuple(parts)
        self.rows = [np.flatnonzero(part.living).astype(np.int32) for part in parts]
        self.merged: snapshot.IndexPart | None = None
        """The result, once `advance` has said that it is there."""
        self._sizes = sizes
        self._pieces = self._work()

    def advance(self) -> bool:
        """Do one piece of the work; whether it is finished."""
        next(self._pieces, None)
        return self.merged is not None

    def _work(self) -> Iterator[None]:
        vectors, at = _empty_like(self.parts, self.rows), 0
        for part, rows in zip(self.parts, self.rows, strict=True):
            for chosen in _cut(rows, self._step(part)):
                _copy(part.vectors, chosen, vectors, at)
                at += len(chosen)
                yield
        ids: list[Packed] = []
        texts: list[Packed] = []
        for part, rows in zip(self.parts, self.rows, strict=True):
            for chosen in _cut(rows, self._step(part)):
                ids.append(part.ids.packed.take(chosen))
                texts.append(part.texts.take(chosen))
                yield
        joined = join(texts)
        yield
        column = IdColumn(join(ids))
        yield
        origins = tuple((part.serial, rows) for part, rows in zip(self.parts, self.rows, strict=True))
        self.merged = snapshot.IndexPart(self.serial, column, vectors, None, 0, self._tags(), joined, origins)

    def _step(self, part: snapshot.IndexPart) -> int:
        return max(1, self._sizes.piece * len(part) // max(1, part.nbytes))

    def _tags(self) -> snapshot.TagColumn:
        hashes, bearers, at = [], [], 0
        for part, rows in zip(self.parts, self.rows, strict=True):
            places = np.full(len(part), -1, np.int32)
            places[rows] = np.arange(at, at + len(rows), dtype=np.int32)
            borne, bearing = part.tags.moved(places)
            hashes.append(borne)
            bearers.append(bearing)
            at += len(rows)
        return snapshot.TagColumn(at, np.concatenate(hashes), np.concatenate(bearers))


def _cut(rows: NDArray[np.int32], step: int) -> Iterator[NDArray[np.int32]]:
    for at in range(0, len(rows), step):
        yield rows[at : at + step]


def _empty_like(parts: Sequence[snapshot.IndexPart], rows: Sequence[NDArray[np.int32]]) -> Block:
    """A block with room for these rows; row pointers of a sparse one are filled in already."""
    first, count = parts[0].vectors, sum(map(len, rows))
    if isinstance(first, DenseBlock):
        return DenseBlock(np.empty((count, first.dim), np.float32))
    lengths = [
        np.diff(part.vectors.indptr)[chosen]
        for part, chosen in zip(parts, rows, strict=True)
        if isinstance(part.vectors, SparseBlock)
    ]
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=indptr[1:])
    entries = int(indptr[-1])
    return SparseBlock(indptr, np.empty(entries, np.int32), np.empty(entries, np.float32), first.dim)


def _copy(source: Block, rows: NDArray[np.int32], out: Block, at: int) -> None:
    """Write rows of `source` to row `at` and on of `out`."""
    taken = source.take(rows)
    if isinstance(out, DenseBlock):
        out.values[at : at + len(rows)] = taken.values
        return
    assert isinstance(taken, SparseBlock)
    place = slice(int(out.indptr[at]), int(out.indptr[at + len(rows)]))
    out.indices[place], out.values[place] = taken.indices, taken.values


_serials = count(1)
"""Of parts and snapshots of this process: never used twice, whatever index they belong to."""


class ItemIndex:
    """Parts and the newest snapshot of them; every method leaves `snapshot` whole and true to all changes."""

    def __init__(self, map_id: str, shown: DisplayFile, sizes: Sizes = Sizes()) -> None:
        self._map_id, self._shown, self._sizes = map_id, shown, sizes
        self._merge: Merge | None = None
        self.merges = 0
        """Merges finished."""
        self.snapshot = self._published(())

    def load(self, rows: Iterable[snapshot.PartRows]) -> None:
        """Add the objects of a file, a part for each of the pieces given; no id may be there already."""
        made = tuple(snapshot.make_part(next(_serials), one) for one in rows)
        self.snapshot = self._published((*self.snapshot.parts, *made))

    def apply(self, changes: snapshot.Changes) -> bool:
        """Take a batch of changes in; False where it changed nothing (removals of what was not there)."""
        before = self.snapshot.parts
        parts = [snapshot.without(part, changes.touched) for part in before]
        fresh = changes.rows is not None and len(changes.rows.ids)
        if not fresh and all(new is old for new, old in zip(parts, before, strict=True)):
            return False
        if changes.rows is not None and fresh:
            parts.append(snapshot.make_part(next(_serials), changes.rows))
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
        assert merge.merged is not None
        now = {part.serial: part for part in self.snapshot.parts}
        alive = np.concatenate(
            [  # nothing lives of a part that is gone because all of it died
                now[source.serial].living[rows] if source.serial in now else np.zeros(len(rows), np.bool_)
                for source, rows in zip(merge.parts, merge.rows, strict=True)
            ]
        )
        dead = int(len(alive) - np.count_nonzero(alive))
        merged = replace(merge.merged, alive=alive if dead else None, dead=dead)
        gone = {source.serial for source in merge.parts}
        kept = [part for part in self.snapshot.parts if part.serial not in gone]
        self.snapshot = self._published([merged, *kept] if dead < len(merged) else kept)

    def _published(self, parts: Iterable[snapshot.IndexPart]) -> snapshot.IndexSnapshot:
        ordered = sorted(parts, key=lambda part: (-len(part), part.serial))
        return snapshot.IndexSnapshot(next(_serials), self._map_id, tuple(ordered), self._shown)
