"""Retrieval over the whole catalog judged by class labels: what the demo reports and quality tests assert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.validate import measures
from learners.block import Block
from learners.forms.quadratic import ServedForm

QUERIES_AT_ONCE = 256
TOP = 10


@dataclass(frozen=True)
class Retrieval:
    """Means over queries, and over classes (macro), of average precision and precision at 10."""

    map: float
    p10: float
    macro_map: float
    macro_p10: float
    queries: int


def retrieval(
    form: ServedForm, catalog: Block, labels: npt.NDArray[np.str_], query_rows: npt.NDArray[np.int64]
) -> Retrieval:
    """Judge a serving form: each query's candidates are the whole catalog without the query itself.

    A candidate of the query's class is relevant. Memory: 256 rows of scores at a time.
    """
    ap: list[float] = []
    p10: list[float] = []
    for start in range(0, len(query_rows), QUERIES_AT_ONCE):
        rows = query_rows[start : start + QUERIES_AT_ONCE]
        scores = form.scores(catalog.take(rows), catalog)
        for row, own in zip(scores, rows.tolist(), strict=True):
            relevant = np.flatnonzero(labels == labels[own])
            ranks = measures.ranks_of(row, relevant[relevant != own], own)
            ap.append(measures.average_precision(ranks))
            p10.append(measures.precision_at(ranks, TOP))
    classes = labels[query_rows].tolist()
    values_ap, values_p10 = np.array(ap), np.array(p10)
    return Retrieval(
        measures.mean_over(values_ap),
        measures.mean_over(values_p10),
        measures.macro_over(values_ap, classes),
        measures.macro_over(values_p10, classes),
        len(query_rows),
    )


def nearest(form: ServedForm, catalog: Block, row: int, count: int) -> Sequence[int]:
    """Rows of the `count` best candidates for the object in `row`, itself left out; ties to lower rows."""
    scores = form.scores(catalog.take(np.array([row])), catalog)[0].copy()
    scores[row] = -np.inf
    return [int(found) for found in np.argsort(-scores, kind="stable")[:count]]
