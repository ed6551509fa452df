"""What all pairs are scored by: protocols of serving forms, products of rows, and the diagonal forms.

Long computations go in pieces: the caller says how the work is cut, and may rest between two pieces.

Diagonal forms: S(q, p) = sum_j v_j q_j p_j, v_j >= 0, of a diagonal metric w that starts from 0.

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

The untrained state has S = I, without a matrix; that form also finds items for forms that do not fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import (
    Block,
    DenseBlock,
    Float32s,
    SparseBlock,
    against,
    as_block,
    dense_rows,
    row_blocks,
    times,
    without_sense,
)
from learners.kernels.fold import fold_symmetric_sparse, self_products_sparse

Pieces: TypeAlias = Callable[[int], Iterable[slice]]
"""Cuts range(n) into slices, in order; the next one is asked for when the work of the last is done."""

BATCH_PRODUCTS = 1 << 25
"""Multiplications of one batch: under a millisecond of a core."""
LEAST_ROWS = 16


def whole(count: int) -> Iterator[slice]:
    """All rows as one batch."""
    yield slice(0, count)


def batches(rows: int, products: int, pieces: Pieces) -> Iterator[slice]:
    """Batches of rows, each row worth so many multiplications; `pieces` cuts the list of batches.

    Their size follows from the shape alone, since BLAS may give a row other bits among other rows: how the
    work is cut changes no bit.
    """
    step = max(LEAST_ROWS, BATCH_PRODUCTS // max(1, products))
    for piece in pieces(-(-rows // step)):
        for batch in range(piece.start, piece.stop):
            yield slice(batch * step, min((batch + 1) * step, rows))


class ServedForm(Protocol):
    """What versions are judged and served as. Most also fold (`folds`); where the scores of a form are no
    inner products, a few items for each query are scored by it, found by other means.
    """

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""

    @property
    def normalised(self) -> bool:
        """Whether a score is divided by sqrt(S(q, q) S(p, p))."""

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """S(p, p) for each item, clipped at 0, float32 [n]; `pieces` changes no bit."""

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""


class FoldingForm(ServedForm, Protocol):
    """A form whose scores are inner products of items with a folded query."""

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, d]."""


def by_distance(form: ServedForm) -> bool:
    """Whether the raw score of a form is minus a distance, -(q - p)^T S (q - p): `fold` then gives 2 S q, and
    with an inner product goes -S(p, p), the item's own, and -S(q, q), which changes no order."""
    return bool(getattr(form, "distance", False))


def has_terms(form: ServedForm) -> bool:
    """Whether a search needs a number per item besides its inner product with a folded query."""
    return form.normalised or by_distance(form)


def terms_of(form: ServedForm, self_scores: Float32s) -> Float32s:
    """That number, float32 [n], where `has_terms`: 1 / norm, to multiply with, where the form is normalised,
    else what is added."""
    return inverse_roots(self_scores) if form.normalised else -self_scores


def apply_terms(form: ServedForm, products: Float32s, terms: Float32s) -> Float32s:
    """Inner products of items with folded queries -> scores, in place; terms: of the items, as `terms_of`."""
    return (
        np.multiply(products, terms, out=products)
        if form.normalised
        else np.add(products, terms, out=products)
    )


class FeaturedForm(ServedForm, Protocol):
    """A form that does not fold, but can keep some numbers of each object, by which pairs are scored
    quickly."""

    def features(self, items: Any) -> Float32s:
        """Those numbers, float32 [n, F]; the bits of a row do not depend on the others."""

    def pair_scores(self, queries: Block, asked: Float32s, items: Block, features: Float32s) -> Float32s:
        """`scores` of all pairs, to the bit; asked, features: those of queries and items."""


def featured(form: ServedForm) -> TypeGuard[FeaturedForm]:
    """Whether a form keeps features."""
    return hasattr(form, "features")


def folds(form: ServedForm) -> TypeGuard[FoldingForm]:
    """Whether a form is one that folds."""
    return hasattr(form, "fold")


