"""Scores of many queries against many items in blocks of queries, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s

BLOCK_FLOATS = 1 << 22
"""Floats of one intermediate block: 16 MB."""


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut `rows` so that each part times `columns` stays within BLOCK_FLOATS (at least one row)."""
    step = max(1, BLOCK_FLOATS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def times(rows: Block, matrix: NDArray[Any]) -> Float32s:
    """rows @ matrix, float32 [n, columns]; matrix: C-contiguous [dim, columns]. Raises BlockError on a bad
    index."""
    if isinstance(rows, DenseBlock):
        return np.asarray(rows.values @ matrix, np.float32)
    return np.asarray(rows.checked_csr() @ matrix, np.float32)


def against(folded: Float32s, items: Block) -> Float32s:
    """folded @ items^T, float32 [queries, items], for folded queries [queries, dim]."""
    if isinstance(items, DenseBlock):
        return np.asarray(folded @ items.values.T, np.float32)
    return np.asarray((items.checked_csr() @ np.ascontiguousarray(folded.T)).T, np.float32)


def bilinear(W: Float32s, queries: Block, items: Block) -> Float32s:
    """q^T W p for all pairs, float32 [queries, items]."""
    scores = np.empty((len(queries), len(items)), np.float32)
    for part in row_blocks(len(queries), W.shape[0]):
        scores[part] = against(times(queries.slice(part.start, part.stop), W), items)
    return scores
