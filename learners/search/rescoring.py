"""The order of a few items by the scores themselves, for similarities that no inner product gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learners.block import Block, Float32s, Int64s
from learners.search.topk import TopK

SHORTLIST = 1000
"""Items that are scored for each query where nobody says how many."""

MOST = float(np.finfo(np.float32).max)

Scores = Callable[[Block, Block], Float32s]
"""(queries, items) -> float32 [queries, items], whose bits do not depend on what else is asked for."""


def rescored(scores: Scores, query: Block, items: Block, rows: Int64s, k: int) -> TopK:
    """The k best of these rows for one query, by `scores`: float32 [1, k] and rows int64 [1, k], as `topk`
    gives them: descending, equal ones by ascending row, -inf and -1 for what is absent.

    query: a block of one row. rows: each once; negative ones are left out. A score is kept within +-3.4e38,
    and one that is no number comes last.
    """
    chosen = np.sort(rows[rows >= 0])
    found = kept_scores(scores(query, items.take(chosen))[0])
    order = np.argsort(-found, kind="stable")[:k]
    best, where = np.full((1, k), -np.inf, np.float32), np.full((1, k), -1, np.int64)
    best[0, : len(order)], where[0, : len(order)] = found[order], chosen[order]
    return best, where


def kept_scores(scores: Float32s) -> Float32s:
    """Scores within +-3.4e38, the least for what is no number."""
    return np.asarray(np.nan_to_num(scores, nan=-MOST, posinf=MOST, neginf=-MOST), np.float32)