def fold_symmetric(W: Float32s, block: Block) -> Float32s:
    """sym(W) q for each row q, float32 [n, d], without forming sym(W). Raises BlockError on a bad index."""
    if isinstance(block, DenseBlock):
        return np.asarray((block.values @ W + block.values @ W.T) / 2, np.float32)
    block.check_indices()
    folded = np.empty((len(block), W.shape[0]), np.float32)
    fold_symmetric_sparse(W.reshape(-1), block.dim, block.kernel_rows(), folded)
    return folded


def self_products(base: Float32s, block: Block, pieces: Pieces = whole) -> NDArray[np.float64]:
    """p^T base p for each row p, float64 [n]; `pieces` changes no bit. Raises BlockError on a bad index."""
    products = np.zeros(len(block), np.float64)
    if isinstance(block, DenseBlock):
        for batch in batches(len(block), block.dim**2, pieces):
            rows = block.values[batch]
            products[batch] = np.einsum("nd,nd->n", rows @ base, rows, dtype=np.float64)
    else:
        columns = block.checked_csr().tocsc()
        by_column = (columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data)
        for piece in pieces(block.dim):
            span = (piece.start, piece.stop)
            self_products_sparse(base, span, block.kernel_rows(), by_column, products)
    return products


def remove_pairs(folded: Float32s, block: Block, vectors: Float32s, values: Float32s) -> None:
    """folded -= U diag(values) U^T q for each row q, in place; vectors: U, float32 [d, k].

    Row by row, so that the other rows of a batch change no bit of a folded query.
    """
    if len(values):
        for row, along in enumerate(times(block, vectors) * values):
            folded[row] -= vectors @ along


def pair_products(
    block: Block, vectors: Float32s, values: Float32s, pieces: Pieces = whole
) -> NDArray[np.float64]:
    """p^T U diag(values) U^T p for each row p, float64 [n]; `pieces` changes no bit."""
    products = np.zeros(len(block), np.float64)
    if len(values):
        for batch in batches(len(block), block.dim * len(values), pieces):
            along = times(block.slice(batch.start, batch.stop), vectors)
            products[batch] = np.square(along.astype(np.float64)) @ values
    return products


def score_pairs(form: FoldingForm, queries: Any, items: Any) -> Float32s:
    """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]; NaN where a vector
    holds a value that is not finite."""
    left, right = as_block(queries, form.dim, "queries"), as_block(items, form.dim, "items")
    scores = np.empty((len(left), len(right)), np.float32)
    for part in row_blocks(len(left), form.dim):
        scores[part] = against(form.fold(left.slice(part.start, part.stop)), right)
    if form.normalised:
        scores *= inverse_roots(form.self_scores(left))[:, None]
        scores *= inverse_roots(form.self_scores(right))
    elif by_distance(form):
        scores -= form.self_scores(right)
        scores -= form.self_scores(left)[:, None]
    return without_sense(scores, left, right)


def inverse_roots(self_scores: Float32s) -> Float32s:
    """1 / sqrt(s), float32, and 0 where s is 0: what has no similarity to itself has none to anything."""
    roots = np.zeros(len(self_scores), np.float32)
    np.divide(1, np.sqrt(self_scores), out=roots, where=self_scores > 0)
    return roots


SHARE = 1 / 3
"""The weight of w against the cosine after one round of every coordinate; from 0.15 to 0.4 little changes."""

