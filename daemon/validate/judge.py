"""All measures of one version on one window, in blocks so that memory stays bounded.

On the shown lists work goes in parts of the panel, which are gathered once for all versions that are scored
together; each query is multiplied with its own objects only. Clicked objects are also compared with random
ones, drawn from some of the catalog or the window.

Memory beyond the window and the mapped catalog: one block of scores (`SCORE_FLOATS` float32, 16 MB, or one
row of the catalog if that is longer), one sorted row, one part of gathered objects (`PART_FLOATS` float32,
4 MB), RANDOM_OBJECTS draws of each list (9 bytes each) and one float32 per catalog object.
The same version on the same window gives the same numbers: blocks are cut alike, draws are seeded by
impression id.

The judged queries are the catalog's own objects that have judgments and that routing sends to the holdout,
the same for every version and trained on by none. Queries that are no catalog objects (texts with features of
their own, judged by qrels) are judged as long as the holdout window holds them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from daemon.validate import measures
from daemon.validate.comparing import Scored
from daemon.validate.judgments import BoundJudgments
from daemon.validate.measures import TOP
from daemon.validate.scorer import (
    CatalogRows,
    MappedObjects,
    Panel,
    Scorer,
    draws,
    make_panel,
    stable_order,
)
from daemon.validate.shown import Float, Mask, Rows, Scores
from learners.block import Block, Float32s
from learners.measures import average_precision, macro_over, mean_over, precision_at_k, ranks_of
from streams.event import Impression, ObjectRef

SCORE_FLOATS = 1 << 22
"""Floats of one block of scores: queries are taken so many at a time that it holds their catalog rows."""


def query_blocks(queries: int, catalog: int) -> list[slice]:
    """Cut queries so that the scores of a block fit SCORE_FLOATS (at least one query)."""
    step = max(1, SCORE_FLOATS // max(1, catalog))
    return [slice(at, min(at + step, queries)) for at in range(0, queries, step)]


MOST_ASKED = 200
"""Lists, of as many queries, with which the user's own ranking of the catalog is compared."""


RankedRows: TypeAlias = tuple[Rows, int | None]
"""Catalog rows to rank for a query, int64 [k], and its own, which is no candidate; None: it has none."""


def catalog_ranks(
    objects: MappedObjects, scorer: Scorer, queries: Sequence[ObjectRef], wanted: Iterator[RankedRows]
) -> Iterator[Rows]:
    """Ranks in the whole catalog, query by query, each int64 [k]. Raises NotFinite."""
    for part in query_blocks(len(queries), len(objects.ids)):
        # nothing here holds a block while the next is made: two would double the memory
        block = zip(scorer.catalog(scorer.fold(queries[part])), wanted, strict=False)
        yield from (ranks_of(scores, *one) for scores, one in block)
        del block


def order_top(ranks: Iterable[Rows], lengths: Sequence[int]) -> int:
    """How many objects of the user's own ranking a version puts in order that only orders lists: of n lists,
    the median of how many of the L objects are among the first L of that ranking for the query, at least 1.

    ranks: of the objects of each list; lengths: L.
    """
    counts = [np.count_nonzero(one <= length) for one, length in zip(ranks, lengths, strict=True)]
    return max(1, int(np.median(counts)))


