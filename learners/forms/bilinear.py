"""The scores of a learner of one matrix as its paper has them: q^T W p, with W as it was learned.

W need not be symmetric, so that S(q, p) is not S(p, q), nor positive semi-definite; nothing is normalised or
sharpened. It folds all the same: S(q, p) = (W^T q)^T p (Chechik, Sharma, Shalit, Bengio: Large scale online
learning of image similarity through ranking, JMLR 11 (2010), section 2). Of a learned distance, whose W is
symmetric, the score is -(q - p)^T W (q - p) (section 6 there), also where W is not positive semi-definite.

`learners.forms.serving` is what clicks want instead, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.block import Float32s, as_block, times
from learners.forms.quadratic import DiagonalForm, Pieces, score_pairs, self_products, whole
from learners.pending import PendingSteps


@dataclass(frozen=True, slots=True, eq=False)
class BilinearForm:
    """S(q, p) = q^T W p, or -(q - p)^T W (q - p) where `distance`.

    matrix: W without its pending steps, float32 [d, d], read and never copied: the form follows it. pending:
    the steps that wait to be added to it, followed likewise; None where there are none. distance: W is
    symmetric, and a query folds to 2 W q.
    """

    matrix: Float32s
    pending: PendingSteps | None = None
    distance: bool = False

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.matrix.shape[0])

    @property
    def normalised(self) -> bool:
        """Never: the papers score without norms."""
        return False

    def fold(self, queries: Any) -> Float32s:
        """W^T q for each query, float32 [n, d], 2 W q for a distance; search any index of items with it by
        inner product.

        Raises BlockError on another dimension or an index out of range.
        """
        block = as_block(queries, self.dim, "queries")
        folded = np.asarray(times(block, self.matrix), np.float32)
        if self.pending is not None and len(self.pending):
            folded += self.pending.product(block)
        if self.distance:
            folded *= np.float32(2)
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T W p for each item, float32 [n]; summed in float64. `pieces` changes no bit. Clipped at 0 as in
        other forms, but not for a distance, of which it is a part of the score."""
        block = as_block(items, self.dim, "items")
        products = self_products(self.matrix, block, pieces)
        if self.pending is not None and len(self.pending):
            products += self.pending.self_products(block)
        return (products if self.distance else np.maximum(products, 0)).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        return score_pairs(self, queries, items)


@dataclass(frozen=True, slots=True, eq=False)
class OwnLengthForm:
    """S(q, p) = q^T A p / sqrt(M(q, q) M(p, p)): a bilinear score of vectors of unit length in a diagonal
    metric.

    With A = M it is the cosine in that metric. matrix: A, float32 [d, d], read and never copied. metric: M,
    float32 [d], > 0.
    """

    matrix: Float32s
    metric: Float32s

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.metric)

    @property
    def normalised(self) -> bool:
        """Always: by the lengths in the metric."""
        return True

    def fold(self, queries: Any) -> Float32s:
        """A^T q for each query, float32 [n, d]. Raises BlockError as `BilinearForm.fold`."""
        return BilinearForm(self.matrix).fold(queries)

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """M(p, p) for each item, by which scores are normalised, float32 [n]; `pieces` changes no bit."""
        return DiagonalForm(self.metric, True).self_scores(items, pieces)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        return score_pairs(self, queries, items)
