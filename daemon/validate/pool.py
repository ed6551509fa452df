"""Random objects that clicked ones are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemon.validate.lists import draw
from daemon.validate.measures import Rows
from daemon.validate.objects import MappedObjects
from daemon.validate.scorer import Scorer
from learners.block import Float32s
from streams.event import ObjectRef
from streams.impression import Impression

RANDOM_OBJECTS = 100
"""Drawn per impression: the AUC against 100 draws is within 0.05 of the AUC against all, 0.01 over 50
lists.
"""


class Pool:
    """Where random objects come from: the catalog, or without one every object shown in the window."""

    def __init__(self, objects: MappedObjects, impressions: Sequence[Impression]) -> None:
        self._objects = objects
        self._shown: list[ObjectRef] = []
        self._owner: list[str] = []
        if objects.catalog is None:
            self._shown = [ref for impression in impressions for ref in impression.shown]
            self._owner = [impression.id for impression in impressions for _ in impression.shown]

    def pick(self, impression: Impression) -> Rows:
        """At most RANDOM_OBJECTS places in the pool, seeded by the impression's id; int64.

        From a catalog: without the query and the clicked objects. From the window: without the own list.
        """
        if self._objects.catalog is None:
            picked = draw(impression.id, RANDOM_OBJECTS, len(self._shown))
            foreign = [place for place in picked.tolist() if self._owner[place] != impression.id]
            return np.array(foreign, np.int64)
        picked = draw(impression.id, RANDOM_OBJECTS, len(self._objects.catalog))
        refs = [impression.query, *(impression.shown[rank] for rank in impression.clicked)]
        barred = [row for row in map(self._objects.row_of, refs) if row is not None]
        allowed: Rows = picked[~np.isin(picked, barred)]
        return allowed

    def scores(self, scorer: Scorer, folded: Float32s, places: Rows) -> Float32s:
        """Scores of folded queries against the objects at these places, float32 [queries, places]."""
        if self._objects.catalog is not None:
            return scorer.rows(folded, places)
        return scorer.objects(folded, [self._shown[place] for place in places])
