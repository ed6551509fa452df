"""Answers of one model in one snapshot: which queries share a scan, what filters mean, the hits; and a random
object of those that a query may be answered with.

Queries without a filter, and those that ask for the same tags, share one scan of every part. What is
excluded is looked for as well and then left out; ids to include are scored alone. All three ways give a
hit the same score. Where that is no inner product, a scan gives a shortlist for each query, which is then
scored exactly. A version that orders lists, and is not shown to search better, is searched by the user's own
ranking, of which it puts the first objects in order; lists that are given it orders all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daemon.replica.view import View
from daemon.serve.interleave import Drawn
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Answered, Query, ScoredId
from daemon.serve.retrieve.part import TOP, Best, Mask, ReadySnapshot, exactly, nearly, walk_width
from learners.block import Block, Float32s, Int64s, concatenate
from learners.forms.quadratic import ServedForm
from learners.search import exact_scores, score_rows

ScoredPlace = tuple[float, int, int]
"""(score, part, row) of an item."""


@dataclass(frozen=True, slots=True, eq=False)
class Rescoring:
    """How the items that a search found for a query are put in order.

    queries: mapped, row i is that of query i. features: of the items of each part, None where they were not
    made. shortlist: how many items to look for at least, besides those that are left out of an answer.
    """

    form: ServedForm
    queries: Block
    features: Sequence[Float32s | None]
    shortlist: int

    def ordered(self, snapshot: IndexSnapshot, query: int, parts: Int64s, rows: Int64s) -> list[ScoredPlace]:
        """Items by descending score, equal ones by part and row. parts, rows: int64 [n], where they are."""
        blocks, features = [], []
        numbers: list[int] = []
        places: list[int] = []
        for number in np.unique(parts).tolist():
            here = np.sort(rows[parts == number])
            blocks.append(snapshot.parts[number].vectors.take(here))
            known = self.features[number]
            if known is not None:
                features.append(known[here])
            numbers += [number] * len(here)
            places += here.tolist()
        if not blocks:
            return []
        items, one = concatenate(blocks), self.queries.slice(query, query + 1)
        known = np.concatenate(features) if len(features) == len(blocks) else None
        found = exact_scores(self.form, one, items, known)
        order: Sequence[int] = np.argsort(-found, kind="stable").tolist()
        return [(float(found[at]), numbers[at], places[at]) for at in order]


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """How a version that has an order answers. view: of that version. queries: mapped, row i is query i."""

    view: View
    queries: Block

    @property
    def top(self) -> int:
        """See `View.reordered_first`."""
        return self.view.reordered_first

    def of_given(self, parts: int) -> Rescoring:
        """Of lists that are given, in a snapshot of so many parts."""
        assert self.view.order is not None
        return Rescoring(self.view.order, self.queries, [None] * parts, 0)

    def reordered(self, snapshot: IndexSnapshot, query: int, best: list[ScoredPlace]) -> list[ScoredPlace]:
        """The answer that is made of the user's own ranking."""
        own = np.array([score for score, _, _ in best], np.float32)
        parts, rows = np.array([place[1:] for place in best[: self.top]], np.int64).reshape(-1, 2).T
        by_part = np.argsort(parts, kind="stable")
        blocks = [snapshot.parts[one].vectors.take(rows[parts == one]) for one in np.unique(parts).tolist()]
        if not blocks:
            return best
        first = concatenate(blocks).take(np.argsort(by_part))
        places, scores = self.view.reordered(self.queries.slice(query, query + 1), first, own)
        found = zip(scores.tolist(), places.tolist(), strict=True)
        return [(score, *best[place][1:]) for score, place in found]


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


