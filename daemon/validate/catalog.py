"""Measures over the whole catalog: by judgments, and with clicks as relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.judgments import BoundJudgments
from daemon.validate import measures
from daemon.validate.lists import stable_order
from daemon.validate.measures import TOP, Float, Scores
from daemon.validate.objects import MappedObjects
from daemon.validate.scorer import Scorer
from streams.event import ObjectRef
from streams.impression import Impression

SCORE_FLOATS = 1 << 22
"""Floats of one block of scores: queries are taken so many at a time that it holds their catalog rows."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the window: its newest object, and the catalog rows clicked for it."""

    ref: ObjectRef
    clicked: frozenset[int]


class CatalogJudge:
    """Ranks the whole catalog for at most `max_queries` distinct queries of the window.

    With judgments: the judged queries among them. The subset is chosen by a hash of the query's id, so that a
    moving window keeps mostly the same queries.
    """

    def __init__(self, objects: MappedObjects, judgments: BoundJudgments | None, max_queries: int) -> None:
        assert objects.catalog is not None
        self._objects = objects
        self._size = len(objects.catalog)
        self._judgments = judgments
        self._max_queries = max_queries

    def judge(self, scorer: Scorer, impressions: Sequence[Impression]) -> dict[str, float]:
        """`map_clicks`, and with judgments `map_full`, `p10_full`, `queries_full` and the macro averages by
        label.

        NaN where no query counts. Raises NotFinite.
        """
        queries = self._queries(impressions)
        table = np.full((len(queries), 3), np.nan)
        step = max(1, SCORE_FLOATS // max(1, self._size))
        for start in range(0, len(queries), step):
            table[start : start + step] = self._block(scorer, queries[start : start + step])
        out = {"map_clicks": measures.mean_over(table[:, 2])}
        return out if self._judgments is None else out | self._summary(queries, table)

    def _block(self, scorer: Scorer, part: Sequence[Query]) -> list[tuple[float, float, float]]:
        """One block of scores, gone when this returns: two alive at once would double the memory."""
        scores = scorer.catalog(scorer.fold([query.ref for query in part]))
        return [self._one(scores[row], query) for row, query in enumerate(part)]

    def _summary(self, queries: Sequence[Query], table: Float) -> dict[str, float]:
        assert self._judgments is not None
        out = {
            "queries_full": float(np.count_nonzero(~np.isnan(table[:, 0]))),
            "map_full": measures.mean_over(table[:, 0]),
            "p10_full": measures.mean_over(table[:, 1]),
        }
        labels = [self._judgments.label(query.ref.id or "") for query in queries]
        known = [label for label in labels if label is not None]
        if len(known) == len(labels):
            out["macro_map_full"] = measures.macro_over(table[:, 0], known)
            out["macro_p10_full"] = measures.macro_over(table[:, 1], known)
        return out

    def _one(self, scores: Scores, query: Query) -> tuple[float, float, float]:
        """AP and P@10 by judgments, AP with clicks as relevance; NaN where the query does not count."""
        own = self._objects.row_of(query.ref)
        clicked = np.array(sorted(query.clicked - {own}), np.int64)
        by_clicks = measures.average_precision(measures.ranks_of(scores, clicked, own))
        if self._judgments is None:
            return np.nan, np.nan, by_clicks
        ranks = measures.ranks_of(scores, self._judgments.relevant_rows(query.ref.id or ""), own)
        return measures.average_precision(ranks), measures.precision_at(ranks, TOP), by_clicks

    def _queries(self, impressions: Sequence[Impression]) -> list[Query]:
        newest: dict[str, ObjectRef] = {}
        clicked: dict[str, set[int]] = {}
        for impression in impressions:
            key = self._key(impression)
            if key is None:
                continue
            newest[key] = impression.query
            rows = (self._objects.row_of(impression.shown[rank]) for rank in impression.clicked)
            clicked.setdefault(key, set()).update(row for row in rows if row is not None)
        keys = sorted(newest, key=stable_order)[: self._max_queries]
        return [Query(newest[key], frozenset(clicked[key])) for key in keys]

    def _key(self, impression: Impression) -> str | None:
        """What makes queries the same; None leaves the impression out."""
        query_id = impression.query.id
        if self._judgments is None:
            # An id never starts with a control character, so this cannot meet a real id.
            return query_id if query_id is not None else f"\0{impression.id}"
        return query_id if query_id is not None and len(self._judgments.relevant_rows(query_id)) else None
