"""Search of the parts of the index under one model: exact, or over graphs where the recall guard lets it.

The recall guard: how wide a walk over the graphs has to be under a version, or that search has to be exact.
What a walk finds depends on the version that asks: a strong change of W turns the folded queries away from
the objects, and its norms put them in another order. So recall is measured for every version before it
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve.coverage import NOTHING, Covered
from learners.block import Block, DenseBlock, Float32s, Int64s
from learners.forms.bilinear import BilinearForm
from learners.forms.quadratic import inverse_roots
from learners.graph import GraphTerms, walked
from learners.search import (
    NONE_GIVEN,
    DenseItems,
    EncodedQueries,
    SearchItems,
    TopK,
    best_among,
    merge_topk,
    topk,
)

TOP = 10
"""Neighbours that recall is the found share of."""

QUERIES = 64
"""Of the newest questions, and where they are fewer of objects evenly spaced, that ask for their neighbours;
recall is then known to about .01, its standard error, by which it has to be better than what is demanded."""

NARROWEST = 16
"""Rows in the pool of the first attempt."""

WORTH = 64
"""A pool of more than this part of all rows saves nothing: a walk scores some twenty rows for each of its
pool, and each costs several times as much as one of a scan."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """What the guard found. width: rows in a walk's pool, None for exact search. recall: measured at that
    width, 1 for exact; attempts: recall by width, in the order tried. model, items: what it was measured for.
    """

    width: int | None
    recall: float
    attempts: tuple[tuple[int, float], ...]
    model: str = ""
    items: int = 0


def saves(width: int, rows: int) -> bool:
    """Whether a walk with so many in its pool is worth it, of so many rows."""
    return width * WORTH <= rows


def choose_width(recall_at: Callable[[int], tuple[float, float]], rows: int, least: float) -> GuardResult:
    """The narrowest width, a fifth or so more each time, whose recall is at least `least` even after its
    standard error is taken off; exact where none is worth it. recall_at: (recall, standard error) at a width.
    """
    attempts: list[tuple[int, float]] = []
    width = NARROWEST
    while saves(width, rows):
        recall, error = recall_at(width)
        attempts.append((width, recall))
        if recall - error >= least:
            return GuardResult(width, recall, tuple(attempts))
        width += (1 << (width.bit_length() - 1)) // 4
    return GuardResult(None, 1.0, tuple(attempts))


def recall(exact: Int64s, found: Int64s, own: NDArray[np.int64]) -> tuple[float, float]:
    """(mean, standard error) of the share of the exact rows [m, k] that are among the found rows [m, any],
    query i's own row left out of both (it finds itself in any index); absent rows are -1; (1, 0) where
    there is nothing to find.
    """
    shares = []
    for truth, rows, self_row in zip(exact, found, own, strict=True):
        wanted = set(truth[truth >= 0].tolist()) - {int(self_row)}
        if wanted:
            shares.append(len(wanted & set(rows.tolist())) / len(wanted))
    if not shares:
        return 1.0, 0.0
    return float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))


Mask = NDArray[np.bool_]

Best: TypeAlias = tuple[Float32s, Int64s, Int64s]
"""Scores, parts and rows, each [m, at most k], best first; what is absent has -inf, -1 and -1, at the end."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Indexed:
    """A part under any model: its items, whose codes may be those of a graph."""

    items: SearchItems


