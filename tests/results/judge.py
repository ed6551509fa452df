"""How well scores put objects of a query's class first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from learners.measures import RELEVANT_LAST, average_precision, macro_over, mean_over, ranks_of
from tests.results.data import Floats, Ints

DEPTH = 50
"""Up to which rank precision is kept."""
AT_ONCE = 500
"""Queries whose scores are held together."""

Scorer: TypeAlias = Callable[[Ints, Ints], Floats]
"""Rows of queries and of objects -> their scores, float32 [queries, objects]."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Per query, float64: ap [q], average precision; precision [q, `DEPTH`], at each rank from 1 on. labels:
    the class of each, int64 [q]."""

    ap: npt.NDArray[np.float64]
    precision: npt.NDArray[np.float64]
    labels: Ints

    @property
    def map(self) -> float:
        """The mean of the average precision."""
        return mean_over(self.ap)

    @property
    def by_class(self) -> dict[int, float]:
        """The mean average precision of the queries of each class."""
        return {int(one): float(self.ap[self.labels == one].mean()) for one in np.unique(self.labels)}

    @property
    def macro(self) -> float:
        """The mean over classes of `by_class`: each class counts alike, however many queries it has."""
        return macro_over(self.ap, self.labels.tolist())

    def at(self, rank: int) -> float:
        """The mean precision at a rank."""
        return float(self.precision[:, rank - 1].mean())


def judge(scores: Scorer, labels: Ints, queries: Ints, gallery: Ints) -> Judged:
    """Rank the gallery for each query. labels: of all rows. The query itself is no candidate, ties go to the
    wrong objects, scores that are no numbers come last, and queries without another object of their class in
    the gallery do not count."""
    ap = np.full(len(queries), np.nan)
    precision = np.zeros((len(queries), DEPTH))
    depth = np.arange(1, DEPTH + 1)
    place_of = {row: place for place, row in enumerate(gallery.tolist())}
    members = {one: np.flatnonzero(labels[gallery] == one) for one in np.unique(labels[queries]).tolist()}
    for start in range(0, len(queries), AT_ONCE):
        rows = queries[start : start + AT_ONCE]
        found = np.array(scores(rows, gallery), np.float32)
        found[~np.isfinite(found)] = np.finfo(np.float32).min
        for at, row in enumerate(rows.tolist()):
            itself = place_of.get(row)
            right = members[int(labels[row])]
            right = right[right != itself] if itself is not None else right
            if len(right):
                ranks = np.sort(ranks_of(found[at], right, itself, ties=RELEVANT_LAST))
                ap[start + at] = average_precision(ranks)
                precision[start + at] = np.searchsorted(ranks, depth, "right") / depth
    kept = ~np.isnan(ap)
    return Judged(ap[kept], precision[kept], labels[queries[kept]])
