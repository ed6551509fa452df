"""Measures over the whole catalog by judgments, on queries that are fixed from the start.

The judged queries are the catalog's own objects that have judgments and that routing sends to the holdout:
no version is ever trained on them, and they are the same for every version, so the curve moves with the
versions alone. Queries that are no catalog objects (texts with features of their own, judged by qrels) are
known only once they are seen in the holdout window; they are judged as long as the window holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from daemon.validate import measures
from daemon.validate.catalog import query_blocks
from daemon.validate.judgments import BoundJudgments
from daemon.validate.lists import stable_order
from daemon.validate.measures import TOP, Float
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel
from daemon.validate.scorer import Scorer
from streams.event import ObjectRef


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
