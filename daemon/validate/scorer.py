"""Scores of one version's serving form, with the norms of the catalog's objects computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daemon.validate.objects import MappedObjects
from learners.block import Block, Float32s
from learners.scores import against
from learners.serving import ServingForm, inverse_roots
from streams.event import ObjectRef


class NotFinite(Exception):
    """A score is NaN or infinite: the version cannot be ranked and must never be served."""


class Scorer:
    """Scores S(q, p), divided by sqrt(S(q, q) S(p, p)) where the form is normalised.

    Queries are folded once (`fold`) and then scored against objects, catalog rows or the whole catalog; every
    result is float32 [queries, items] and finite, else NotFinite. Holds one float32 per catalog object.
    """

    def __init__(self, form: ServingForm, objects: MappedObjects) -> None:
        self._form = form
        self._objects = objects
        self._roots: Float32s | None = None
        if form.normalised and objects.catalog is not None:
            self._roots = inverse_roots(form.self_scores(objects.catalog))

    def fold(self, refs: Sequence[ObjectRef]) -> Float32s:
        """Queries ready to be multiplied with items: S q, over its norm where normalised; float32 [n, d]."""
        block, _ = self._objects.block(refs)
        folded = self._form.fold(block)
        if self._form.normalised:
            folded *= inverse_roots(self._form.self_scores(block))[:, None]
        return folded

    def catalog(self, folded: Float32s) -> Float32s:
        """Scores against every catalog object, in row order."""
        assert self._objects.catalog is not None
        return _finish(folded, self._objects.catalog, self._roots)

    def rows(self, folded: Float32s, rows: NDArray[np.int64]) -> Float32s:
        """Scores against these catalog rows."""
        assert self._objects.catalog is not None
        roots = None if self._roots is None else self._roots[rows]
        return _finish(folded, self._objects.catalog.take(rows), roots)

    def objects(self, folded: Float32s, refs: Sequence[ObjectRef]) -> Float32s:
        """Scores against any objects."""
        block, rows = self._objects.block(refs)
        return _finish(folded, block, self._object_roots(block, rows))

    def _object_roots(self, block: Block, rows: NDArray[np.int32]) -> Float32s | None:
        if not self._form.normalised:
            return None
        if self._roots is None:
            return inverse_roots(self._form.self_scores(block))
        roots = self._roots[rows]
        own = np.flatnonzero(rows < 0)
        if len(own):
            roots[own] = inverse_roots(self._form.self_scores(block.take(own)))
        return roots


def _finish(folded: Float32s, items: Block, roots: Float32s | None) -> Float32s:
    scores = against(folded, items)
    if roots is not None:
        scores *= roots
    if not np.isfinite(scores).all():
        raise NotFinite("a score is not a finite number")
    return scores
