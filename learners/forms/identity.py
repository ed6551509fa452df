"""The form of the untrained state: S = I, without a matrix. It finds items for forms that do not fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.block import DenseBlock, Float32s, as_block
from learners.pieces import Pieces, batches, whole
from learners.quadratic import FoldingForm, ServedForm, folds, score_pairs
from learners.spread import dense_rows


@dataclass(frozen=True, slots=True)
class IdentityForm:
    """S = I in `dim` dimensions: inner products, or the cosine where `normalised`."""

    dim: int
    normalised: bool

    def fold(self, queries: Any) -> Float32s:
        """The queries themselves, float32 [n, d], copied. Raises BlockError on another dimension or an index
        out of range."""
        return np.array(dense_rows(as_block(queries, self.dim)))

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """||p||^2 for each item, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim)
        squares = np.zeros(len(block), np.float64)
        for batch in batches(len(block), self.dim, pieces):
            part = block.slice(batch.start, batch.stop)
            if isinstance(part, DenseBlock):
                squares[batch] = np.einsum("nd,nd->n", part.values, part.values, dtype=np.float64)
            else:
                own = slice(int(part.indptr[0]), int(part.indptr[-1]))
                owner = np.repeat(np.arange(len(part)), np.diff(part.indptr))
                values = np.square(part.values[own], dtype=np.float64)
                squares[batch] = np.bincount(owner, values, minlength=len(part))
        return squares.astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        return score_pairs(self, queries, items)


def search_form(form: ServedForm) -> FoldingForm:
    """What items are searched by for a form: itself where it folds, else the cosine of the vectors."""
    return form if folds(form) else IdentityForm(form.dim, normalised=True)