PASSES = 8
"""What an entry of an item costs, in multiplications."""


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalForm:
    """S = diag(weights). weights: float32 [d], finite, and >= 0 but of a metric that is served as it was
    learned, raw and not by distance. normalised: whether `scores` divides by
    sqrt(S(q, q) S(p, p)); a query or item whose self score is 0 then scores 0. distance: the raw score is
    -(q - p)^T S (q - p), see `by_distance`; never true where `normalised` is.
    """

    weights: Float32s
    normalised: bool
    distance: bool = False

    @classmethod
    def from_weights(
        cls, w: NDArray[np.float64], rounds: int, normalised: bool = True, start: Float32s | None = None
    ) -> Self:
        """The form of a learned w, float64 [d], finite, behind which are so many rounds; see above. start:
        what stands in place of 1, float32 [d], > 0, of mean 1."""
        begun = np.ones(len(w), np.float32) if start is None else start
        added = np.maximum(w, 0)
        largest = added.max(initial=0)
        if largest == 0:
            return cls(begun, normalised)
        added /= largest  # so that no sum leaves the range of numbers
        learned = np.count_nonzero(added)
        added *= SHARE * np.sqrt(rounds / learned) * learned / added.sum()
        added += begun
        return cls(added.astype(np.float32), normalised)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.weights)

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, d], 2 S q for a distance, 0 where q is; search any index of items
        with it by inner product.

        Raises BlockError on another dimension or an index out of range.
        """
        weights = 2 * self.weights if self.distance else self.weights
        scaled = scaled_columns(as_block(queries, self.dim, "queries"), weights)
        if isinstance(scaled, DenseBlock):
            return scaled.values
        folded = np.zeros((len(scaled), self.dim), np.float32)
        folded[_owners(scaled), scaled.indices] = scaled.values
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim, "items")
        products = np.zeros(len(block))
        entries = block.nbytes // (4 if isinstance(block, DenseBlock) else 8)
        for batch in batches(len(block), PASSES * (entries // max(1, len(block))), pieces):
            rows = block.slice(batch.start, batch.stop)
            scaled = scaled_columns(rows, self.weights)
            if isinstance(rows, DenseBlock):
                assert isinstance(scaled, DenseBlock)
                products[batch] = (scaled.values.astype(np.float64) * rows.values).sum(axis=1)
            else:
                assert isinstance(scaled, SparseBlock)
                of = rows.values[rows.entries].astype(np.float64)
                products[batch] = np.bincount(_owners(scaled), scaled.values * of, len(rows))
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        scores = diagonal_scores(self.weights, left, right)
        if self.normalised:
            scores *= inverse_roots(self.self_scores(left))[:, None]
            scores *= inverse_roots(self.self_scores(right))
        elif self.distance:
            scores *= np.float32(2)
            scores -= self.self_scores(right)
            scores -= self.self_scores(left)[:, None]
        return without_sense(scores, left, right)


def diagonal_scores(w: NDArray[Any], queries: Block, items: Block) -> Float32s:
    """sum_j w_j q_j p_j for all pairs, float32 [queries, items]; sparse rows stay sparse. A value that is not
    finite counts where a product meets it: see `without_sense`.

    Products with w are rounded to float32 once. Raises BlockError on an index out of range.
    """
    scaled = scaled_columns(queries, w)
    if isinstance(scaled, DenseBlock):
        return against(scaled.values, items)
    left = scaled.checked_csr()
    if isinstance(items, DenseBlock):
        return np.asarray(left @ items.values.T, np.float32)
    product: sparse.csr_array = left @ items.checked_csr().T
    return np.asarray(product.toarray(), np.float32)


def scaled_columns(block: Block, w: NDArray[Any]) -> Block:
    """Rows q (.) w, w: [d]; sparse ones with pointers from 0. Raises BlockError on an index out of range."""
    if isinstance(block, DenseBlock):
        return DenseBlock(block.values * w)
    block.check_indices()
    part = block.entries
    indices = block.indices[part]
    return SparseBlock(block.indptr - part.start, indices, block.values[part] * w[indices], block.dim)


def _owners(block: Block) -> NDArray[np.int64]:
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
        return np.array(dense_rows(as_block(queries, self.dim, "queries")))

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """||p||^2 for each item, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim, "items")
        squares = np.zeros(len(block), np.float64)
        for batch in batches(len(block), self.dim, pieces):
            part = block.slice(batch.start, batch.stop)
            if isinstance(part, DenseBlock):
                squares[batch] = np.einsum("nd,nd->n", part.values, part.values, dtype=np.float64)
            else:
                part.check_indices()
                own = part.entries
                owner = np.repeat(np.arange(len(part)), np.diff(part.indptr))
                values = np.square(part.values[own], dtype=np.float64)
                squares[batch] = np.bincount(owner, values, minlength=len(part))
        return squares.astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        return score_pairs(self, queries, items)