class TermsLease:
    """Whoever holds it keeps the array of a part's terms from being used again."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ReadyPart:
    """A part as it is searched under one model. scale: float32 [n], 1 / norm of each item, None for raw
    scores. offset: float32 [n], what is added to each item's product, None where nothing is. features:
    float32 [n, F], see `learners.forms.quadratic.FeaturedForm`; None where there are none. lease: of scale or
    offset.
    """

    indexed: Indexed
    scale: Float32s | None = None
    offset: Float32s | None = None
    features: Float32s | None = None
    lease: TermsLease | None = None

    @property
    def terms(self) -> Float32s | None:
        """Scale or offset, whichever there is."""
        return self.offset if self.scale is None else self.scale


@dataclass(frozen=True, slots=True, eq=False)
class ReadyGraphs:
    """Graphs as they are walked under one model.

    covered: where their rows are in the parts. terms: of each graph's rows. width: rows in the pool of a walk
    for TOP hits, None for exact search. recall: estimated at that width.
    """

    covered: Covered
    terms: tuple[GraphTerms, ...]
    width: int | None = None
    recall: float = 1.0

    @property
    def rows(self) -> int:
        """Rows of all graphs."""
        return sum(len(one.graph) for one in self.covered.graphs)


NO_GRAPHS = ReadyGraphs(NOTHING, ())


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """What `prepare` makes of a view: every part of `snapshot` by serial, for the form made at `formed`."""

    formed: int
    snapshot: IndexSnapshot
    parts: Mapping[int, ReadyPart]
    graphs: ReadyGraphs = NO_GRAPHS
    _less: dict[int, IndexSnapshot] = field(default_factory=dict, repr=False)

    def searchable(self, newest: IndexSnapshot) -> IndexSnapshot:
        """What can be searched with them: the newest snapshot, or their own less what was removed since."""
        if self.cover(newest):
            return newest
        made = self._less.get(newest.serial)
        if made is None:
            made = self.snapshot.without_removed(newest)
            self._less.clear()
            self._less[newest.serial] = made
        return made

    def cover(self, snapshot: IndexSnapshot) -> bool:
        """Whether every part of the snapshot is ready."""
        return all(part.serial in self.parts for part in snapshot.parts)

    def within(self, snapshot: IndexSnapshot) -> Norms:
        """Those of parts that the snapshot has too."""
        serials = {part.serial for part in snapshot.parts}
        parts = {serial: ready for serial, ready in self.parts.items() if serial in serials}
        return Norms(self.formed, snapshot, parts, self.graphs)


@dataclass(frozen=True, slots=True, eq=False)
class ReadySnapshot:
    """A snapshot as it is searched under one model: its parts in order, and the graphs over them."""

    snapshot: IndexSnapshot
    parts: Sequence[ReadyPart]
    graphs: ReadyGraphs = NO_GRAPHS

    @classmethod
    def of(cls, norms: Norms, snapshot: IndexSnapshot) -> ReadySnapshot:
        """Of norms that cover the snapshot."""
        return cls(snapshot, [norms.parts[part.serial] for part in snapshot.parts], norms.graphs)


def folded_queries(view: View, queries: Block) -> Float32s:
    """S q / sqrt(q^T S q) for each mapped query, float32 [m, d], or S q for a model with raw scores.

    A query without a norm folds to zeros. A row is not finite where float32 could not hold it. Dense
    queries are folded one by one, because BLAS gives other bits to a row among others; sparse ones share
    the reading of S.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(queries, DenseBlock) and len(queries) > 1:
            folded = np.vstack([view.fold(queries.slice(row, row + 1)) for row in range(len(queries))])
        else:
            folded = view.fold(queries)
        if view.normalised:
            roots = inverse_roots(_self_scores(folded, queries))
            folded = np.asarray(folded * roots[:, None], np.float32)
    return folded


def answerable(
    view: View, queries: Sequence[Query], vectors: Sequence[Block | QueryError]
) -> list[Block | QueryError]:
    """The mapped vectors of queries, with an error in the place of each that is zero and ranks nothing: every
    object would have the same score. Under a distance zero is a point like any other; where scores are no
    inner products, it is one if the form gives it a norm, as kernels of distances do."""

    def ranks(one: Block) -> bool:
        values = one.values if isinstance(one, DenseBlock) else one.values[one.indptr[0] : one.indptr[-1]]
        if view.by_distance or values.any():
            return True
        return view.rescored and bool(view.form.self_scores(one)[0] > 0)

    return [
        one if isinstance(one, QueryError) or ranks(one) else _zero(query)
        for query, one in zip(queries, vectors, strict=True)
    ]


def _zero(query: Query) -> QueryError:
    field = next((name for name in ("id", "x", "views") if getattr(query, name) is not None), "")
    message = "the vector of this object is zero" if field == "id" else "the vector is zero"
    remedy = "ask by another one: under this similarity nothing is nearer to zero than anything else"
    return QueryError("zero_query", f"{message}, so no object is nearest to it", field, remedy)


def own_scores(view: View, folded: Float32s, queries: Block) -> Float32s:
    """What the score of every item loses for a query's own part, float32 [m]: S(q, q) under a distance, of
    which 2 S q was folded; else 0."""
    if not view.by_distance:
        return np.zeros(len(queries), np.float32)
    clipped = not isinstance(view.search, BilinearForm)  # there it is a part of the score, of either sign
    return np.asarray(_self_scores(folded, queries, clipped) / 2, np.float32)


def _self_scores(folded: Float32s, queries: Block, clipped: bool = True) -> Float32s:
    """q^T (S q), clipped at 0 or not: without reading S a second time."""
    if isinstance(queries, DenseBlock):
        products = np.einsum("md,md->m", folded, queries.values, dtype=np.float64)
    else:
        products = np.zeros(len(queries))
        for row, (start, stop) in enumerate(zip(queries.indptr, queries.indptr[1:], strict=False)):
            values = queries.values[start:stop].astype(np.float64)
            products[row] = folded[row, queries.indices[start:stop]].astype(np.float64) @ values
    return np.asarray(np.maximum(products, 0) if clipped else products, np.float32)


