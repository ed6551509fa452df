"""Scores of a memory of clicks (`learners.click_memory`): who asked something like this took that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.arms import as_dense, own_rows
from learners.block import Float32s, Int64s, as_block, without_sense
from learners.click_memory import checked_pairs
from learners.errors import StateError
from learners.forms.quadratic import DiagonalForm, Pieces, whole

NEAREST = 10
"""Remembered queries that are asked. On Wikispeedia ten gain .010 AUC after 2,000 lists, .016 after 8,000 and
.028 at the end, the same query alone .002, .007 and .013."""
SAME = np.float32(1 - 1e-5)
"""Rows of a larger cosine are of one object: what float32 and a map round is some 1e-6."""


@dataclass(frozen=True, slots=True, eq=False)
class ClickMemoryForm:
    """S(q, p) = share cos(q, p) + how many of the `NEAREST` remembered queries took p.

    Nearest by the user's own cosine, of those above 0, and of equal ones the newest; q itself is among them
    where it is remembered. A query took p or not, however often. queries: float32 [u, d], each remembered
    query once, the newest first; clicked: float32 [n, d], what was taken; asked: int64 [n], ascending, by
    which of them. Rows have unit length in the user's own geometry. metric: M of it, float32 [d], > 0. share:
    of the user's own ranking.

    It does not fold: no product with a vector says whether objects are the same.
    """

    queries: Float32s
    clicked: Float32s
    asked: Int64s
    metric: Float32s
    share: float = 0.0

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], metric: Float32s, share: float = 0.0) -> Self:
        """That of a saved memory. Raises StateError for one that is none, or of another dimension."""
        queries, clicked, stamps, _ = checked_pairs(arrays)
        if queries.shape[1] != len(metric):
            raise StateError(f"array queries is not of {len(metric)} dimensions")
        newest = np.argsort(-stamps, kind="stable")[: np.count_nonzero(stamps)]
        numbers: dict[bytes, int] = {}
        of = [numbers.setdefault(queries[row].tobytes(), len(numbers)) for row in newest]
        asked, first = np.array(of, np.int64), np.unique(of, return_index=True)[1]
        by_query = np.argsort(asked, kind="stable")
        return cls(queries[newest[first]], clicked[newest[by_query]], asked[by_query], metric, share)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.metric)

    @property
    def normalised(self) -> bool:
        """Always: by the lengths in the metric."""
        return True

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """M(p, p) for each item, by which scores are normalised, float32 [n]; `pieces` changes no bit."""
        return DiagonalForm(self.metric, True).self_scores(items, pieces)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]; NaN where a vector holds a value that is not finite.
        Takes memory of a number for each query and remembered query."""
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        asked, rows = (own_rows(as_dense(block), self.metric).values for block in (left, right))
        scores = np.asarray(asked @ rows.T * np.float32(self.share), np.float32)
        for mine, cosines in zip(scores, asked @ self.queries.T, strict=True):
            taken = np.flatnonzero(np.isin(self.asked, nearest(cosines)))
            if len(taken):
                first = np.flatnonzero(np.diff(self.asked[taken], prepend=-1))
                mine += np.logical_or.reduceat(self.clicked[taken] @ rows.T > SAME, first, axis=0).sum(axis=0)
        return without_sense(scores, left, right)


def nearest(cosines: Float32s) -> Int64s:
    """The numbers of the `NEAREST` largest of these cosines [u] above 0, of equal ones the first."""
    near = np.flatnonzero(cosines > 0)
    if len(near) > NEAREST:
        near = near[cosines[near] >= np.partition(cosines[near], -NEAREST)[-NEAREST]]
    return near[np.argsort(-cosines[near], kind="stable")[:NEAREST]]
