"""Mean average precision and precision at 10 over the whole catalog, for many queries at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from learners.measures import RELEVANT_LAST, judge_by_labels
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
    places = min(TOP, len(labels) - 1)
    found = judge_by_labels(scores, labels, queries, k=places, ties=RELEVANT_LAST)
    return Found(np.nan_to_num(found.ap), np.nan_to_num(found.precision))


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
