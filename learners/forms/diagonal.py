"""Diagonal forms: S(q, p) = sum_j v_j q_j p_j, v_j >= 0, of a diagonal metric w that starts from 0.

w = 0 ties everything, and long after, coordinates of which nothing is known yet weigh nothing. So what is
served is the cosine plus what was learned: v = 1 + SHARE sqrt(n / m) max(w, 0) / mean, n the rounds behind w,
m the coordinates of positive weight and mean the mean of those. The scale of w, which differs from setting to
setting, does not matter; what was learned outgrows the cosine as the noise of a mean falls, with the square
root of the rounds behind each coordinate. A negative weight counts as 0: S stays positive semi-definite.

Chosen by clicks on lists without exploration, mAP / P@10 over a whole catalog: cosine .242 / .523 on texts
and .275 / .594 on photos. max(w, 0) alone is far below that for thousands of events on texts (.046 / .053
after one, .192 / .395 after 500); this form is at the cosine then, and above .31 / .62 on both after 8,000. A
bounded share was as good there, but keeps a metric that is truly diagonal from being learned; shares between
cosine and w for each coordinate, by how often it was seen, were worse on texts.

The form of the untrained state: S = I, without a matrix. It finds items for forms that do not fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, SparseBlock, against, as_block
from learners.faults import dense_rows
from learners.forms.quadratic import (
    FoldingForm,
    Pieces,
    ServedForm,
    batches,
    folds,
    inverse_roots,
    score_pairs,
    whole,
)

SHARE = 1 / 3
"""Of w beside the cosine where every coordinate has one round; from 0.15 to 0.4 little changes."""

PASSES = 8
"""What an entry of an item costs, in multiplications."""


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalForm:
    """S = diag(weights). weights: float32 [d], finite and >= 0. normalised: whether `scores` divides by
    sqrt(S(q, q) S(p, p)); a query or item whose self score is 0 then scores 0.
    """

    weights: Float32s
    normalised: bool

    @classmethod
    def from_weights(cls, w: NDArray[np.float64], rounds: int, normalised: bool = True) -> Self:
        """The form of a learned w, float64 [d], finite, behind which are so many rounds; see above."""
        added = np.maximum(w, 0)
        largest = added.max(initial=0)
        if largest == 0:
            return cls(np.ones(len(w), np.float32), normalised)
        added /= largest  # so that no sum leaves the range of numbers
        learned = np.count_nonzero(added)
        added *= SHARE * np.sqrt(rounds / learned) * learned / added.sum()
        added += 1
        return cls(added.astype(np.float32), normalised)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.weights)

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, d], 0 where q is; search any index of items with it by inner
        product.

        Raises BlockError on another dimension or an index out of range.
        """
        scaled = _times(as_block(queries, self.dim), self.weights)
        if isinstance(scaled, DenseBlock):
            return scaled.values
        folded = np.zeros((len(scaled), self.dim), np.float32)
        folded[_owners(scaled), scaled.indices] = scaled.values
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim)
        products = np.zeros(len(block))
        entries = block.nbytes // (4 if isinstance(block, DenseBlock) else 8)
        for batch in batches(len(block), PASSES * (entries // max(1, len(block))), pieces):
            rows = block.slice(batch.start, batch.stop)
            scaled = _times(rows, self.weights)
            if isinstance(rows, DenseBlock):
                assert isinstance(scaled, DenseBlock)
                products[batch] = (scaled.values.astype(np.float64) * rows.values).sum(axis=1)
            else:
                assert isinstance(scaled, SparseBlock)
                of = rows.values[int(rows.indptr[0]) : int(rows.indptr[-1])].astype(np.float64)
                products[batch] = np.bincount(_owners(scaled), scaled.values * of, len(rows))
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        left, right = as_block(queries, self.dim), as_block(items, self.dim)
        scores = diagonal_scores(self.weights, left, right)
        if self.normalised:
            scores *= inverse_roots(self.self_scores(left))[:, None]
            scores *= inverse_roots(self.self_scores(right))
        return scores


def diagonal_scores(w: NDArray[Any], queries: Block, items: Block) -> Float32s:
    """sum_j w_j q_j p_j for all pairs, float32 [queries, items]; sparse rows stay sparse.

    Products with w are rounded to float32 once. Raises BlockError on an index out of range.
    """
    scaled = _times(queries, w)
    if isinstance(scaled, DenseBlock):
        return against(scaled.values, items)
    left = scaled.checked_csr()
    if isinstance(items, DenseBlock):
        return np.asarray(left @ items.values.T, np.float32)
    product: sparse.csr_array = left @ items.checked_csr().T
    return np.asarray(product.toarray(), np.float32)


def _times(block: Block, w: NDArray[Any]) -> Block:
    """Rows q (.) w; sparse ones with pointers from 0."""
    if isinstance(block, DenseBlock):
        return DenseBlock(block.values * w)
    block.check_indices()
    part = slice(int(block.indptr[0]), int(block.indptr[-1]))
    indices = block.indices[part]
    return SparseBlock(block.indptr - part.start, indices, block.values[part] * w[indices], block.dim)


def _owners(block: Block) -> NDArray[np.int64]:
    """The row of each entry of sparse rows."""
    assert isinstance(block, SparseBlock)
    return np.repeat(np.arange(len(block)), np.diff(block.indptr))


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
