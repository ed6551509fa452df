"""Scores of a form that does not fold, with what it keeps of the catalog's objects made once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daemon.validate.objects import MappedObjects
from learners.block import Block, DenseBlock, Float32s
from learners.faults import dense_rows
from learners.forms.quadratic import ServedForm, featured


class PairScores:
    """Holds the features of the catalog's objects where the form has any: 4 F bytes each."""

    def __init__(self, form: ServedForm, objects: MappedObjects) -> None:
        self._form = form
        has_some = featured(form) and objects.catalog is not None
        self.catalog = self._made(objects.catalog) if has_some and objects.catalog is not None else None

    def features(self, block: Block, rows: NDArray[np.int32]) -> Float32s:
        """Of objects from these catalog rows, -1 for those that brought features of their own; float32
        [n, F], F = 0 for a form without any."""
        if self.catalog is None:
            return self._made(block)
        found = self.catalog[rows]
        own = np.flatnonzero(rows < 0)
        if len(own):
            found[own] = self._made(block.take(own))
        return found

    def ready(self, block: Block, rows: NDArray[np.int32]) -> Float32s:
        """Queries with their features beside them, float32 [n, d + F]."""
        return np.hstack([dense_rows(block), self.features(block, rows)])

    def scores(self, queries: Float32s, items: Block, features: Float32s) -> Float32s:
        """Of all pairs, float32 [queries, items]; queries: as `ready` gives them."""
        dim = self._form.dim
        asked = DenseBlock(queries[:, :dim])
        if featured(self._form):
            own = np.ascontiguousarray(queries[:, dim:])
            return self._form.pair_scores(asked, own, items, features)
        return self._form.scores(asked, items)

    def _made(self, block: Block) -> Float32s:
        return self._form.features(block) if featured(self._form) else np.zeros((len(block), 0), np.float32)
