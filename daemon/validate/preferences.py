"""Which of two rankings users prefer, list by list, from their clicks. Pure.

Clicks depend on the rank, too. A list tells something at each pair of its ranks of which one object was
clicked and the other was not. Let `F` be 1 where one ranking puts the upper object above the lower and the
other does not, -1 the other way round, and 0 where both agree. The upper object is clicked more often
whatever it is, so that

- a click on the upper one counts by the share of the clicks on the lower one at these two ranks in the lists
  before, and the other way round: then both directions count alike (`balanced`),
- from `F` its mean at these two ranks over all lists is subtracted: what differs between the rankings at a
  rank whatever is clicked there (`differences`).

**Unbiased where clicks depend on the rank alone:** the mean is 0 for any two rankings, also where one of them
made the lists; with both, an error in one correction is multiplied by that of the other (a doubly robust
residual; Robinson, Econometrica 1988). In lists of the user's own ranking what is subtracted is mostly noise,
in lists that somebody else made mostly what users prefer (docs/decisions/085). Several clicks of one list
share its weight of 1. What is left of differences is doubled and cut to [-1, 1]: of lists of 10 not one in
1,000 is cut.

**An interleaved list needs less to be true** (`outcomes`). It tells the share of its credited clicks that one
team got, less the other's: `(n_one - n_other) / (n_one + n_other)`, and 0 where neither got one. Each team
stands in either place of a round with the same probability (`daemon.serve.interleave`), so that the mean is 0
under a user without a preference, whatever the bias of places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from daemon.validate.shown import Float, Mask, Scores, ShownLists, order_signs
from streams.event import FIRST, SECOND, Draft, Impression

SCALE = 2.0


def differences(own: Scores, other: Scores, lists: ShownLists, like: Mask | None = None) -> Float:
    """How much more users prefer the order of `own` to that of `other` in each list, float64[n] in [-1, 1].

    own, other: scores [n, L]; lists in the order in which they were shown, of the past first. like: bool[n],
    the lists that say by how much the rankings usually differ, where others are not like those asked about;
    None: all.
    """
    counted = lists.valid if like is None else lists.valid & like[:, None]
    reached = counted.sum(axis=0)
    more = order_signs(own, counted) - order_signs(other, counted)
    usual = 0.5 * (more - more.T) / np.maximum(np.minimum.outer(reached, reached), 1)
    out = np.zeros(len(lists.valid))
    for pairs, weights in lists.pairs:
        apart = pairs.above(own) - pairs.above(other) - usual[pairs.clicked, pairs.other]
        out[pairs.part] = pairs.summed(weights * apart)
    return np.clip(SCALE * out, -1.0, 1.0)


def balanced(own: Scores, other: Scores, lists: ShownLists) -> Float:
    """As `differences`, with nothing subtracted, and nothing cut: of short lists the two sides would be cut
    unlike, and a ranking that is nearer to the shown order would be preferred."""
    return np.clip(credit(own, lists) - credit(other, lists), -1.0, 1.0)  # within, but for the last bit


def credit(scores: Scores, lists: ShownLists) -> Float:
    """The weights of the pairs of each list in which the clicked object is scored higher, ties one half,
    float64[n]: what `balanced` is the difference of."""
    out = np.zeros(len(lists.valid))
    for pairs, weights in lists.pairs:
        out[pairs.part] = pairs.summed(weights * pairs.above(scores))
    return out


def standing_higher(own: Scores, other: Scores, lists: ShownLists) -> tuple[Float, Float]:
    """Whether clicked objects stand higher under `own` than under `other` in each list, float64[n]: 1, 0, or
    0.5 where as much speaks for either; and how much the list tells, float64[n], 0 where both order its
    clicked and unclicked objects alike. Weighted as `differences`: where clicks depend on the rank alone, the
    weighted mean is 0.5.
    """
    won, told = np.zeros(len(lists.valid)), np.zeros(len(lists.valid))
    for pairs, weights in lists.pairs:
        gained = weights * (pairs.above(own) - pairs.above(other))
        net, told[pairs.part] = pairs.summed(gained), pairs.summed(np.abs(gained))
        won[pairs.part] = 0.5 + 0.5 * np.sign(np.where(np.abs(net) > 1e-12, net, 0.0))
    return won, told


def in_shown_order(scores: Scores, lists: ShownLists) -> float:
    """Share of all pairs of the lists that a ranking has in the order that was shown, ties one half; 0.5
    without a pair. scores [n, L].
    """
    lengths = lists.valid.sum(axis=1)
    count = int((lengths * (lengths - 1)).sum())
    return 0.5 + float(order_signs(scores, lists.valid).sum()) / count if count else 0.5


def by_cluster(values: Float, clusters: Sequence[Hashable]) -> list[float]:
    """The mean over the lists of each cluster, in the order in which clusters come first; lists whose value
    is NaN are left out.
    """
    sums, counts = _sums(values, clusters)
    return list((sums / counts).tolist())


def bets_of(values: Float, clusters: Sequence[Hashable]) -> list[float]:
    """One bet for each cluster, in [-1, 1], in the order in which clusters come first; lists whose value is
    NaN are left out.

    A query that is asked k times weighs as much as sqrt(k) queries: its lists tell more than a single list,
    and less than as many of different queries.
    """
    sums, counts = _sums(values, clusters)
    return list(np.clip(sums / np.sqrt(counts), -1.0, 1.0).tolist())


def _sums(values: Float, clusters: Sequence[Hashable]) -> tuple[Float, Float]:
    told = ~np.isnan(values)
    numbers: dict[Hashable, int] = {}
    group = [numbers.setdefault(cluster, len(numbers)) for cluster in compress(clusters, told)]
    return np.bincount(group, values[told]).astype(np.float64), np.bincount(group).astype(np.float64)


State = tuple[int, int]
"""What a model was: the newest version at or before it, and the records it had applied since version 0."""


def outcomes(impressions: Sequence[Impression], reference: State, of: State | None = None) -> Float:
    """What each list says of a later state against the reference, float64[n]: above 0 where users preferred
    what was learned later, NaN where the list is not of these two.

    of: the later state; any that had applied more records where it is None. Two models in one state can only
    tie, so such a list says nothing.
    """
    found = np.full(len(impressions), np.nan)
    for place, impression in enumerate(impressions):
        draft = impression.draft
        if draft is None or len(draft.models) != 2:
            continue
        first, second = ((one.version, one.records) for one in draft.models)
        if reference not in (first, second):
            continue
        later = second if first == reference else first
        if later == of if of is not None else later[1] > reference[1]:
            sign = 1 if later is second else -1
            found[place] = sign * second_over_first(draft, impression.clicked)
    return found


def second_over_first(draft: Draft, clicked: Iterable[int]) -> float:
    """The outcome of a list for the second of its models."""
    credit = Counter(draft.teams[rank] for rank in clicked)
    both = credit[FIRST] + credit[SECOND]
    return (credit[SECOND] - credit[FIRST]) / both if both else 0.0


ERRORS = 1.0
"""By how many standard errors a preference has to differ from 0 to count."""


@dataclass(frozen=True, slots=True)
class Preference:
    """How much users prefer one ranking to another: mean difference of queries and its standard error."""

    mean: float
    error: float
    queries: int

    @classmethod
    def of(cls, values: Sequence[float] | Float) -> Preference:
        """Of differences in [-1, 1], one for each query; an infinite error for fewer than two."""
        count = len(values)
        if count < 2:
            return cls(0.0, math.inf, count)
        found = np.asarray(values, np.float64)
        return cls(float(found.mean()), float(found.std(ddof=1) / math.sqrt(count)), count)

    @property
    def is_above(self) -> bool:
        """Whether it counts as a preference for the first."""
        return self.mean > ERRORS * self.error

    @property
    def is_below(self) -> bool:
        """Whether it counts as one for the second."""
        return self.mean < -ERRORS * self.error
