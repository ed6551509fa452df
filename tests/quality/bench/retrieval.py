"""Mean average precision and precision at 10 over the whole catalog, for many queries at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.quality.bench.sets import Floats, Ints

AT_ONCE = 250
TOP = 10

Scores = Callable[[Ints], Floats]
"""Rows of the catalog -> their scores with the whole catalog, float32 [queries, n]."""


@dataclass(frozen=True)
class Found:
    """Per query, float64 [queries]: average precision, and precision at 10."""

    ap: npt.NDArray[np.float64]
    p10: npt.NDArray[np.float64]

    @property
    def pair(self) -> tuple[float, float]:
        """(mAP, P@10)"""
        return float(self.ap.mean()), float(self.p10.mean())


def judge(scores: Scores, labels: Ints, queries: Ints) -> Found:
    """What labels say of a ranking; a query is no candidate for itself, and ties go to the wrong objects."""
    ap, p10 = np.zeros(len(queries)), np.zeros(len(queries))
    for start in range(0, len(queries), AT_ONCE):
        rows = queries[start : start + AT_ONCE]
        found = scores(rows).copy()
        found[np.arange(len(rows)), rows] = -np.inf
        ascending = np.sort(found, axis=1)
        for at, row in enumerate(rows.tolist()):
            right = labels == labels[row]
            right[row] = False
            own = np.sort(found[at, right])
            if len(own):
                above = len(labels) - np.searchsorted(ascending[at], own)  # of all, not below
                among = len(own) - np.searchsorted(own, own)
                places = np.arange(len(own), 0, -1)
                ranks = above - among + places
                ap[start + at] = np.mean(places / ranks)
                p10[start + at] = np.count_nonzero(ranks <= TOP) / min(TOP, len(labels) - 1)
    return Found(ap, p10)


def nearest(scores: Scores, count: int, size: int) -> Ints:
    """The best `count` of the catalog for each of its rows, itself left out, int64 [size, count]."""
    out = np.empty((size, count), np.int64)
    for start in range(0, size, AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, size))
        found = scores(rows).copy()
        found[np.arange(len(rows)), rows] = -np.inf
        best = np.argpartition(-found, count, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(found, best, axis=1), axis=1, kind="stable")
        out[rows] = np.take_along_axis(best, order, axis=1)
    return out