class JudgedQueries:
    """At most `max_queries` queries with at least one relevant object, first in the stable order of ids.

    is_holdout: whether routing sends the query with this id to the holdout.
    """

    def __init__(
        self,
        objects: MappedObjects,
        judgments: BoundJudgments,
        is_holdout: Callable[[str], bool],
        max_queries: int,
    ) -> None:
        self._objects, self._judgments = objects, judgments
        own = filter(is_holdout, judgments.catalog_queries())
        self.fixed = self._first([ObjectRef(one) for one in own], max_queries)
        self._more = max_queries - len(self.fixed)

    def seen(self, panel: Panel) -> list[ObjectRef]:
        """Judged queries of the window that are no catalog objects, as many as there is room for."""
        strangers = (ref for ref in panel.queries if ref.id is not None and self._objects.row_of(ref) is None)
        return self._first(strangers, self._more)

    def table(self, scorer: Scorer, queries: Sequence[ObjectRef]) -> Float:
        """AP and P@10 of each query, float64 [n, 2]. Raises NotFinite."""
        wanted = ((self._judgments.relevant_rows(ref.id or ""), self._objects.row_of(ref)) for ref in queries)
        ranks = catalog_ranks(self._objects, scorer, queries, wanted)
        table = [(average_precision(one), precision_at_k(one, TOP)) for one in ranks]
        return np.array(table, np.float64).reshape(-1, 2)

    def summary(self, queries: Sequence[ObjectRef], table: Float) -> dict[str, float]:
        """`map_full`, `p10_full`, `queries_full`; where every query has a label the means of the labels'
        means. NaN without a query.
        """
        out = {
            "queries_full": float(len(queries)),
            "map_full": mean_over(table[:, 0]),
            "p10_full": mean_over(table[:, 1]),
        }
        labels = [self._judgments.label(ref.id or "") for ref in queries]
        known = [label for label in labels if label is not None]
        if len(known) == len(labels):
            out["macro_map_full"] = macro_over(table[:, 0], known)
            out["macro_p10_full"] = macro_over(table[:, 1], known)
        return out

    def _first(self, queries: Iterable[ObjectRef], count: int) -> list[ObjectRef]:
        ordered = sorted(queries, key=lambda ref: stable_order(ref.id or ""))
        judged = (ref for ref in ordered if len(self._judgments.relevant_rows(ref.id or "")))
        return list(islice(judged, max(0, count)))


RANDOM_OBJECTS = 100
"""Per impression: the AUC against 100 draws is within 0.05 of that against all, 0.01 over 50 lists."""
POOL_OBJECTS, POOL_FLOATS = 1024, 1 << 23
"""Objects drawn from, and their floats, at most: all are scored against every query, by one product."""


