"""All measures of one version on one window, in blocks so that memory stays bounded.

On the shown lists work goes in parts of the panel. Scores are inner products of each query with its own
objects only, gathered row by row: a product of all queries of a part with all its objects would throw most of
itself away. Clicked objects are also compared with random ones, drawn from the catalog or the window.

Memory beyond the window and the mapped catalog: one block of scores (`SCORE_FLOATS` float32, 16 MB, or one
row of the catalog if that is longer), one sorted row, one part of gathered objects (`PART_FLOATS` float32,
4 MB) and one float32 per catalog object.
The same version on the same window gives the same numbers: blocks are cut alike, draws are seeded by
impression id.

The judged queries are the catalog's own objects that have judgments and that routing sends to the holdout:
no version is ever trained on them, and they are the same for every version, so the curve moves with the
versions alone. Queries that are no catalog objects (texts with features of their own, judged by qrels) are
known only once they are seen in the holdout window; they are judged as long as the window holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from daemon.validate import measures
from daemon.validate.comparing import Measures, Scored
from daemon.validate.judgments import BoundJudgments
from daemon.validate.measures import TOP, PositionBalance
from daemon.validate.scorer import MappedObjects, Panel, Scorer, draws, make_panel, stable_order
from daemon.validate.shown import Float, Mask, Rows, Scores, ShownLists
from learners.block import Float32s
from learners.measures import average_precision, macro_over, mean_over, precision_at_k, ranks_of
from streams.event import Impression, ObjectRef

SCORE_FLOATS = 1 << 22
"""Floats of one block of scores: queries are taken so many at a time that it holds their catalog rows."""


def query_blocks(queries: int, catalog: int) -> list[slice]:
    """Cut queries so that the scores of a block fit SCORE_FLOATS (at least one query)."""
    step = max(1, SCORE_FLOATS // max(1, catalog))
    return [slice(at, min(at + step, queries)) for at in range(0, queries, step)]


class ClickJudge:
    """Ranks the whole catalog for at most `max_queries` distinct queries of the window.

    They are the first in the stable order of their ids, so that a moving window keeps mostly the same ones.
    """

    def __init__(self, objects: MappedObjects, max_queries: int) -> None:
        assert objects.catalog is not None
        self._objects, self._size, self._max_queries = objects, len(objects.catalog), max_queries

    def map_clicks(self, scorer: Scorer, panel: Panel) -> float:
        """AP over the catalog with the objects clicked for a query as the relevant ones, mean of queries; NaN
        where none counts. Raises NotFinite.
        """
        clicked: dict[int, set[int]] = {}
        owner, rank = np.nonzero(panel.lists.clicked & (panel.shown >= 0))
        for query, row in zip(panel.group[owner].tolist(), panel.shown[owner, rank].tolist(), strict=True):
            clicked.setdefault(query, set()).add(row)
        precision: list[float] = []
        for part in query_blocks(min(len(panel.queries), self._max_queries), self._size):
            scores = scorer.catalog(scorer.fold(panel.queries[part]))
            for row, query in enumerate(range(part.start, part.stop)):
                own = self._objects.row_of(panel.queries[query])
                rows = np.array(sorted(clicked.get(query, set()) - {own}), np.int64)
                precision.append(average_precision(ranks_of(scores[row], rows, own)))
            del scores  # two blocks alive at once would double the memory
        return mean_over(np.array(precision))


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
        assert objects.catalog is not None
        self._objects, self._size, self._judgments = objects, len(objects.catalog), judgments
        own = filter(is_holdout, judgments.catalog_queries())
        self.fixed = self._first([ObjectRef(one) for one in own], max_queries)
        self._more = max_queries - len(self.fixed)

    def seen(self, panel: Panel) -> list[ObjectRef]:
        """Judged queries of the window that are no catalog objects, as many as there is room for."""
        strangers = (ref for ref in panel.queries if ref.id is not None and self._objects.row_of(ref) is None)
        return self._first(strangers, self._more)

    def table(self, scorer: Scorer, queries: Sequence[ObjectRef]) -> Float:
        """AP and P@10 of each query, float64 [n, 2]. Raises NotFinite."""
        table = np.full((len(queries), 2), np.nan)
        for part in query_blocks(len(queries), self._size):
            table[part] = self._block(scorer, queries[part])
        return table

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

    def _block(self, scorer: Scorer, part: Sequence[ObjectRef]) -> list[tuple[float, float]]:
        """One block of scores, gone when this returns: two alive at once would double the memory."""
        scores = scorer.catalog(scorer.fold(part))
        out = []
        for row, ref in enumerate(part):
            relevant = self._judgments.relevant_rows(ref.id or "")
            ranks = ranks_of(scores[row], relevant, self._objects.row_of(ref))
            out.append((average_precision(ranks), precision_at_k(ranks, TOP)))
        return out

    def _first(self, queries: Iterable[ObjectRef], count: int) -> list[ObjectRef]:
        ordered = sorted(queries, key=lambda ref: stable_order(ref.id or ""))
        judged = (ref for ref in ordered if len(self._judgments.relevant_rows(ref.id or "")))
        return list(islice(judged, max(0, count)))


RANDOM_OBJECTS = 100
"""Per impression: the AUC against 100 draws is within 0.05 of that against all, 0.01 over 50 lists."""

POOL_OBJECTS = 1024
"""Objects drawn from without a catalog: scored against every query, so that none is mapped twice."""
POOL_FLOATS = 1 << 23


class CatalogPool:
    """Random objects that clicked ones are compared with: uniform draws, seeded by the impression's id."""

    def __init__(self, scorer: Scorer, objects: MappedObjects, panel: Panel) -> None:
        assert objects.catalog is not None
        self._size, self._scorer, self._panel = len(objects.catalog), scorer, panel

    def scores(self, folded: Float32s, part: slice) -> tuple[Float32s, Mask]:
        """Scores float32[n, RANDOM_OBJECTS] of the impressions of a panel's part against random objects,
        and which of these count: neither the query nor shown. folded: their queries [n, d].
        """
        picked = draws([one.id for one in self._panel.impressions[part]], RANDOM_OBJECTS, self._size)
        counts = picked != self._panel.query[part, None]
        for rank in range(self._panel.shown.shape[1]):
            counts &= picked != self._panel.shown[part, rank, None]
        return self._scorer.rows(folded, picked), counts


