"""Measures on the shown lists: inside them, and of their clicked objects against random ones.

Work goes in parts of the panel. Scores are inner products of each query with its own objects only, gathered
row by row: a product of all queries of a part with all its objects would throw most of itself away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daemon.validate import measures
from daemon.validate.balance import PositionBalance
from daemon.validate.lists import ShownLists
from daemon.validate.measures import TOP, Float, Scores
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel
from daemon.validate.pool import RANDOM_OBJECTS, make_pool
from daemon.validate.scorer import Scorer
from learners.block import Float32s

PART_FLOATS = 1 << 20
"""Floats of the gathered objects, and of the pairs of ranks, of one part: 4 MB stay near the processor."""
MAX_PART = 256


class ShownJudge:
    """Judges versions on the lists of a panel."""

    def __init__(self, objects: MappedObjects) -> None:
        self._objects = objects

    def judge(self, scorer: Scorer, panel: Panel) -> dict[str, float]:
        """Measures by name, NaN where none can be had. At least one impression. Raises NotFinite."""
        columns: dict[str, list[Float]] = {}
        balance = PositionBalance(panel.lists.valid.shape[1])
        pool = make_pool(scorer, self._objects, panel)
        for part in self._parts(panel):
            lists = panel.lists.slice(part)
            folded = self._fold(scorer, panel, part)
            scores = self._scores(scorer, folded, panel, part)
            balance.add(scores, lists.clicked, lists.valid)
            found = _inside(scores, lists)
            random, counts = pool.scores(folded, part)
            found["clicked_vs_random"] = measures.auc_per_list(scores, lists.clicked, random, counts)
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
        out = {name: measures.mean_over(np.concatenate(parts)) for name, parts in columns.items()}
        return {"position_balanced": balance.value()} | out

    def losses(self, scorer: Scorer, panel: Panel) -> Float:
        """Holdout loss of each impression, in the order the panel was made from: mean hinge over its
        (clicked, unclicked) pairs. float64[n].
        """
        out = np.zeros(len(panel))
        for part in self._parts(panel):
            lists = panel.lists.slice(part)
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
