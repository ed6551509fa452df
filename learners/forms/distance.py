"""The serving form of a learned distance: S'(q, p) = -(q - p)^T S (q - p), S symmetric and PSD.

S'(q, p) = 2 q^T S p - p^T S p - q^T S q: the query folds to 2 S q, the last term is the query's alone and
changes no order, and each item has one number per version, its offset -p^T S p. So a search over an unchanged
index of items by inner product plus offset ranks by the distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, as_block
from learners.pieces import Pieces, whole
from learners.psd import MAX_FULL_DIM
from learners.scores import against, row_blocks
from learners.serving import DEFAULT_PAIRS, ServingForm


@dataclass(frozen=True, slots=True, eq=False)
class DistanceForm:
    """The distance by the S of a raw form.

    S: how S is held: a matrix of its own, or a learner's W without its most negative eigenpairs. A PSD S
    makes every score at most 0, up to rounding, and 0 for what equals the query.
    """

    S: ServingForm

    @classmethod
    def from_matrix(cls, W: Float32s, full_up_to: int = MAX_FULL_DIM, pairs: int = DEFAULT_PAIRS) -> Self:
        """The form of the PSD part of W, made as `ServingForm.from_matrix` does. Raises ConfigError."""
        return cls(ServingForm.from_matrix(W, False, full_up_to, pairs))

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.S.dim

    @property
    def normalised(self) -> bool:
        """Never: a distance has its own scale."""
        return False

    def fold(self, queries: Any) -> Float32s:
        """2 S q for each query, float32 [n, d]; its inner product with an item, plus the item's offset, ranks
        by the distance. Raises BlockError."""
        folded = self.S.fold(queries)
        folded *= np.float32(2)
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, clipped at 0, float32 [n]; `pieces` changes no bit."""
        return self.S.self_scores(items, pieces)

    def offsets(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """What is added to an item's inner product with a folded query: -p^T S p, float32 [n]."""
        return -self.self_scores(items, pieces)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """-(q - p)^T S (q - p) of all pairs, float32 [queries, items]; objects nearly alike lose the digits
        that the three terms share."""
        left, right = as_block(queries, self.dim), as_block(items, self.dim)
        scores = np.empty((len(left), len(right)), np.float32)
        for part in row_blocks(len(left), max(self.dim, len(right))):
            scores[part] = against(self.fold(left.slice(part.start, part.stop)), right)
        scores += self.offsets(right)
        scores -= self.self_scores(left)[:, None]
        return scores

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; `from_arrays` reads it back."""
        return self.S.arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], state_matrix: Float32s | None = None) -> Self:
        """The form of these arrays; state_matrix as in `ServingForm.from_arrays`. Raises StateError."""
        return cls(ServingForm.from_arrays(arrays, state_matrix))
