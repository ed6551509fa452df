"""Measures over the whole catalog, by the window's clicks and by judgments.

Clicks on shown lists can only confirm what the list maker chose. An object that another query's users
clicked, where both queries share a clicked object, was not chosen for this query, so a version cannot gain
by agreeing with the list maker.

The judged queries are the catalog's own objects that have judgments and that routing sends to the holdout:
no version is ever trained on them, and they are the same for every version, so the curve moves with the
versions alone. Queries that are no catalog objects (texts with features of their own, judged by qrels) are
known only once they are seen in the holdout window; they are judged as long as the window holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
from scipy import sparse

from daemon.validate import measures
from daemon.validate.judgments import BoundJudgments
from daemon.validate.measures import TOP, Float, Rows
from daemon.validate.scorer import MappedObjects, Panel, Scorer, stable_order
from streams.event import ObjectRef


class CoClicks:
    """Clicks of a panel's Q distinct queries on the catalog's n objects, as sparse matrices [Q, n]."""

    def __init__(self, panel: Panel, size: int) -> None:
        shape = (len(panel.queries), size)
        known = panel.shown >= 0
        clicked = known & panel.lists.clicked
        self._clicked = _incidence(panel, clicked, shape)
        own = panel.query >= 0
        self._barred = _distinct(
            np.r_[_owners(panel, known), panel.group[own]], np.r_[panel.shown[known], panel.query[own]], shape
        )
        popularity = np.maximum(1.0, np.asarray(self._clicked.sum(axis=0)).reshape(-1))
        self._rare = sparse.csr_array(self._clicked.multiply(1.0 / popularity))

    def clicked(self, query: int) -> Rows:
        """Rows clicked for a query, int64."""
        return _row(self._clicked, query)

    def barred(self, query: int) -> Rows:
        """Rows ever shown to a query, and its own, int64."""
        return _row(self._barred, query)

    def hops(self, start: int, stop: int) -> sparse.csr_array:
        """float64 [stop - start, n]: sum over other queries o that clicked the object of the weight of what
        q and o both clicked, 1 / (number of queries that clicked it); nothing where shown to q.
        """
        # What a query shares with itself leads only to what was shown to it, and that is taken out.
        hops = sparse.csr_array((self._rare[start:stop] @ self._clicked.T) @ self._clicked)
        hops = sparse.csr_array(hops - hops.multiply(self._barred[start:stop]))
        hops.eliminate_zeros()
        hops.sort_indices()
        return hops


def _owners(panel: Panel, places: np.ndarray) -> Rows:
    return np.repeat(panel.group, places.sum(axis=1))


def _incidence(panel: Panel, places: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    return _distinct(_owners(panel, places), panel.shown[places], shape)


def _distinct(rows: Rows, columns: Rows, shape: tuple[int, int]) -> sparse.csr_array:
    """1 at each named place, however often it is named."""
    found = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _row(matrix: sparse.csr_array, row: int) -> Rows:
    return np.asarray(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]], np.int64)


SCORE_FLOATS = 1 << 22
"""Floats of one block of scores: queries are taken so many at a time that it holds their catalog rows."""


def query_blocks(queries: int, catalog: int) -> list[slice]:
    """Cut queries so that the scores of a block fit SCORE_FLOATS (at least one query)."""
    step = max(1, SCORE_FLOATS // max(1, catalog))
    return [slice(at, min(at + step, queries)) for at in range(0, queries, step)]


class ClickJudge:
    """Ranks the whole catalog for at most `max_queries` distinct queries of the window.

    They are the first in the stable order of their ids, so that a moving window keeps mostly the same ones;
    the clicks of all queries tell what is two clicks away.
    """

    def __init__(self, objects: MappedObjects, max_queries: int) -> None:
        assert objects.catalog is not None
        self._objects = objects
        self._size = len(objects.catalog)
        self._max_queries = max_queries

    def judge(self, scorer: Scorer, panel: Panel) -> dict[str, float]:
        """`map_clicks`: AP with clicks as relevance. `hop_auc`: weighted AUC of what is two clicks away.

        NaN where no query counts. Raises NotFinite.
        """
        clicks = CoClicks(panel, self._size)
        found = np.full((min(len(panel.queries), self._max_queries), 2), np.nan)
        for part in query_blocks(len(found), self._size):
            found[part] = self._block(scorer, panel, clicks, part)
        return {"map_clicks": measures.mean_over(found[:, 0]), "hop_auc": measures.mean_over(found[:, 1])}

    def _block(
        self, scorer: Scorer, panel: Panel, clicks: CoClicks, part: slice
    ) -> list[tuple[float, float]]:
        """One block of scores, gone when this returns: two alive at once would double the memory."""
        scores = scorer.catalog(scorer.fold(panel.queries[part]))
        hops = clicks.hops(part.start, part.stop)
        out = []
        for row, query in enumerate(range(part.start, part.stop)):
            mine, own = scores[row], self._objects.row_of(panel.queries[query])
            ordered = np.sort(mine)
            clicked = clicks.clicked(query)
            ranks = measures.ranks_of(mine, clicked[clicked != own], own, ordered)
            hop = slice(hops.indptr[row], hops.indptr[row + 1])
            targets = hops.indices[hop].astype(np.int64)
            away = measures.weighted_auc(mine, ordered, targets, hops.data[hop], clicks.barred(query))
            out.append((measures.average_precision(ranks), away))
        return out


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
        self._objects = objects
        self._size = len(objects.catalog)
        self._judgments = judgments
        own = filter(is_holdout, judgments.catalog_queries())
        self.fixed = self._first([ObjectRef(one) for one in own], max_queries)
        self._more = max_queries - len(self.fixed)

    def seen(self, panel: Panel) -> list[ObjectRef]:
        """Judged queries of the window that are no catalog objects, as many as the fixed ones leave room
        for.
        """
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
            "map_full": measures.mean_over(table[:, 0]),
            "p10_full": measures.mean_over(table[:, 1]),
        }
        labels = [self._judgments.label(ref.id or "") for ref in queries]
        known = [label for label in labels if label is not None]
        if len(known) == len(labels):
            out["macro_map_full"] = measures.macro_over(table[:, 0], known)
            out["macro_p10_full"] = measures.macro_over(table[:, 1], known)
        return out

    def _block(self, scorer: Scorer, part: Sequence[ObjectRef]) -> list[tuple[float, float]]:
        """One block of scores, gone when this returns: two alive at once would double the memory."""
        scores = scorer.catalog(scorer.fold(part))
        out = []
        for row, ref in enumerate(part):
            relevant = self._judgments.relevant_rows(ref.id or "")
            ranks = measures.ranks_of(scores[row], relevant, self._objects.row_of(ref))
            out.append((measures.average_precision(ranks), measures.precision_at(ranks, TOP)))
        return out

    def _first(self, queries: Iterable[ObjectRef], count: int) -> list[ObjectRef]:
        ordered = sorted(queries, key=lambda ref: stable_order(ref.id or ""))
        judged = (ref for ref in ordered if len(self._judgments.relevant_rows(ref.id or "")))
        return list(islice(judged, max(0, count)))
