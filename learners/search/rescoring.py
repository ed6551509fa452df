"""The order of a few items by the scores themselves, for similarities that no inner product gives."""

from __future__ import annotations

import numpy as np

from learners.block import Block, Float32s, Int64s
from learners.quadratic import ServedForm, featured
from learners.search.topk import TopK

SHORTLIST = 1000
"""Items that are scored for each query where nobody says how many."""

MOST = float(np.finfo(np.float32).max)


def exact_scores(form: ServedForm, query: Block, items: Block, features: Float32s | None = None) -> Float32s:
    """Scores float32 [items] of one query, a block of one row, by the form itself; features: of the items,
    where the form keeps any and they are known, which changes no bit. A score is kept within +-3.4e38, and
    one that is no number is the least.
    """
    if featured(form) and features is not None:
        scores = form.pair_scores(query, form.features(query), items, features)
    else:
        scores = form.scores(query, items)
    return kept_scores(scores[0])


def best_of(scores: Float32s, rows: Int64s, k: int) -> TopK:
    """The k best of rows with these scores, as `topk` gives them for one query: float32 [1, k] and int64
    [1, k], descending, equal ones by ascending row, -inf and -1 for what is absent. rows: each once.
    """
    order = np.lexsort((rows, -scores))[:k]
    best, where = np.full((1, k), -np.inf, np.float32), np.full((1, k), -1, np.int64)
    best[0, : len(order)], where[0, : len(order)] = scores[order], rows[order]
    return best, where


def kept_scores(scores: Float32s) -> Float32s:
    """Scores within +-3.4e38, the least for what is no number."""
    return np.asarray(np.nan_to_num(scores, nan=-MOST, posinf=MOST, neginf=-MOST), np.float32)