class RandomObjects:
    """What clicked objects of a panel are compared with: draws, seeded by the impression's id, from objects
    of the catalog at even distances in it, or without a catalog from what is shown in the window.

    refs: those that are drawn from. picked: int64 [n, RANDOM_OBJECTS], numbers of them; counts: which of
    these count, bool: neither the query nor shown.
    """

    def __init__(self, objects: MappedObjects, panel: Panel) -> None:
        self.panel = panel
        lists, valid = panel.impressions, panel.lists.valid
        owners, every = np.nonzero(valid)[0], [ref for one in lists for ref in one.shown]
        count = len(every) if objects.catalog is None else len(objects.ids)
        size = max(1, min(POOL_OBJECTS, POOL_FLOATS // objects.width, count))
        places = np.linspace(0, count - 1, size).astype(np.int64)
        if objects.catalog is None:
            self.refs, owner = [every[at] for at in places.tolist()], owners[places]
        else:
            self.refs = [ObjectRef(objects.ids[at]) for at in places.tolist()]
            owner = np.full(size, -1)
        numbers = {ref.id: at for at, ref in enumerate(self.refs) if ref.id is not None}

        def numbered(refs: Iterable[ObjectRef], without: int = -1) -> Rows:
            return np.array([numbers.get(ref.id, without) for ref in refs], np.int64)

        self.picked = draws([one.id for one in lists], RANDOM_OBJECTS, size)
        drawn, query = numbered(self.refs, -2)[self.picked], numbered(one.query for one in lists)
        shown: Rows = np.full(valid.shape, -1, np.int64)
        shown[valid] = numbered(every)
        self.counts = (owner[self.picked] != np.arange(len(lists))[:, None]) & (drawn != query[:, None])
        for rank in range(shown.shape[1]):
            self.counts &= drawn != shown[:, rank, None]


PART_FLOATS = 1 << 20
"""Floats of the gathered objects of one part: 4 MB stay near the processor."""
MAX_PART = 256


@dataclass(frozen=True, slots=True)
class PanelPart:
    """Some lists of a panel, gathered once for any number of versions. queries: their block and catalog rows;
    back: which of them each list asks, int64. rows: of the catalog, int64 [lists, L], any where `inline`, and
    block: these, None without a catalog. others: what is inline, bringing features of its own.
    """

    at: slice
    queries: tuple[Block, CatalogRows]
    back: Rows
    rows: Rows
    block: Block | None
    inline: Mask
    others: tuple[Block, CatalogRows] | None

    def fold(self, scorer: Scorer) -> Float32s:
        """The queries of the lists, float32 [lists, d]; one that is repeated is folded once."""
        return scorer.fold_block(*self.queries)[self.back]

    def scores(self, scorer: Scorer, folded: Float32s) -> Float32s:
        """Scores of the lists, float32 [lists, L]; padding holds numbers without meaning."""
        scores = np.zeros(self.inline.shape, np.float32)
        if self.block is not None:
            scores = scorer.rows(folded, self.rows, self.block)
        if self.others is not None:
            scores[self.inline] = scorer.pairs(folded, np.nonzero(self.inline)[0], scorer.ready(*self.others))
        return scores


class Judge:
    """Judges versions on a window.

    `judged`: the queries with judgments, or None; at most `max_queries` queries of the window are ranked
    against the whole catalog by their clicks. Without a catalog only the shown lists are judged, and random
    objects come from other lists of the window.
    """

    def __init__(self, objects: MappedObjects, judged: JudgedQueries | None, max_queries: int) -> None:
        self.objects, self._judged = objects, judged
        self._random: RandomObjects | None = None
        self._fixed: WeakKeyDictionary[Scorer, Float] = WeakKeyDictionary()
        self.max_queries = max_queries

    def panel(self, impressions: Sequence[Impression]) -> Panel:
        """Usable impressions, oldest first, prepared for any number of versions."""
        return make_panel(self.objects, impressions)

    def look(self, scorer: Scorer, panel: Panel) -> Scored:
        """Measures by name, and what two versions are compared by. Measures that cannot be had (no catalog,
        no judged query) are absent. `panel`: at least one impression. Raises NotFinite.
        """
        out, shown = self._shown(scorer, panel)
        precision = np.zeros(0)
        if self.objects.catalog is not None:
            out["map_clicks"] = self._map_clicks(scorer, panel)
        if self._judged is not None:
            if scorer not in self._fixed:  # the same on every window
                self._fixed[scorer] = self._judged.table(scorer, self._judged.fixed)
            seen = self._judged.seen(panel)
            table = np.concatenate([self._fixed[scorer], self._judged.table(scorer, seen)])
            out |= self._judged.summary([*self._judged.fixed, *seen], table)
            precision = table[:, 0]
        known = {name: value for name, value in out.items() if not np.isnan(value)}
        return Scored(known, shown, precision=precision)

    def shown_scores(self, scorers: Sequence[Scorer], panel: Panel) -> list[Scores]:
        """Scores of the lists by each in the order of time, float32[n, L], and nothing else; the lists are
        gathered once. Raises NotFinite."""
        found = np.zeros((len(scorers), *panel.lists.valid.shape), np.float32)
        for part in self._parts(panel):
            for scorer, scores in zip(scorers, found, strict=True):
                scores[part.at] = part.scores(scorer, part.fold(scorer))
        return [panel.in_time(scores) for scores in found]

    def order_top(self, own: Scorer, panel: Panel, where: Mask) -> int | None:
        """See `order_top`, by the lists at `where`, bool[n] in the order of time, one at least: one of each
        query, and queries first in the stable order of ids. None without a catalog. own: scores of that
        ranking. Raises NotFinite."""
        if self.objects.catalog is None:
            return None
        told = np.flatnonzero(where[panel.order])
        told = told[np.unique(panel.group[told], return_index=True)[1][:MOST_ASKED]]
        queries = [panel.queries[place] for place in panel.group[told].tolist()]
        lists = zip(panel.query[told].tolist(), panel.shown[told], strict=True)
        wanted = ((of[(of >= 0) & (of != row)], row if row >= 0 else None) for row, of in lists)
        ranks = catalog_ranks(self.objects, own, queries, wanted)
        return order_top(ranks, panel.lists.valid[told].sum(axis=1).tolist())

    def _map_clicks(self, scorer: Scorer, panel: Panel) -> float:
        """AP over the catalog with the objects clicked for a query as the relevant ones, mean of queries; NaN
        where none counts. Of at most `max_queries`, the first in the stable order of ids: a moving window
        keeps mostly the same ones."""
        queries, clicked = panel.queries[: self.max_queries], defaultdict[int, set[int]](set)
        owner, rank = np.nonzero(panel.lists.clicked & (panel.shown >= 0))
        for query, row in zip(panel.group[owner].tolist(), panel.shown[owner, rank].tolist(), strict=True):
            clicked[query].add(row)
        own = enumerate(map(self.objects.row_of, queries))
        wanted = ((np.array(sorted(clicked[at] - {row}), np.int64), row) for at, row in own)
        ranks = catalog_ranks(self.objects, scorer, queries, wanted)
        return mean_over(np.array([average_precision(one) for one in ranks]))

    def judged_queries(self, window: Sequence[Impression], most: int) -> list[ObjectRef]:
        """Queries with judgments, the fixed ones first, then those of the window that are no objects."""
        if self._judged is None:
            return []
        fixed = self._judged.fixed[:most]
        seen = self._judged.seen(self.panel(window)) if len(fixed) < most and window else []
        return [*fixed, *seen][:most]

    def precision_of(self, scorer: Scorer, judged: Sequence[ObjectRef]) -> Float:
        """Average precision of each judged query, float64[n]. Raises NotFinite."""
        assert self._judged is not None
        return self._judged.table(scorer, judged)[:, 0]

    def losses(self, scorer: Scorer, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression: mean hinge over its (clicked, unclicked) pairs. float64[n]."""
        panel = self.panel(impressions)
        return measures.shown_hinge(self.shown_scores([scorer], panel)[0], panel.by_time)

    def _shown(self, scorer: Scorer, panel: Panel) -> tuple[dict[str, float], Scores]:
        """Measures of the lists, NaN where none can be had, and their scores in the order of time."""
        if self._random is None or self._random.panel is not panel:
            self._random = RandomObjects(self.objects, panel)
        random, items = self._random, scorer.items(self._random.refs)
        every, auc = np.zeros(panel.lists.valid.shape, np.float32), np.zeros(len(panel))
        for part in self._parts(panel):
            at, folded = part.at, part.fold(scorer)
            every[at] = part.scores(scorer, folded)
            drawn = np.take_along_axis(scorer.against(folded, items), random.picked[at], axis=1)
            auc[at] = measures.auc_per_list(every[at], panel.lists.clicked[at], drawn, random.counts[at])
        scores, lists = panel.in_time(every), panel.by_time
        ranks, seen = (measures.shown_ranks(one, lists.valid) for one in (scores, np.zeros_like(scores)))
        columns = {
            "map_shown": measures.shown_average_precision(ranks, lists.clicked, lists.weights),
            "ndcg_shown": measures.shown_ndcg(ranks, lists.clicked, TOP),
            "shown_order_map": measures.shown_average_precision(seen, lists.clicked, lists.weights),
            "shown_order_ndcg": measures.shown_ndcg(seen, lists.clicked, TOP),
            "loss": measures.shown_hinge(scores, lists),
            "clicked_vs_random": auc,
        }
        means = {name: mean_over(values) for name, values in columns.items()}
        return {"position_balanced": measures.position_balanced(scores, lists)} | means, scores

    def _parts(self, panel: Panel) -> Iterator[PanelPart]:
        step = PART_FLOATS // max(self.objects.width * panel.lists.valid.shape[1], self.objects.dim)
        step = min(MAX_PART, max(1, step))
        for start in range(0, len(panel), step):
            yield self._part(panel, slice(start, min(start + step, len(panel))))

    def _part(self, panel: Panel, at: slice) -> PanelPart:
        objects, catalog = self.objects, self.objects.catalog
        lists, inline, back = panel.impressions[at], panel.inline[at], np.arange(at.stop - at.start)
        queries: tuple[Block, CatalogRows]
        if catalog is None or panel.brought[at].any():
            queries = objects.block([one.query for one in lists])
        else:
            asked, back = np.unique(panel.query[at], return_inverse=True)
            queries = catalog.take(asked), asked
        rows = np.where(inline, 0, np.maximum(panel.shown[at], 0))
        block = None if catalog is None else catalog.take(rows.reshape(-1))
        places = zip(*(which.tolist() for which in np.nonzero(inline)), strict=True)
        others = objects.block([lists[n].shown[rank] for n, rank in places]) if inline.any() else None
        return PanelPart(at, queries, back, rows, block, inline, others)
