"""All measures of one version on one window, in blocks so that memory stays bounded.

Memory beyond the window and the mapped catalog: one block of scores (`SCORE_FLOATS` float32, 16 MB, or one
row of the catalog if that is longer), one sorted row, one block of mapped objects (`OBJECT_FLOATS` float32,
32 MB) and one float32 per catalog object. The same version on the same window gives the same numbers: blocks
are cut alike, draws are seeded by impression id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from daemon.judgments import BoundJudgments
from daemon.validate import measures
from daemon.validate.catalog import CatalogJudge
from daemon.validate.lists import ShownLists, shown_lists
from daemon.validate.measures import TOP, Float, Scores
from daemon.validate.objects import MappedObjects
from daemon.validate.pool import RANDOM_OBJECTS, Pool
from daemon.validate.scorer import Scorer
from learners.block import Float32s
from streams.impression import Impression

OBJECT_FLOATS = 1 << 23
MAX_LISTS = 32

Measures = dict[str, float]


class Judge:
    """Judges versions on a window.

    `judgments` are bound to the catalog, at most `max_queries` queries are ranked against the whole catalog.
    Without a catalog only the shown lists are judged, and random objects come from other lists of the window.
    """

    def __init__(self, objects: MappedObjects, judgments: BoundJudgments | None, max_queries: int) -> None:
        self.objects = objects
        self._catalog = None
        if objects.catalog is not None:
            self._catalog = CatalogJudge(objects, judgments, max_queries)

    def judge(self, scorer: Scorer, impressions: Sequence[Impression]) -> Measures:
        """Measures by name; those that cannot be had (no catalog, no judged query) are absent.

        `impressions`: usable ones, oldest first, at least one. Raises NotFinite.
        """
        out = self._judge_shown(scorer, impressions)
        if self._catalog is not None:
            out |= self._catalog.judge(scorer, impressions)
        return {name: value for name, value in out.items() if not np.isnan(value)}

    def losses(self, scorer: Scorer, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression: mean hinge over its (clicked, unclicked) pairs. float64[n]."""
        parts = [np.zeros(0)]
        for part in self._blocks(impressions):
            lists = shown_lists(part)
            scores = _score_lists(scorer, scorer.fold([one.query for one in part]), part, lists)
            parts.append(measures.shown_hinge(scores, lists.clicked, lists.valid))
        return np.concatenate(parts)

    def _judge_shown(self, scorer: Scorer, impressions: Sequence[Impression]) -> Measures:
        columns: dict[str, list[Float]] = {}
        pool = Pool(self.objects, impressions)
        for part in self._blocks(impressions):
            lists = shown_lists(part)
            folded = scorer.fold([impression.query for impression in part])
            scores = _score_lists(scorer, folded, part, lists)
            found = _shown_measures(scores, lists)
            found["clicked_vs_random"] = _clicked_vs_random(scorer, folded, part, scores, pool)
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
        return {name: measures.mean_over(np.concatenate(parts)) for name, parts in columns.items()}

    def _blocks(self, impressions: Sequence[Impression]) -> Iterator[Sequence[Impression]]:
        longest = max((len(impression.shown) for impression in impressions), default=1)
        step = OBJECT_FLOATS // (self.objects.dim * max(longest, RANDOM_OBJECTS))
        step = min(MAX_LISTS, max(1, step))
        return (impressions[start : start + step] for start in range(0, len(impressions), step))


def _score_lists(scorer: Scorer, folded: Float32s, part: Sequence[Impression], lists: ShownLists) -> Float32s:
    """Scores of each shown list, float32[n, L], 0 on padding."""
    everything = scorer.objects(folded, [ref for impression in part for ref in impression.shown])
    scores = np.zeros(lists.valid.shape, np.float32)
    owner = np.repeat(np.arange(len(part)), lists.valid.sum(axis=1))
    scores[lists.valid] = everything[owner, np.arange(len(owner))]
    return scores


def _clicked_vs_random(
    scorer: Scorer, folded: Float32s, part: Sequence[Impression], scores: Float32s, pool: Pool
) -> Float:
    """AUC of each list's clicked objects against its random objects, float64[n]."""
    picks = [pool.pick(impression) for impression in part]
    random = pool.scores(scorer, folded, np.concatenate(picks))
    out, start = np.full(len(part), np.nan), 0
    for row, (impression, pick) in enumerate(zip(part, picks, strict=True)):
        clicked = scores[row, list(impression.clicked)]
        out[row] = measures.auc(clicked, random[row, start : start + len(pick)])
        start += len(pick)
    return out


def _shown_measures(scores: Scores, lists: ShownLists) -> dict[str, Float]:
    ranks, seen = measures.shown_ranks(scores, lists.valid), lists.shown_order
    return {
        "map_shown": measures.shown_average_precision(ranks, lists.clicked, lists.weights),
        "ndcg_shown": measures.shown_ndcg(ranks, lists.clicked, TOP),
        "shown_order_map": measures.shown_average_precision(seen, lists.clicked, lists.weights),
        "shown_order_ndcg": measures.shown_ndcg(seen, lists.clicked, TOP),
        "loss": measures.shown_hinge(scores, lists.clicked, lists.valid),
    }
