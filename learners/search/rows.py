"""The score itself, for given rows."""

from __future__ import annotations

import numpy as np

from learners.block import Float32s, Int64s
from learners.kernels.scan_dense import score_rows_dense
from learners.kernels.scan_sparse import score_places_long, score_places_short
from learners.search.checks import checked_offset, checked_queries, checked_rows, checked_scale
from learners.search.items import Items, SparseItems


def score_rows(
    folded: Float32s,
    items: Items,
    scale: Float32s | None,
    rows: Int64s,
    *,
    offset: Float32s | None = None,
) -> Float32s:
    """Scores float32 [len(rows)] of one folded query float32 [d] for these rows, bit for bit those of `topk`.

    Raises BlockError as `topk` does, and for a row outside the items.
    """
    query = checked_queries(folded[None], items.dim)[0]
    terms = checked_scale(scale, len(items)), checked_offset(offset, len(items))
    chosen = checked_rows(rows, len(items))
    scores = np.empty(len(chosen), np.float32)
    if isinstance(items, SparseItems):
        score = score_places_short if items.columns.dtype == np.uint16 else score_places_long
        score(query, items.arrays(), terms, items.places[chosen], scores)
    else:
        score_rows_dense(query, items.values, terms, chosen, scores)
    return scores