class WindowPool:
    """Without a catalog: draws from POOL_OBJECTS objects shown in the window, at even distances in it."""

    def __init__(self, scorer: Scorer, objects: MappedObjects, panel: Panel) -> None:
        owners = [n for n, one in enumerate(panel.impressions) for _ in one.shown]
        refs = [ref for one in panel.impressions for ref in one.shown]
        size = max(1, min(POOL_OBJECTS, POOL_FLOATS // objects.dim, len(refs)))
        places = np.linspace(0, len(refs) - 1, size).astype(np.int64)
        self._panel, self._scorer = panel, scorer
        self._ids = [refs[place].id for place in places]
        self._items = scorer.items([refs[place] for place in places])
        self._owner: Rows = np.array(owners, np.int64)[places]

    def scores(self, folded: Float32s, part: slice) -> tuple[Float32s, Mask]:
        """See `CatalogPool.scores`."""
        impressions = self._panel.impressions[part]
        picked = draws([one.id for one in impressions], RANDOM_OBJECTS, len(self._ids))
        numbers = np.arange(part.start, part.start + len(impressions))
        counts = self._owner[picked] != numbers[:, None]
        for row, one in enumerate(impressions):
            barred = {ref.id for ref in (one.query, *one.shown) if ref.id is not None}
            if barred:
                counts[row] &= [self._ids[place] not in barred for place in picked[row].tolist()]
        return np.take_along_axis(self._scorer.against(folded, self._items), picked, axis=1), counts


PART_FLOATS = 1 << 20
"""Floats of the gathered objects, and of the pairs of ranks, of one part: 4 MB stay near the processor."""
MAX_PART = 256


class ShownJudge:
    """Judges versions on the lists of a panel."""

    def __init__(self, objects: MappedObjects) -> None:
        self._objects = objects

    def judge(self, scorer: Scorer, panel: Panel) -> tuple[dict[str, float], Scores]:
        """Measures by name, NaN where none can be had, and the scores of the lists, float32[n, L].

        At least one impression. Raises NotFinite.
        """
        columns: dict[str, list[Float]] = {}
        every = np.zeros(panel.lists.valid.shape, np.float32)
        balance = PositionBalance(panel.lists.valid.shape[1])
        pool = (WindowPool if self._objects.catalog is None else CatalogPool)(scorer, self._objects, panel)
        for part in self._parts(panel):
            lists = panel.lists.at(part)
            folded = self._fold(scorer, panel, part)
            scores = every[part] = self._scores(scorer, folded, panel, part)
            balance.add(scores, lists.clicked, lists.valid)
            found = _inside(scores, lists)
            random, counts = pool.scores(folded, part)
            found["clicked_vs_random"] = measures.auc_per_list(scores, lists.clicked, random, counts)
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
        out = {name: mean_over(np.concatenate(parts)) for name, parts in columns.items()}
        return {"position_balanced": balance.value()} | out, every

    def scores(self, scorer: Scorer, panel: Panel) -> Scores:
        """Of the lists alone, float32[n, L] in the order the panel was made from. Raises NotFinite."""
        every = np.zeros(panel.lists.valid.shape, np.float32)
        for part in self._parts(panel):
            every[part] = self._scores(scorer, self._fold(scorer, panel, part), panel, part)
        return np.asarray(panel.in_time(every))

    def losses(self, scorer: Scorer, panel: Panel) -> Float:
        """Holdout loss of each impression, in the order the panel was made from: mean hinge over its
        (clicked, unclicked) pairs. float64[n].
        """
        out = np.zeros(len(panel))
        for part in self._parts(panel):
            lists = panel.lists.at(part)
            scores = self._scores(scorer, self._fold(scorer, panel, part), panel, part)
            out[panel.order[part]] = measures.shown_hinge(scores, lists.clicked, lists.valid)
        return out

    def _fold(self, scorer: Scorer, panel: Panel, part: slice) -> Float32s:
        """Queries of a part, float32[n, d]; one that is repeated with the same features is folded once."""
        refs = [one.query for one in panel.impressions[part]]
        if any(ref.features() is not None for ref in refs):
            return scorer.fold(refs)
        _, first, back = np.unique(panel.query[part], return_index=True, return_inverse=True)
        folded: Float32s = scorer.fold([refs[place] for place in first.tolist()])[back]
        return folded

    def _scores(self, scorer: Scorer, folded: Float32s, panel: Panel, part: slice) -> Float32s:
        """Scores of each shown list, float32[n, L]; padding holds numbers without meaning."""
        inline = panel.inline[part]
        if self._objects.catalog is None:
            scores = np.zeros(inline.shape, np.float32)
        else:
            scores = scorer.rows(folded, np.where(inline, 0, np.maximum(panel.shown[part], 0)))
        if inline.any():
            owner, rank = np.nonzero(inline)
            lists = panel.impressions[part]
            refs = [lists[n].shown[r] for n, r in zip(owner.tolist(), rank.tolist(), strict=True)]
            scores[inline] = scorer.pairs(folded, owner, refs)
        return scores

    def _parts(self, panel: Panel) -> Iterator[slice]:
        length = panel.lists.valid.shape[1]
        gathered = self._objects.width * max(length, RANDOM_OBJECTS)
        step = PART_FLOATS // max(gathered, self._objects.dim, length * length)
        step = min(MAX_PART, max(1, step))
        return (slice(at, min(at + step, len(panel))) for at in range(0, len(panel), step))


def _inside(scores: Scores, lists: ShownLists) -> dict[str, Float]:
    ranks, seen = measures.shown_ranks(scores, lists.valid), lists.shown_order
    return {
        "map_shown": measures.shown_average_precision(ranks, lists.clicked, lists.weights),
        "ndcg_shown": measures.shown_ndcg(ranks, lists.clicked, TOP),
        "shown_order_map": measures.shown_average_precision(seen, lists.clicked, lists.weights),
        "shown_order_ndcg": measures.shown_ndcg(seen, lists.clicked, TOP),
        "loss": measures.shown_hinge(scores, lists.clicked, lists.valid),
    }


class Judge:
    """Judges versions on a window.

    `judged`: the queries with judgments, or None; at most `max_queries` queries of the window are ranked
    against the whole catalog by their clicks. Without a catalog only the shown lists are judged, and random
    objects come from other lists of the window.
    """

    def __init__(self, objects: MappedObjects, judged: JudgedQueries | None, max_queries: int) -> None:
        self.objects, self._shown, self._judged = objects, ShownJudge(objects), judged
        self.max_queries = max_queries
        self._clicks = None if objects.catalog is None else ClickJudge(objects, max_queries)

    def panel(self, impressions: Sequence[Impression]) -> Panel:
        """Usable impressions, oldest first, prepared for any number of versions."""
        return make_panel(self.objects, impressions)

    def judge(self, scorer: Scorer, panel: Panel, fixed: Float | None = None) -> Measures:
        """Measures by name; those that cannot be had (no catalog, no judged query) are absent.

        `panel`: at least one impression. `fixed`: what `fixed_table` gives for this version, where it is
        known already. Raises NotFinite.
        """
        return self.look(scorer, panel, fixed).measures

    def look(self, scorer: Scorer, panel: Panel, fixed: Float | None = None) -> Scored:
        """As `judge`, with what two versions are compared by."""
        out, scores = self._shown.judge(scorer, panel)
        shown = panel.in_time(scores)
        precision = np.zeros(0)
        if self._clicks is not None:
            out["map_clicks"] = self._clicks.map_clicks(scorer, panel)
        if self._judged is not None:
            seen = self._judged.seen(panel)
            fixed = self.fixed_table(scorer) if fixed is None else fixed
            table = np.concatenate([fixed, self._judged.table(scorer, seen)])
            out |= self._judged.summary([*self._judged.fixed, *seen], table)
            precision = table[:, 0]
        known = {name: value for name, value in out.items() if not np.isnan(value)}
        return Scored(known, shown, precision=precision)

    def shown_scores(self, scorer: Scorer, panel: Panel) -> Scores:
        """Scores of the lists in the order of time, float32[n, L], and nothing else. Raises NotFinite."""
        return self._shown.scores(scorer, panel)

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

    def fixed_table(self, scorer: Scorer) -> Float:
        """AP and P@10 of the fixed judged queries, float64 [n, 2]: the same on every window."""
        if self._judged is None:
            return np.zeros((0, 2))
        return self._judged.table(scorer, self._judged.fixed)

    def losses(self, scorer: Scorer, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression: mean hinge over its (clicked, unclicked) pairs. float64[n]."""
        return self._shown.losses(scorer, self.panel(impressions))
