"""Measures over the whole catalog with the window's clicks as relevance."""

from __future__ import annotations

import numpy as np

from daemon.validate import measures
from daemon.validate.coclicks import CoClicks
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel
from daemon.validate.scorer import Scorer

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
