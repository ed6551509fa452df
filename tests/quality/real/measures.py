"""How well a ranking orders lists that people clicked: the click against the rest of its list.

Every list has one click. AUC and balanced accuracy are means over the pairs of the clicked and another object
of a list, each list with weight 1.

**Position-balanced accuracy.** People click more at higher ranks, which confirms whoever made the list. At
two ranks of a list either the upper object was clicked or the lower one. Each outcome gets twice the share of
the *opposite* one at the same two ranks as its weight, so that both weigh alike there. Where clicks depend on
the rank alone, every ranking then has .5, the shown order included. Two ranks at which only one of the
outcomes occurs have no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Ints
from tests.quality.real.lists import ClickedLists

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
AT_ONCE = 250
"""Queries that are scored with the catalog together."""


@dataclass(frozen=True)
class ListMeasures:
    """auc, reciprocal: AUC and reciprocal rank of the click in each list, ties counting half, float64 [n].
    balanced: position-balanced accuracy over all lists, NaN where no two ranks have both outcomes."""

    auc: Doubles
    reciprocal: Doubles
    balanced: float

    @property
    def mrr(self) -> float:
        """The mean reciprocal rank."""
        return float(self.reciprocal.mean())


def list_measures(scores: Doubles, lists: ClickedLists) -> ListMeasures:
    """Of the scores of all that was shown, float64 [total], as `ClickedLists.shown` has it."""
    of, others = lists.of, np.diff(lists.starts) - 1
    clicked = lists.starts[:-1] + lists.clicked
    of_click = scores[clicked][of]
    right = (of_click > scores) + 0.5 * (of_click == scores)
    right[clicked] = 0.0
    won = np.bincount(of, right, minlength=len(lists))
    return ListMeasures(won / others, 1 / (1 + others - won), _balanced(right, lists))


def _balanced(right: Doubles, lists: ClickedLists) -> float:
    of, ranks = lists.of, lists.ranks
    clicked = lists.clicked[of]
    pairs = ranks != clicked
    weight = 1 / (np.diff(lists.starts) - 1)[of][pairs]
    upper, lower = np.minimum(ranks, clicked)[pairs], np.maximum(ranks, clicked)[pairs]
    lower_clicked = (ranks < clicked)[pairs]
    width = int(np.diff(lists.starts).max())
    cell = upper * width + lower
    total = np.bincount(cell, weight, minlength=width * width)[cell]
    of_lower = np.bincount(cell, weight * lower_clicked, minlength=width * width)[cell]
    opposite = np.where(lower_clicked, total - of_lower, of_lower) / total
    weight = weight * 2 * opposite
    return float((weight * right[pairs]).sum() / weight.sum()) if weight.sum() > 0 else float("nan")


def scores_of(scores: Scores, lists: ClickedLists) -> Doubles:
    """Of all that was shown, float64 [total]; each query is scored once."""
    queries, at = np.unique(lists.queries, return_inverse=True)
    out = np.empty(len(lists.shown))
    of = at[lists.of]
    order = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[order], np.arange(len(queries) + 1))
    for first in range(0, len(queries), AT_ONCE):
        last = min(first + AT_ONCE, len(queries))
        rows = order[bounds[first] : bounds[last]]
        out[rows] = scores(queries[first:last])[of[rows] - first, lists.shown[rows]]
    return out


def clustered_error(values: Doubles, clusters: Ints) -> float:
    """Standard error of the mean of values of which those of one cluster go together."""
    each = np.bincount(np.unique(clusters, return_inverse=True)[1], values - values.mean())
    return float(np.sqrt((each**2).sum()) / len(values))


def never_asked(judged: ClickedLists, learned: ClickedLists) -> Bools:
    """Which lists are of queries that no learned list had, bool [n]."""
    return ~np.isin(judged.queries, learned.queries)
