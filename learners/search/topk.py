"""The k best items of each folded query, exactly.

score(f, p) = float32( scale_p * sum_j f_j p_j ): products of float32 numbers summed in float64 in the order of the
columns, times the scale in float64, rounded once and kept within +-3.4e38. Nothing else decides: neither batch
size, nor kind of block (a dense row and the sparse row of the same numbers score alike to the bit), nor the
quick scan that only leaves out what provably cannot be among the best. scale is 1 / norm of the item for a
normalised score, 0 for an item without a norm, which then scores 0.

Rows come descending by score, equal scores by ascending row.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, Int64s
from learners.search.items import DenseItems, Items, SparseItems

TopK: TypeAlias = tuple[Float32s, Int64s]
"""Scores float32 [m, k] and rows int64 [m, k]; what is absent has score -inf and row -1, at the end."""

Mask: TypeAlias = NDArray[np.bool_]


def topk_sparse(
    folded: Float32s, items: SparseItems, scale: Float32s | None, allowed: Mask | None, k: int
) -> TopK:
    """The k best sparse items of each folded query.

    folded: float32 [m, d], any m; 16 queries share one pass over the items. scale: float32 [n], finite and >= 0, or
    None for 1. allowed: bool [n], False leaves a row out; None allows all. k >= 0, also above n. One thread,
    the GIL released, no allocation per item.
    Raises BlockError for other shapes or dtypes, for a query or scale that is not finite, a negative scale or k.
    """
    raise NotImplementedError


def topk_dense(
    folded: Float32s, items: DenseItems, scale: Float32s | None, allowed: Mask | None, k: int
) -> TopK:
    """As `topk_sparse`, for dense items."""
    raise NotImplementedError


def topk(folded: Float32s, items: Items, scale: Float32s | None, allowed: Mask | None, k: int) -> TopK:
    """`topk_sparse` or `topk_dense`, by the kind of the items."""
    if isinstance(items, SparseItems):
        return topk_sparse(folded, items, scale, allowed, k)
    return topk_dense(folded, items, scale, allowed, k)