def nearest(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int) -> TopK:
    """The k best allowed items of each folded query, exactly."""
    return topk(folded, ready.indexed.items, ready.scale, allowed, k, offset=ready.offset)


def walk_width(ready: ReadySnapshot, k: int, share: float = 1.0) -> int | None:
    """Rows in the pool of a walk for k hits: in proportion to the hits that the guard has measured the recall
    of, and to how few of all objects a filter leaves. None for `nearest`: where the guard wants it, and where
    so wide a walk saves nothing.
    """
    graphs = ready.graphs
    if graphs.width is None or share <= 0:
        return None
    reach = max(1, -(-k // (TOP + 1)))
    width = reach * max(graphs.width, int(FILTERED * (TOP + 1) / share) if share < 1 else 0)
    return width if saves(width, graphs.rows) else None


FILTERED = 3
"""Times as many rows as a filter should leave k of: what is near a query bears the tags of others less
often."""


def exactly(ready: ReadySnapshot, folded: Float32s, allowed: Sequence[Mask | None], k: int) -> Best:
    """The k best allowed items of each folded query: scores, parts, rows, each [m, at most k]."""
    if not ready.parts:
        none = np.zeros((len(folded), 0), np.int64)
        return none.astype(np.float32), none, none
    parts = zip(ready.parts, allowed, strict=True)
    return merge_topk([nearest(part, folded, mask, k) for part, mask in parts], k)


def nearly(
    ready: ReadySnapshot, folded: Float32s, allowed: Sequence[Mask | None], k: int, width: int
) -> tuple[Best, Mask]:
    """As `exactly`, of what walks of this width come by, and of all items that are in no graph; and for which
    queries too little was found, so that `exactly` answered them: bool [m].
    """
    covered, answers = ready.graphs.covered, []
    starts = dict(zip(covered.serials, covered.starts.tolist(), strict=False))
    queries = EncodedQueries.of(folded, folded.shape[1])
    near = []  # by graph and query: where the rows that a walk came by stand in all parts
    for one, terms, places in zip(covered.graphs, ready.graphs.terms, covered.places, strict=True):
        found_in = [places[labels] for labels in walked(queries, one.graph, terms, width)]
        near.append([rows[rows >= 0] for rows in found_in])
    together = [rows[0] if len(rows) == 1 else np.concatenate(rows) for rows in zip(*near, strict=True)]
    for part, mask, held in zip(ready.parts, allowed, ready.snapshot.parts, strict=True):
        start, tail = starts.get(held.serial), covered.tails.get(held.serial)
        if start is None or tail is None:
            answers.append(nearest(part, folded, mask, k))
            continue
        found = [_among(part, queries, tail, mask, k)] if len(tail) else []
        stop = start + len(held)
        # In the order in which they came: the best first, so that a bound leaves out most of the others.
        chosen = [rows[(rows >= start) & (rows < stop)] - start for rows in together]
        found.append(_each(part, queries, chosen, mask, k))
        answers.append(found[0] if len(found) == 1 else _beside(found))
    scores, parts, rows = merge_topk(answers, k)
    missing = 0 < k != rows.shape[1]
    short = np.full(len(rows), missing) if missing or k == 0 else np.asarray(rows[:, -1] < 0, np.bool_)
    if short.any():
        scores, parts, rows = _widened((scores, parts, rows), k)
        again = _widened(exactly(ready, folded[short], allowed, k), k)
        scores[short], parts[short], rows[short] = again
    return (scores, parts, rows), short


def _among(part: ReadyPart, queries: EncodedQueries, rows: Int64s, mask: Mask | None, k: int) -> TopK:
    assert isinstance(part.indexed.items, DenseItems)
    scale, offset = (NONE_GIVEN if one is None else one for one in (part.scale, part.offset))
    return best_among(queries, part.indexed.items, rows, k, terms=(scale, offset), allowed=mask)


def _each(
    part: ReadyPart, queries: EncodedQueries, chosen: Sequence[Int64s], mask: Mask | None, k: int
) -> TopK:
    if len(chosen) == 1:
        return _among(part, queries, chosen[0], mask, k)
    found = [_among(part, queries.one(n), rows, mask, k) for n, rows in enumerate(chosen)]
    return np.concatenate([scores for scores, _ in found]), np.concatenate([rows for _, rows in found])


def _beside(found: Sequence[TopK]) -> TopK:
    scores, rows = zip(*found, strict=True)
    return np.concatenate(scores, axis=1), np.concatenate(rows, axis=1)


def _widened(best: Best, k: int) -> Best:
    scores, parts, rows = best
    missing = ((0, 0), (0, max(0, k - scores.shape[1])))
    places = [np.pad(one, missing, constant_values=-1) for one in (parts, rows)]
    return np.pad(scores, missing, constant_values=-np.inf), places[0], places[1]
