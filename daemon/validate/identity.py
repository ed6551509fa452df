"""The form of the untrained state: S = I, without a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.block import DenseBlock, Float32s, as_block


@dataclass(frozen=True, slots=True)
class IdentityForm:
    """S = I in `dim` dimensions: inner products, or the cosine where `normalised`."""

    dim: int
    normalised: bool

    def fold(self, queries: Any) -> Float32s:
        """The queries themselves, float32 [n, d], copied. Raises BlockError as serving forms do."""
        block = as_block(queries, self.dim)
        if isinstance(block, DenseBlock):
            return block.values.copy()
        return np.asarray(block.checked_csr().toarray(), np.float32)

    def self_scores(self, items: Any) -> Float32s:
        """Squared lengths, float32 [n], summed in float64."""
        block = as_block(items, self.dim)
        if isinstance(block, DenseBlock):
            squares = np.einsum("nd,nd->n", block.values, block.values, dtype=np.float64)
            return np.asarray(squares, np.float32)
        rows = block.checked_csr()
        return np.asarray(rows.multiply(rows).sum(axis=1), np.float32).reshape(-1)


def is_identity(W: Float32s) -> bool:
    """Whether W is exactly I; reads it row by row, so that nothing of its size is made."""
    return all(row[place] == 1 and np.count_nonzero(row) == 1 for place, row in enumerate(W))
