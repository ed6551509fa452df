"""Scores of one version's serving form, with the norms of the catalog's objects computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemon.validate.measures import Rows
from daemon.validate.objects import MappedObjects
from daemon.validate.pair_scores import PairScores
from learners.block import Block, DenseBlock, Float32s, against
from learners.forms.diagonal import IdentityForm
from learners.forms.quadratic import ServedForm, apply_terms, folds, has_terms, terms_of
from streams.event import ObjectRef


class NotFinite(Exception):
    """A score is NaN or infinite: the version cannot be ranked and must never be served."""


@dataclass(frozen=True, slots=True)
class Items:
    """Objects ready to be scored by one version: mapped features, `terms_of` each where there are any, and
    what a form that does not fold keeps of each."""

    block: Block
    terms: Float32s | None
    features: Float32s | None = None

    def take(self, rows: NDArray[np.int64]) -> Items:
        """Some of them, without their terms."""
        return Items(self.block.take(rows), None, None if self.features is None else self.features[rows])


class Scorer:
    """Scores S(q, p), divided by sqrt(S(q, q) S(p, p)) where the form is normalised; minus a distance but for
    what is the query's alone, where the form is one.

    Queries are folded once (`fold`) and then scored against items, catalog rows or the whole catalog; every
    result is float32 and finite, else NotFinite. Holds one float32 per catalog object. A form that does not
    fold scores each pair itself.
    """

    def __init__(self, form: ServedForm, objects: MappedObjects) -> None:
        self._form = form if folds(form) else IdentityForm(form.dim, normalised=False)
        self._pairs = None if folds(form) else PairScores(form, objects)
        self._objects = objects
        self._terms: Float32s | None = None
        if has_terms(self._form) and objects.catalog is not None:
            self._terms = terms_of(self._form, form.self_scores(objects.catalog))

    def fold(self, refs: Sequence[ObjectRef]) -> Float32s:
        """Queries ready to be scored: S q, over its norm where normalised, or the queries themselves where
        the form does not fold; float32 [n, any]."""
        block, rows = self._objects.block(refs)
        if self._pairs is not None:
            return self._pairs.ready(block, rows)
        folded = self._form.fold(block)
        if self._form.normalised:
            folded *= self._terms_of(block, rows)[:, None]
        return folded

    def items(self, refs: Sequence[ObjectRef]) -> Items:
        """Any objects, ready to be scored."""
        block, rows = self._objects.block(refs)
        features = None if self._pairs is None else self._pairs.features(block, rows)
        return Items(block, self._terms_of(block, rows) if has_terms(self._form) else None, features)

    def against(self, folded: Float32s, items: Items) -> Float32s:
        """Scores of all queries against all items, [queries, items]."""
        return self._finish(self._products(folded, items), items.terms)

    def catalog(self, folded: Float32s) -> Float32s:
        """Scores against every catalog object, in row order, [queries, objects]."""
        return self._finish(self._products(folded, self._every()), self._terms)

    def rows(self, folded: Float32s, rows: Rows) -> Float32s:
        """Scores of each query against its own k catalog rows, int64 [queries, k] -> [queries, k]."""
        every, terms = self._every(), None if self._terms is None else self._terms[rows]
        if self._pairs is None:
            block = every.block.take(rows.reshape(-1))
            return self._finish(_row_products(folded, block).reshape(rows.shape), terms)
        found = [self._products(folded[at : at + 1], every.take(own))[0] for at, own in enumerate(rows)]
        return self._finish(np.array(found, np.float32).reshape(rows.shape), terms)

    def pairs(self, folded: Float32s, owner: Rows, refs: Sequence[ObjectRef]) -> Float32s:
        """Scores of each object against one query, int64 [n] naming it -> [n]."""
        items = self.items(refs)
        products = np.zeros(len(refs), np.float32)
        for query in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == query)
            products[mine] = self._products(folded[query : query + 1], items.take(mine))[0]
        return self._finish(products, items.terms)

    def _every(self) -> Items:
        """The catalog's objects."""
        assert self._objects.catalog is not None
        return Items(self._objects.catalog, self._terms, None if self._pairs is None else self._pairs.catalog)

    def _products(self, folded: Float32s, items: Items) -> Float32s:
        if self._pairs is None:
            return against(folded, items.block)
        features = items.features
        known = np.zeros((len(items.block), 0), np.float32) if features is None else features
        return self._pairs.scores(folded, items.block, known)

    def _terms_of(self, block: Block, rows: NDArray[np.int32]) -> Float32s:
        if self._terms is None:
            return terms_of(self._form, self._form.self_scores(block))
        terms = self._terms[rows]
        own = np.flatnonzero(rows < 0)
        if len(own):
            terms[own] = terms_of(self._form, self._form.self_scores(block.take(own)))
        return terms

    def _finish(self, scores: Float32s, terms: Float32s | None) -> Float32s:
        if terms is not None:
            scores = apply_terms(self._form, scores, terms)
        if not np.isfinite(scores).all():
            raise NotFinite("a score is not a finite number")
        return scores


def _row_products(folded: Float32s, items: Block) -> Float32s:
    """Inner products of each query with its own equally many consecutive items, float32 [items]."""
    if isinstance(items, DenseBlock):
        values = items.values.reshape(len(folded), -1, items.dim)
        return np.asarray(np.matmul(values, folded[:, :, None]), np.float32).reshape(-1)
    lengths = np.diff(items.indptr)
    owner = np.repeat(np.arange(len(items)), lengths)
    query = owner // max(1, len(items) // max(1, len(folded)))
    products = items.values * folded[query, items.indices]
    return np.bincount(owner, products, minlength=len(items)).astype(np.float32)