def scans_of(queries: Sequence[Query], approximate: bool = False, shortlist: int = 0) -> list[Scan]:
    """The scans that answer all queries which do not name what to include; pure.

    approximate: how far a scan looks then depends on its room, so only queries that look as far share one,
    with room for the most that others could ask for who look as far: what is found for a query never depends
    on the others of its batch. shortlist: least items to find.
    """
    together: dict[tuple[frozenset[str], frozenset[str], int], list[int]] = {}
    for place, query in enumerate(queries):
        if query.include is None:
            masked = query.exclude if len(query.exclude) > FEW else frozenset[str]()
            reach = -(-_room(query, shortlist) // (TOP + 1)) if approximate else 0
            together.setdefault((query.tags, masked, reach), []).append(place)
    return [
        Scan(
            tuple(places),
            tags,
            masked,
            reach * (TOP + 1) if approximate else max(_room(queries[place], shortlist) for place in places),
        )
        for (tags, masked, reach), places in together.items()
    ]


def _room(query: Query, shortlist: int) -> int:
    """Hits to look for, with those that may be left out: the object itself and the few that are excluded."""
    left_out = (query.id is not None) + (len(query.exclude) if len(query.exclude) <= FEW else 0)
    return max(query.k, shortlist) + left_out


@dataclass(frozen=True, slots=True, eq=False)
class Finder:
    """Finds what queries ask for in one snapshot under one model.

    ready: the snapshot under the model. folded: float32 [len(queries), d]. rescoring: None where the inner
    products are the scores. ordering: None of a version without an order.
    """

    ready: ReadySnapshot
    queries: Sequence[Query]
    folded: Float32s
    rescoring: Rescoring | None = None
    ordering: Ordering | None = None

    def find(self, between: Callable[[], None] = lambda: None) -> list[Answered]:
        """What each query finds. between: called before each scan and rescoring; what it raises is raised."""
        found = [Answered([]) for _ in self.queries]
        for scan in scans_of(self.queries, self.ready.graphs.width is not None, self._least):
            between()
            for place, best, walked in self._scanned(scan):
                if self.rescoring is not None:
                    between()
                found[place] = self._answer(place, *best, walked)
        for place, query in enumerate(self.queries):
            if query.include is not None:
                between()
                found[place] = Answered(self._hits(place, self._included(place)))
        return found

    def by_order(self, query: Query) -> bool:
        """Whether its hits are in order by the version's order: those of a given list, and where the version
        puts the first of the user's own ranking in order."""
        given = query.include is not None and not query.found
        return self.ordering is not None and (given or self.ordering.top > 0)

    @property
    def _snapshot(self) -> IndexSnapshot:
        return self.ready.snapshot

    @property
    def _least(self) -> int:
        return self._top if self.rescoring is None else self.rescoring.shortlist

    @property
    def _top(self) -> int:
        return 0 if self.ordering is None else self.ordering.top

    def _scanned(self, scan: Scan) -> Iterator[tuple[int, Best, bool]]:
        """Each place with the scores, parts and rows that its query needs, best first, and whether it took
        them from graphs."""
        allowed = allowed_rows(self._snapshot, scan.tags, scan.masked)
        all_ = len(scan.places) == len(self.queries)
        folded = self.folded if all_ else self.folded[list(scan.places)]
        share = _share(self._snapshot, allowed) if scan.tags or scan.masked else 1.0
        width = walk_width(self.ready, scan.room, share)
        if width is None:
            best, walked = exactly(self.ready, folded, allowed, scan.room), [False] * len(folded)
        else:
            best, short = nearly(self.ready, folded, allowed, scan.room, width)
            walked = (~short).tolist()
        for place, by_graph, scores, parts, rows in zip(scan.places, walked, *best, strict=True):
            room = _room(self.queries[place], self._least)
            yield place, (scores[:room], parts[:room], rows[:room]), by_graph

    def _answer(self, place: int, scores: Float32s, parts: Int64s, rows: Int64s, walked: bool) -> Answered:
        exact = not walked
        best = list(zip(scores.tolist(), parts.tolist(), rows.tolist(), strict=True))
        if self.rescoring is not None:
            there = rows >= 0
            exact = exact and not there.all()
            best = self.rescoring.ordered(self._snapshot, place, parts[there], rows[there])
        recall = self.ready.graphs.recall if walked else None
        return Answered(self._hits(place, best), exact, recall)

    def _included(self, place: int) -> list[ScoredPlace]:
        query, rescoring = self.queries[place], self.rescoring
        if self.ordering is not None and not query.found:
            rescoring = self.ordering.of_given(len(self._snapshot.parts))
        names = sorted((query.include or frozenset()) - query.exclude - {query.id or ""})
        parts, rows = self._snapshot.find_many(names)
        allowed = allowed_rows(self._snapshot, query.tags, frozenset())
        chosen: list[ScoredPlace] = []
        for number, part in enumerate(self.ready.parts):
            here, mask = np.unique(rows[parts == number]), allowed[number]
            if mask is not None:
                here = here[mask[here]]
            if rescoring is None:
                items, folded = part.indexed.items, self.folded[place]
                scores = score_rows(folded, items, part.scale, here, offset=part.offset)
                chosen += zip((-scores).tolist(), [number] * len(here), here.tolist(), strict=True)
            else:
                named = np.full(len(here), number)
                ordered = rescoring.ordered(self._snapshot, place, named, here)
                chosen += [(-score, at, row) for score, at, row in ordered]
        return [(-negated, part, row) for negated, part, row in sorted(chosen)]

    def _hits(self, place: int, best: Sequence[ScoredPlace]) -> list[ScoredId]:
        query = self.queries[place]
        best = [one for one in best[: _room(query, self._top)] if one[2] >= 0]
        names = self._snapshot.ids_at([part for _, part, _ in best], [row for _, _, row in best])
        left_out = query.exclude | {query.id}
        allowed = [(name, one) for name, one in zip(names, best, strict=True) if name not in left_out]
        if self.ordering is not None and self._top and (query.include is None or query.found):
            ids = {one[1:]: name for name, one in allowed}
            ordered = self.ordering.reordered(self._snapshot, place, [one for _, one in allowed])
            allowed = [(ids[one[1:]], one) for one in ordered]
        return [ScoredId(name, score) for name, (score, _, _) in allowed[: query.k]]


def lowered(hits: Sequence[ScoredId], own: float) -> Sequence[ScoredId]:
    """Hits whose scores lose the same number."""
    return [ScoredId(hit.id, hit.score - own) for hit in hits] if own else hits


def _share(snapshot: IndexSnapshot, allowed: Sequence[Mask | None]) -> float:
    pairs = zip(snapshot.parts, allowed, strict=True)
    left = sum(len(part) - part.dead if mask is None else int(np.count_nonzero(mask)) for part, mask in pairs)
    return left / max(1, len(snapshot))


def eligible_rows(snapshot: IndexSnapshot, query: Query, left_out: Iterable[str] = ()) -> list[Int64s]:
    """Per part the rows, ascending, of all objects that a query may be answered with, less some more."""
    gone = {query.id or "", *query.exclude, *left_out}
    masks = allowed_rows(snapshot, query.tags, frozenset())
    if query.include is None:
        rows = [
            np.arange(len(part)) if mask is None else np.flatnonzero(mask)
            for part, mask in zip(snapshot.parts, masks, strict=True)
        ]
        parts, places = snapshot.find_many(sorted(gone))
        return [
            np.setdiff1d(here, places[parts == number], assume_unique=True)
            for number, here in enumerate(rows)
        ]
    parts, places = snapshot.find_many(sorted(query.include - gone))
    rows = [np.unique(places[parts == number]) for number in range(len(snapshot.parts))]
    return [here if mask is None else here[mask[here]] for here, mask in zip(rows, masks, strict=True)]


def allowed_rows(snapshot: IndexSnapshot, tags: frozenset[str], masked: frozenset[str]) -> list[Mask | None]:
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


def draw(
    snapshot: IndexSnapshot, query: Query, left_out: Sequence[str], below: Callable[[int], int]
) -> Drawn | None:
    """One of the living objects that the filters allow, less the query's own and those left out; None where
    none is left. below: a random whole number from 0 to below its argument, each as likely.

    Looks at every row where there are tags or dead rows, else at none.
    """
    rows = eligible_rows(snapshot, query, left_out)
    eligible = sum(map(len, rows))
    if not eligible:
        return None
    chosen = below(eligible)
    for number, here in enumerate(rows):
        if chosen < len(here):
            return Drawn(snapshot.id_at(number, int(here[chosen])), eligible)
        chosen -= len(here)
    raise AssertionError("the number drawn is below the number of rows")
