"""Items searched by a form: the k best of each query, with the scores of the form."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.block import Block, as_block, not_finite, row_blocks
from learners.errors import BlockError
from learners.forms.quadratic import ServedForm, by_distance, folds, has_terms, inverse_roots, terms_of
from learners.search.items import Items, as_items, checked_count
from learners.search.topk import TopK, best_of, kept_scores, topk


class SearchIndex:
    """Items that stay as they are, made ready for one form after another (`with_form`). Exact.

    items: numpy rows [n, dim], scipy CSR, or a block; referred to. A form that folds is searched by inner
    product; one that does not scores every pair. Raises BlockError, also naming the first row with a value
    that is not finite.
    """

    def __init__(self, form: ServedForm, items: Any) -> None:
        self._block: Block = as_block(items, form.dim, "items")
        self._refuse(self._block, "the items")
        self._items: Items | None = None
        self._use(form)

    def _use(self, form: ServedForm) -> None:
        self.form = form
        if folds(form) and self._items is None:
            self._items = as_items(self._block)
        self._terms = terms_of(form, form.self_scores(self._block)) if has_terms(form) else None

    def __len__(self) -> int:
        return len(self._block)

    def with_form(self, form: ServedForm) -> SearchIndex:
        """The same items for another form, such as that of a learner that has gone on; they are not read
        again where both fold. Raises BlockError for a form of another dimension."""
        as_block(self._block, form.dim)
        other = object.__new__(type(self))
        other._block, other._items = self._block, self._items
        other._use(form)
        return other

    def search(self, queries: Any, k: int) -> TopK:
        """(scores float32 [queries, k], rows int64 [queries, k]), descending, equal scores by ascending
        row; what is absent has score -inf and row -1. Scores as `form.scores` gives them, up to rounding.
        Raises BlockError, also for a query with a value that is not finite."""
        block, form, k = as_block(queries, self.form.dim, "queries"), self.form, checked_count(k)
        self._refuse(block, "the queries")
        if not folds(form):
            return self._scored(block, k)
        assert self._items is not None
        scale, offset = (self._terms, None) if form.normalised else (None, self._terms)
        scores, rows = topk(form.fold(block), self._items, scale, None, k, offset=offset)
        if form.normalised:
            own = inverse_roots(form.self_scores(block))[:, None]
            np.multiply(scores, own, out=scores, where=rows >= 0)
        elif by_distance(form):
            scores -= form.self_scores(block)[:, None]
        return scores, rows

    @staticmethod
    def _refuse(block: Block, of: str) -> None:
        wrong = not_finite(block)
        if len(wrong):
            raise BlockError(f"row {wrong[0]} of {of} has a value that is not finite: leave it out")

    def _scored(self, queries: Block, k: int) -> TopK:
        every, best = np.arange(len(self)), []
        for part in row_blocks(len(queries), len(self)):
            scores = kept_scores(self.form.scores(queries.slice(part.start, part.stop), self._block))
            best += [best_of(row, every, k) for row in scores]
        if not best:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        return np.concatenate([one for one, _ in best]), np.concatenate([one for _, one in best])
