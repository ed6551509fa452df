"""All measures of one version on one window, in blocks so that memory stays bounded.

On the shown lists work goes in parts of the panel. Scores are inner products of each query with its own
objects only, gathered row by row: a product of all queries of a part with all its objects would throw most of
itself away. Clicked objects are also compared with random ones, drawn from the catalog or the window.

Memory beyond the window and the mapped catalog: one block of scores (`SCORE_FLOATS` float32, 16 MB, or one
row of the catalog if that is longer), at most as many weights of co-clicked objects (12 bytes each), one
sorted row, one part of gathered objects (`PART_FLOATS` float32, 4 MB) and one float32 per catalog object.
The same version on the same window gives the same numbers: blocks are cut alike, draws are seeded by
impression id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from daemon.validate import measures
from daemon.validate.catalog import ClickJudge, JudgedQueries
from daemon.validate.decide import CLICKS_MEASURE, HOP_WEIGHT
from daemon.validate.measures import TOP, Float, Mask, PositionBalance, Rows, Scores
from daemon.validate.scorer import MappedObjects, Panel, Scorer, ShownLists, draws, make_panel
from learners.block import Float32s
from streams.event import Impression

RANDOM_OBJECTS = 100
"""Drawn per impression: the AUC against 100 draws is within 0.05 of the AUC against all, 0.01 over 50
lists.
"""

POOL_OBJECTS = 1024
"""Objects drawn from without a catalog: scored against every query, so that none is mapped twice."""
POOL_FLOATS = 1 << 23


class Pool(Protocol):
    """Where random objects come from."""

    def scores(self, folded: Float32s, part: slice) -> tuple[Float32s, Mask]:
        """Scores float32[n, RANDOM_OBJECTS] of the impressions of a panel's part against random objects,
        and which of these count: neither the query nor shown. folded: their queries [n, d].
        """


class CatalogPool:
    """Uniform draws from the catalog, seeded by the impression's id."""

    def __init__(self, scorer: Scorer, objects: MappedObjects, panel: Panel) -> None:
        assert objects.catalog is not None
        self._size = len(objects.catalog)
        self._scorer = scorer
        self._panel = panel

    def scores(self, folded: Float32s, part: slice) -> tuple[Float32s, Mask]:
        """See Pool."""
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
        self._panel = panel
        self._ids = [refs[place].id for place in places]
        self._items = scorer.items([refs[place] for place in places])
        self._owner: Rows = np.array(owners, np.int64)[places]
        self._scorer = scorer

    def scores(self, folded: Float32s, part: slice) -> tuple[Float32s, Mask]:
        """See Pool."""
        impressions = self._panel.impressions[part]
        picked = draws([one.id for one in impressions], RANDOM_OBJECTS, len(self._ids))
        numbers = np.arange(part.start, part.start + len(impressions))
        counts = self._owner[picked] != numbers[:, None]
        for row, one in enumerate(impressions):
            barred = {ref.id for ref in (one.query, *one.shown) if ref.id is not None}
            if barred:
                counts[row] &= [self._ids[place] not in barred for place in picked[row].tolist()]
        return np.take_along_axis(self._scorer.against(folded, self._items), picked, axis=1), counts


def make_pool(scorer: Scorer, objects: MappedObjects, panel: Panel) -> Pool:
    """The pool of one version's judgement; a panel without impressions needs none."""
    return (
        WindowPool(scorer, objects, panel) if objects.catalog is None else CatalogPool(scorer, objects, panel)
    )


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


Measures = dict[str, float]
NO_EVIDENCE = 0.5
"""AUC of what tells nothing."""


class Judge:
    """Judges versions on a window.

    `judged`: the queries with judgments, or None; at most `max_queries` queries of the window are ranked
    against the whole catalog by their clicks. Without a catalog only the shown lists are judged, and random
    objects come from other lists of the window.
    """

    def __init__(self, objects: MappedObjects, judged: JudgedQueries | None, max_queries: int) -> None:
        self.objects = objects
        self._shown = ShownJudge(objects)
        self._clicks = None if objects.catalog is None else ClickJudge(objects, max_queries)
        self._judged = judged

    def panel(self, impressions: Sequence[Impression]) -> Panel:
        """Usable impressions, oldest first, prepared for any number of versions."""
        return make_panel(self.objects, impressions)

    def judge(self, scorer: Scorer, panel: Panel, fixed: Float | None = None) -> Measures:
        """Measures by name; those that cannot be had (no catalog, no judged query) are absent.

        `panel`: at least one impression. `fixed`: what `fixed_table` gives for this version, where it is
        known already. Raises NotFinite.
        """
        out = self._shown.judge(scorer, panel)
        if self._clicks is not None:
            out |= self._clicks.judge(scorer, panel)
            hop = out["hop_auc"]
            away = NO_EVIDENCE if np.isnan(hop) else hop
            out[CLICKS_MEASURE] = out["position_balanced"] + HOP_WEIGHT * away
        if self._judged is not None:
            seen = self._judged.seen(panel)
            fixed = self.fixed_table(scorer) if fixed is None else fixed
            table = np.concatenate([fixed, self._judged.table(scorer, seen)])
            out |= self._judged.summary([*self._judged.fixed, *seen], table)
        return {name: value for name, value in out.items() if not np.isnan(value)}

    def fixed_table(self, scorer: Scorer) -> Float:
        """AP and P@10 of the fixed judged queries, float64 [n, 2]: the same on every window."""
        if self._judged is None:
            return np.zeros((0, 2))
        return self._judged.table(scorer, self._judged.fixed)

    def losses(self, scorer: Scorer, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression: mean hinge over its (clicked, unclicked) pairs. float64[n]."""
        return self._shown.losses(scorer, self.panel(impressions))
