"""All measures of one version on one window, in blocks so that memory stays bounded.

Memory beyond the window and the mapped catalog: one block of scores (`SCORE_FLOATS` float32, 16 MB, or one
row of the catalog if that is longer), at most as many weights of co-clicked objects (12 bytes each), one
sorted row, one part of gathered objects (`PART_FLOATS` float32, 4 MB) and one float32 per catalog object.
The same version on the same window gives the same numbers: blocks are cut alike, draws are seeded by
impression id.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemon.validate.catalog import ClickJudge
from daemon.validate.judged import JudgedQueries
from daemon.validate.measures import Float
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel, make_panel
from daemon.validate.rules import CLICKS_MEASURE, HOP_WEIGHT
from daemon.validate.scorer import Scorer
from daemon.validate.shown import ShownJudge
from streams.event import Impression

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
