"""How good a ranking is by what is relevant: precision at k, average precision (of all, or of the first k),
their means over queries (mAP) and over classes (macro). NumPy alone.

Conventions, the same in every function: a higher score ranks first; ranks begin at 1; a query is no candidate
for itself (`exclude`); scores must be finite (NaN has no rank). **Ties** go to the lower row (`BY_ROW`), so
that every measure is a function of its arrays; or to whatever is not relevant (`RELEVANT_LAST`), where many
scores are equal, as most are 0 in sparse data, and the order of the rows may know the labels.

Average precision is the mean over relevant candidates of the precision at their rank, as in Chechik, Sharma,
Shalit, Bengio, JMLR 11 (2010), section 5.1. Of the first k (Gong, Lazebnik, CVPR 2011, section 4.4: 100) it
is the sum over relevant ones among them, divided by as many as could be: 1 where all k are relevant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Ranks: TypeAlias = NDArray[np.int64]
Scores: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

BY_ROW, RELEVANT_LAST = "by row", "relevant last"
TIES = (BY_ROW, RELEVANT_LAST)
"""Who ranks first among candidates of one score."""

QUERIES_AT_ONCE = 256
FEW = 8
"""Rows up to which their ranks are counted: a sort takes as long as some ten comparisons with all."""


def ranks_of(scores: Scores, relevant: Ranks, exclude: int | None = None, ties: str = BY_ROW) -> Ranks:
    """1-based ranks of the rows `relevant` when all candidates are sorted by falling score, int64 [k].

    scores [n]; relevant int64 [k], distinct; exclude: the query's own row, which is no candidate and not
    among them. By row, `rank(i) = 1 + #{j: s_j > s_i} + #{j < i: s_j = s_i}`. One sort, no argsort:
    O(n log n), n extra floats; of a few rows n comparisons each. Raises ValueError for other `ties`.
    """
    if ties not in TIES:
        raise ValueError(f"ties {ties!r} is not one of {', '.join(map(repr, TIES))}")
    wanted, last = scores[relevant], ties == RELEVANT_LAST
    if len(relevant) <= FEW and not last:
        above = (np.count_nonzero(scores > one) for one in wanted)
        tied = (np.count_nonzero(scores[:row] == scores[row]) for row in relevant.tolist())
        ranks: Ranks = 1 + np.fromiter(map(add, above, tied), np.int64)
    else:
        ranks = _sorted_ranks(scores, relevant, last)
    if exclude is not None:
        own = scores[exclude]
        ranks -= (own > wanted) | ((own == wanted) & (last | (exclude < relevant)))
    return ranks


def _sorted_ranks(scores: Scores, relevant: Ranks, last: bool) -> Ranks:
    upwards, wanted = np.sort(scores), scores[relevant]
    upto = np.searchsorted(upwards, wanted, side="right")
    below = np.searchsorted(upwards, wanted, side="left")
    ranks: Ranks = (scores.shape[0] - upto + 1).astype(np.int64)
    for value in np.unique(wanted[upto - below > 1]):
        tied = wanted == value
        if last:
            others = np.count_nonzero(scores == value) - np.count_nonzero(tied)
            ranks[tied] += others + np.argsort(np.argsort(relevant[tied]))
        else:
            ranks[tied] += np.searchsorted(np.flatnonzero(scores == value), relevant[tied])
    return ranks


def precision_at_k(ranks: Ranks, k: int) -> float:
    """Share of the first `k` places that relevant candidates hold; of `k`, however few candidates there are.

    ranks int64 [R] of the relevant ones, in any order.
    """
    return float(np.count_nonzero(ranks <= k) / k)


def average_precision(ranks: Ranks) -> float:
    """`AP = (1/R) sum_j j / r_j` over the ascending ranks `r_1 < .. < r_R` of the relevant candidates.

    ranks int64 [R], in any order; NaN where R = 0 (the query does not count).
    """
    return average_precision_at(ranks, None)


def average_precision_at(ranks: Ranks, k: int | None) -> float:
    """`AP@k = (1 / min(R, k)) sum_j j / r_j` over the ascending ranks r_j <= k; None for all of them.

    ranks int64 [R] of **all** relevant candidates, in any order; NaN where R = 0.
    """
    if ranks.shape[0] == 0:
        return float("nan")
    ordered = np.sort(ranks)
    precisions = np.arange(1, ordered.shape[0] + 1) / ordered
    if k is None:
        return float(np.mean(precisions))
    return float(precisions[ordered <= k].sum() / min(ordered.shape[0], k))


def mean_over(values: Doubles) -> float:
    """Mean over the entries that count (not NaN), such as mAP of average precisions; NaN where none does.

    float64 [n] -> float.
    """
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if counted.shape[0] else float("nan")


def macro_over(values: Doubles, labels: Sequence[Any]) -> float:
    """Mean over classes of the mean within a class: small classes count as much as large ones.

    values float64 [n] (NaN does not count), labels: n hashable ones; NaN where nothing counts.
    """
    groups: dict[Any, list[float]] = {}
    for value, label in zip(values.tolist(), labels, strict=True):
        if not np.isnan(value):
            groups.setdefault(label, []).append(value)
    means = [sum(group) / len(group) for group in groups.values()]
    return float(np.mean(means)) if means else float("nan")


@dataclass(frozen=True, slots=True)
class RankingMeasures:
    """What labels say of one ranking, query by query.

    ap, ap_at, precision: float64 [queries], NaN for a query with nothing relevant; labels: their classes.
    """

    ap: Doubles
    ap_at: Doubles
    precision: Doubles
    labels: tuple[Any, ...]

    @property
    def map(self) -> float:
        """Mean average precision."""
        return mean_over(self.ap)

    @property
    def map_at(self) -> float:
        """The same, of the first `depth` places."""
        return mean_over(self.ap_at)

    @property
    def mean_precision(self) -> float:
        """Mean precision at k."""
        return mean_over(self.precision)

    @property
    def macro_map(self) -> float:
        """mAP, each class counted alike."""
        return macro_over(self.ap, self.labels)

    @property
    def macro_precision(self) -> float:
        """Precision at k, each class counted alike."""
        return macro_over(self.precision, self.labels)


def judge_by_labels(
    scores_of: Callable[[NDArray[np.int64]], Scores],
    labels: NDArray[Any],
    queries: NDArray[np.int64],
    *,
    k: int = 10,
    depth: int = 100,
    ties: str = BY_ROW,
) -> RankingMeasures:
    """Each query ranks all objects but itself; an object of its class is relevant.

    scores_of: int64 [b] rows -> their scores with all objects, [b, n], at most 256 rows at a time; labels
    [n]; queries: rows, int64 [m]; k of precision, depth of `ap_at`. Raises ValueError for other `ties`.
    """
    found = np.full((len(queries), 3), np.nan)
    names = [labels[row] for row in queries.tolist()]
    members = {label: np.flatnonzero(labels == label) for label in dict.fromkeys(names)}
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        rows = queries[start : start + QUERIES_AT_ONCE]
        for at, (scores, own) in enumerate(zip(scores_of(rows), rows.tolist(), strict=True), start):
            relevant = members[names[at]]
            ranks = ranks_of(scores, relevant[relevant != own], own, ties=ties)
            if len(ranks):
                of_all, of_first = average_precision(ranks), average_precision_at(ranks, depth)
                found[at] = of_all, of_first, precision_at_k(ranks, k)
    ap, ap_at, precision = found.T
    return RankingMeasures(ap, ap_at, precision, tuple(names))
