"""The search as its definition says it, in plain Python: slow, and nothing but the definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners import Block, SparseBlock

LARGEST = float(np.finfo(np.float32).max)


def plain_score(
    query: NDArray[np.float32], items: Block, row: int, scale: float = 1.0, offset: float = 0.0
) -> np.float32:
    """float32( scale * sum of float64 products in the order of the entries + offset ), kept within
    float32."""
    total = 0.0
    for column, value in entries(items, row):
        total += float(query[column]) * value
    return np.float32(min(max(total * scale + offset, -LARGEST), LARGEST)) + np.float32(0)


def plain_topk(
    folded: NDArray[np.float32],
    items: Block,
    scale: NDArray[np.float32] | None,
    allowed: NDArray[np.bool_] | None,
    k: int,
    offset: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """What `topk` has to answer."""
    scores = np.full((len(folded), k), -np.inf, np.float32)
    rows = np.full((len(folded), k), -1, np.int64)
    for n, query in enumerate(folded):
        found = [
            (-plain_score(query, items, row, _term(scale, row, 1.0), _term(offset, row, 0.0)), row)
            for row in range(len(items))
            if allowed is None or allowed[row]
        ]
        for place, (score, row) in enumerate(sorted(found)[:k]):
            scores[n, place], rows[n, place] = -score + np.float32(0), row
    return scores, rows


def _term(terms: NDArray[np.float32] | None, row: int, otherwise: float) -> float:
    return otherwise if terms is None else float(terms[row])


def entries(items: Block, row: int) -> list[tuple[int, float]]:
    """(column, value) of the row, in its order."""
    if isinstance(items, SparseBlock):
        part = slice(int(items.indptr[row]), int(items.indptr[row + 1]))
        return list(zip(items.indices[part].tolist(), items.values[part].tolist(), strict=True))
    return list(enumerate(items.values[row].tolist()))
