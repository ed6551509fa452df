"""Diagonal forms: S(q, p) = sum_j w_j q_j p_j."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, SparseBlock
from learners.scores import against


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
    """Rows q (.) w."""
    if isinstance(block, DenseBlock):
        return DenseBlock(block.values * w)
    block.check_indices()
    part = slice(int(block.indptr[0]), int(block.indptr[-1]))
    indices = block.indices[part]
    return SparseBlock(block.indptr - part.start, indices, block.values[part] * w[indices], block.dim)
