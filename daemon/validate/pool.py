"""Random objects that clicked ones are compared with."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from daemon.validate.lists import draws
from daemon.validate.measures import Mask, Rows
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel
from daemon.validate.scorer import Scorer
from learners.block import Float32s

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
