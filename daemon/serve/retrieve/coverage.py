"""Which objects of a snapshot are in which graph, found by their content; and what to build next. Pure.

A graph knows the hashes of its rows and nothing of parts, ids or versions. So one rule serves objects of a
file, of the topic, of a merged part, and of a graph that was left by a process that is gone: a row is in a
graph if the graph holds a row of the same bits that no other object has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from learners.block import DenseBlock, Int64s
from learners.graph import Graph, hashes_of

PIECE = 1 << 14
"""Rows whose hashes are computed at once: under 10 ms."""

TRIED = 16
"""Rows of the same bits, of the part's rarest, at which it is looked for."""

Labels = NDArray[np.int32]
"""Rows of a graph; -1 for none."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NamedGraph:
    """A graph under the name of its folder. order: int64 [N], its rows by hash; ordered: their hashes."""

    name: str
    graph: Graph
    order: Int64s
    ordered: NDArray[np.uint64]

    @classmethod
    def of(cls, name: str, graph: Graph) -> NamedGraph:
        """Ready to be looked up."""
        order = np.argsort(graph.hashes, kind="stable")
        return cls(name, graph, order, graph.hashes[order])

    def labels_of(self, hashes: NDArray[np.uint64]) -> Labels | None:
        """For each row of a part its row here, int32 [n], each once; None where no row is here."""
        left = np.searchsorted(self.ordered, hashes)
        there = self.ordered[np.minimum(left, len(self.ordered) - 1)] == hashes
        if not there.any():
            return None
        first = self._run(hashes, left) if there.all() else None
        if first is not None:
            return np.arange(first, first + len(hashes), dtype=np.int32)
        by_hash = np.argsort(hashes, kind="stable")
        arranged = hashes[by_hash]
        rank = np.empty(len(hashes), np.int64)  # of a row among those of the same bits
        rank[by_hash] = np.arange(len(hashes)) - np.searchsorted(arranged, arranged)
        at = left + rank
        inside = np.minimum(at, len(self.ordered) - 1)
        there = (at < len(self.ordered)) & (self.ordered[inside] == hashes)
        return np.where(there, self.order[inside], -1).astype(np.int32)

    def _run(self, hashes: NDArray[np.uint64], left: Int64s) -> int | None:
        """Where these rows stand here one behind the other, None if they do not. So each of two parts that
        have objects of the same bits finds its own rows. left: where each hash is first in `ordered`."""
        same = np.searchsorted(self.ordered, hashes, side="right") - left
        rarest = int(np.argmin(same))
        for at in self.order[left[rarest] : left[rarest] + min(int(same[rarest]), TRIED)].tolist():
            first = at - rarest
            if first >= 0 and np.array_equal(self.graph.hashes[first : first + len(hashes)], hashes):
                return int(first)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """Where the rows of graphs are in a snapshot's parts.

    graphs: those that hold any of its rows. serials: parts of which any row is in a graph; starts: int64 [m +
    1], where each would begin if they stood one behind the other. places: for each graph int64 [N], where its
    row stands there, -1 where no object has it. tails: of each of these parts the rows that are in no graph.
    whole: parts of which all rows stand in one graph in their order: which graph, and at which row they
    begin.
    """

    graphs: tuple[NamedGraph, ...]
    serials: tuple[int, ...]
    starts: Int64s
    places: tuple[Int64s, ...]
    tails: Mapping[int, Int64s]
    whole: Mapping[int, tuple[int, int]]


NOTHING = Covered((), (), np.zeros(1, np.int64), (), {}, {})


@dataclass(slots=True)
class Coverage:
    """Follows snapshots. One thread at a time; what it gives never changes."""

    graphs: tuple[NamedGraph, ...] = ()
    _labels: dict[tuple[int, str], Labels | None] = field(default_factory=dict)
    _hashes: dict[int, NDArray[np.uint64]] = field(default_factory=dict)
    _key: tuple[object, ...] = ()
    _last: Covered = NOTHING

    def use(self, graphs: Sequence[NamedGraph]) -> None:
        """These graphs from now on."""
        self.graphs = tuple(graphs)

    def of(self, snapshot: IndexSnapshot, rest: Callable[[], None] = lambda: None) -> Covered:
        """Where the rows of all graphs are in this snapshot. rest: called between pieces of work."""
        if not self.graphs:
            return NOTHING
        parts = [part for part in snapshot.parts if isinstance(part.vectors, DenseBlock)]
        serials, names = {part.serial for part in parts}, {one.name for one in self.graphs}
        for part in parts:
            unknown = [one for one in self.graphs if (part.serial, one.name) not in self._labels]
            if unknown:
                hashes = _hashed(part, rest)
                for one in unknown:
                    self._labels[part.serial, one.name] = one.labels_of(hashes)
        for key in [key for key in self._labels if key[0] not in serials or key[1] not in names]:
            del self._labels[key]
        held = [part for part in parts if any(self._labels[part.serial, name] is not None for name in names)]
        now = (tuple(one.name for one in self.graphs), tuple(part.serial for part in held))
        if now != self._key:
            self._key, self._last = now, self._placed(held)
        return self._last

    def _placed(self, parts: Sequence[IndexPart]) -> Covered:
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        placed = [np.zeros(len(part), np.bool_) for part in parts]
        places, whole = [], {}
        for number, one in enumerate(self.graphs):
            at = np.full(len(one.graph), -1, np.int64)
            for living in (False, True):  # where a dead row and a living one have the same bits, the latter
                for part, start, done in zip(parts, starts.tolist(), placed, strict=False):
                    labels = self._labels[part.serial, one.name]
                    if labels is None:
                        continue
                    rows = np.flatnonzero((labels >= 0) & ~done & (part.living == living))
                    at[labels[rows]] = start + rows
            for part, start, done in zip(parts, starts.tolist(), placed, strict=False):
                labels = self._labels[part.serial, one.name]
                if labels is not None:
                    rows = np.flatnonzero(labels >= 0)
                    mine = at[labels[rows]] == start + rows
                    done[rows[mine]] = True
                    if mine.all() and 0 < len(rows) == len(part) and (np.diff(labels) == 1).all():
                        whole[part.serial] = (number, int(labels[0]))
            places.append(at)
        tails = {part.serial: np.flatnonzero(~done) for part, done in zip(parts, placed, strict=True)}
        serials = tuple(part.serial for part in parts)
        return Covered(self.graphs, serials, starts, tuple(places), tails, whole)


def _hashed(part: IndexPart, rest: Callable[[], None]) -> NDArray[np.uint64]:
    assert isinstance(part.vectors, DenseBlock)
    found = [np.zeros(0, np.uint64)]
    for first in range(0, len(part), PIECE):
        found.append(hashes_of(part.vectors.values[first : first + PIECE]))
        rest()
    return np.concatenate(found)


LEAST_TAIL = 8_192
"""Living objects in no graph that make a new one: exact search of so many takes a third of a millisecond."""

TAIL_SHARE = 64
"""And at least this part of all objects: each graph costs a walk of its own."""

DEAD_SHARE = 0.2
"""Of a graph's rows: walks through more dead ones find too few living."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """A graph as the rule sees it: rows, and how many of them stand for living objects."""

    name: str
    rows: int
    living: int


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Build one graph of what is in none and of the objects of these."""

    instead_of: frozenset[str]


def plan(graphs: Sequence[GraphState], tail: int, least: int) -> BuildPlan | None:
    """What to build now, None for nothing. tail: living objects in no graph; least: objects from which on a
    graph is worth it at all.

    As in an LSM tree a new graph takes in those that are not larger than what it has already, so that sizes
    at least double from one to the next: there are few, and an object is built into one a few times in its
    life.
    """
    total = tail + sum(one.living for one in graphs)
    if total < least:
        return None
    worn = {one.name for one in graphs if one.rows - one.living > DEAD_SHARE * one.rows}
    if tail < (max(LEAST_TAIL, total // TAIL_SHARE) if graphs else 1) and not worn:
        return None
    taken, size = set(worn), tail + sum(one.living for one in graphs if one.name in worn)
    for one in sorted(graphs, key=lambda one: one.living):
        if one.name not in taken and one.living <= size:
            taken.add(one.name)
            size += one.living
    return BuildPlan(frozenset(taken)) if size else None


def states_of(covered: Covered, snapshot: IndexSnapshot) -> tuple[list[GraphState], int]:
    """(each graph, living objects in none) of a snapshot."""
    numbers = {part.serial: part for part in snapshot.parts}
    alive = np.concatenate(
        [np.zeros(0, np.bool_)]
        + [
            numbers[serial].living if serial in numbers else np.zeros(size, np.bool_)
            for serial, size in zip(covered.serials, np.diff(covered.starts).tolist(), strict=True)
        ]
    )
    states = [
        GraphState(one.name, len(one.graph), int(np.count_nonzero(alive[at[at >= 0]])))
        for one, at in zip(covered.graphs, covered.places, strict=True)
    ]
    tail = sum(int(np.count_nonzero(part.living[rows])) for part, rows in tail_rows(covered, snapshot))
    return states, tail


def tail_rows(covered: Covered, snapshot: IndexSnapshot) -> Iterator[tuple[IndexPart, Int64s]]:
    """Each dense part with its rows that are in no graph, dead ones among them."""
    for part in snapshot.parts:
        if isinstance(part.vectors, DenseBlock):
            yield part, covered.tails.get(part.serial, np.arange(len(part)))


def rows_to_build(
    covered: Covered, snapshot: IndexSnapshot, instead_of: frozenset[str]
) -> list[tuple[IndexPart, Int64s]]:
    """Living rows of each part that a new graph is made of: those in no graph, and those of these graphs."""
    tails = {part.serial: rows for part, rows in tail_rows(covered, snapshot)}
    taken = {serial: [tails[serial]] for serial in tails}
    ranges = [*zip(covered.serials, pairwise(covered.starts.tolist()), strict=False)]
    for one, at in zip(covered.graphs, covered.places, strict=True):
        if one.name in instead_of:
            here = np.sort(at[at >= 0])
            for serial, (start, stop) in ranges:
                if serial in tails:
                    first, last = np.searchsorted(here, [start, stop])
                    taken[serial].append(here[first:last] - start)
    found = []
    for part in snapshot.parts:
        if part.serial in taken:
            rows = np.sort(np.concatenate(taken[part.serial])).astype(np.int64)
            rows = rows[part.living[rows]]
            if len(rows):
                found.append((part, rows))
    return found
