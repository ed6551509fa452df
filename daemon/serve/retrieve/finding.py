"""Answers of one model in one snapshot: which queries share a scan, what filters mean, and the hits.

Queries without a filter, and those that ask for the same tags, share one scan of every part. What is
excluded is looked for as well and then left out; ids to include are scored alone. All three ways give a hit
the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Hit, Query
from daemon.serve.retrieve.guard import TOP
from daemon.serve.retrieve.part import Mask, ReadyPart, search_part, width_for
from learners.block import Float32s
from learners.search import merge_topk, score_rows

FEW = 256
"""Excluded ids up to which they are looked for and left out; more are taken out of the scan by a mask."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Queries (their places) that share one scan. tags: every hit bears all of them. masked: ids that the
    scan itself leaves out. room: how many hits each query needs, with those that are left out afterwards.
    """

    places: tuple[int, ...]
    tags: frozenset[str]
    masked: frozenset[str]
    room: int


def scans_of(queries: Sequence[Query], approximate: bool = False) -> list[Scan]:
    """The scans that answer all queries which do not name what to include; pure.

    approximate: how far a scan looks then depends on its room, so only queries that look as far share one:
    what is found for a query never depends on those beside it.
    """
    together: dict[tuple[frozenset[str], frozenset[str], int], list[int]] = {}
    for place, query in enumerate(queries):
        if query.include is None:
            masked = query.exclude if len(query.exclude) > FEW else frozenset[str]()
            reach = -(-_room(query) // (TOP + 1)) if approximate else 0
            together.setdefault((query.tags, masked, reach), []).append(place)
    return [
        Scan(tuple(places), tags, masked, max(_room(queries[place]) for place in places))
        for (tags, masked, _), places in together.items()
    ]


def _room(query: Query) -> int:
    """Hits to look for, with those that may be left out of the answer: the object itself, and the few that
    are excluded.
    """
    return query.k + (query.id is not None) + (len(query.exclude) if len(query.exclude) <= FEW else 0)


def find(
    snapshot: IndexSnapshot,
    ready: Sequence[ReadyPart],
    queries: Sequence[Query],
    folded: Float32s,
    between: Callable[[], None] = lambda: None,
) -> list[list[Hit]]:
    """The hits of each query. ready: the parts of the snapshot, in order; folded: float32 [len(queries), d];
    between: called before each scan, and what it raises is raised.
    """
    found: list[list[Hit]] = [[] for _ in queries]
    for scan in scans_of(queries, any(part.width is not None for part in ready)):
        between()
        allowed = _allowed(snapshot, scan.tags, scan.masked)
        part_answers = [
            search_part(part, folded[list(scan.places)], mask, scan.room, bool(scan.tags or scan.masked))
            for part, mask in zip(ready, allowed, strict=True)
        ]
        if part_answers:
            for place, *best in zip(scan.places, *merge_topk(part_answers, scan.room), strict=True):
                found[place] = list(_hits(snapshot, queries[place], zip(*best, strict=True)))
    for place, query in enumerate(queries):
        if query.include is not None:
            between()
            found[place] = _of_included(snapshot, ready, query, folded[place])
    return found


def finds_all(ready: Sequence[ReadyPart], query: Query) -> bool:
    """Whether `find` passes over no object for this query."""
    selective = bool(query.tags) or len(query.exclude) > FEW
    return query.include is not None or all(
        width_for(part, _room(query), selective) is None for part in ready
    )


def _allowed(snapshot: IndexSnapshot, tags: frozenset[str], masked: frozenset[str]) -> list[Mask | None]:
    """Per part, which rows may be hits; None for all."""
    masks = [part.alive for part in snapshot.parts]
    if tags:
        tagged = snapshot.tagged(sorted(tags))
        masks = [
            bearing if alive is None else bearing & alive
            for bearing, alive in zip(tagged, masks, strict=True)
        ]
    if masked:
        parts, rows = snapshot.find_many(sorted(masked))
        for number, part in enumerate(snapshot.parts):
            mask = masks[number]
            mask = np.ones(len(part), np.bool_) if mask is None else mask.copy()
            mask[rows[parts == number]] = False
            masks[number] = mask
    return masks


def _hits(snapshot: IndexSnapshot, query: Query, best: Iterator[tuple[float, int, int]]) -> Iterator[Hit]:
    """The first k that may be answered."""
    left = query.k
    for score, part, row in best:
        if left == 0 or row < 0:
            return
        name = snapshot.id_at(int(part), int(row))
        if name != query.id and name not in query.exclude:
            left -= 1
            yield Hit(name, float(score))


def _of_included(
    snapshot: IndexSnapshot, ready: Sequence[ReadyPart], query: Query, folded: Float32s
) -> list[Hit]:
    """The best of the objects that the query names."""
    names = sorted((query.include or frozenset()) - query.exclude - {query.id or ""})
    parts, rows = snapshot.find_many(names)
    allowed = _allowed(snapshot, query.tags, frozenset())
    chosen: list[tuple[float, int, int]] = []
    for number, part in enumerate(ready):
        here, mask = np.unique(rows[parts == number]), allowed[number]
        if mask is not None:
            here = here[mask[here]]
        scores = score_rows(folded, part.indexed.items, part.scale, here)
        chosen += zip((-scores).tolist(), [number] * len(here), here.tolist(), strict=True)
    best = sorted(chosen)[: query.k]
    return [Hit(snapshot.id_at(part, row), -negated) for negated, part, row in best]
