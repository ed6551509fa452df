"""What clicks say of rankings, on NumPy arrays. Of one: average precision, nDCG, AUC, hinge loss,
position-balanced accuracy. Of two: which one users prefer, list by list. Pure.

Conventions are those of `learners.measures`, where average precision and P@k over a whole catalog are: a
higher score ranks first, **ties go to the lower place**, scores are finite, ranks are 1-based. `shown_*`
works on many short shown lists at once, padded to a common length (`valid` is False on padding).

**Which of two rankings users prefer**, from clicks that also depend on the rank (`differences`). A list tells
something at each pair of its ranks of which one object was clicked and the other was not. Let `F` be 1 where
one ranking puts the upper object above the lower and the other does not, -1 the other way round, and 0 where
both agree. The upper object is clicked more often whatever it is, so that

- a click on the upper one counts by the share of the clicks on the lower one at these two ranks in the lists
  before, and the other way round: then both directions count alike,
- from `F` its mean at these two ranks over all lists is subtracted: what differs between the rankings at a
  rank whatever is clicked there.

So the difference of a list is what users did more often than the ranks alone would have them do, times where
the two rankings differ more than they usually do there. **Unbiased where clicks depend on the rank alone:**
its mean is 0 for any two rankings, also where one of them made the lists, and an error in either of the two
corrections is multiplied by the error of the other (a doubly robust residual; Robinson, Econometrica 1988).
Its sign is that of the covariance of clicks with the places where rankings differ. It does not ask how much
better the shown order is than chance, and knows nothing of what was not shown.

Several clicks of one list share its weight of 1. Differences are doubled and cut to [-1, 1]: of lists of 10
not one in 1,000 is cut.

**An interleaved list needs less to be true** (`outcomes`). It tells the share of its credited clicks that one
team got, less the other's: `(n_one - n_other) / (n_one + n_other)`, in [-1, 1], and 0 where neither got one.
A click on an object of neither team credits nobody. Under a user without a preference between the two
rankings the mean is 0 whatever the bias of places, because each team stands in either place of a round with
the same probability (`daemon.serve.interleave`) and the outcome changes its sign with the teams: so these
values are bets as they are. Lists of one query are alike: together they make one bet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streams.event import FIRST, SECOND, Draft, Impression

Float: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

TOP = 10
"""The k of P@k and nDCG@k in every report."""

MAX_PROPENSITY_WEIGHT = 10.0
"""Clip of 1/propensity: below .1 the variance of a weighted click outgrows what it corrects."""


def shown_ranks(scores: Scores, valid: Mask) -> Rows:
    """1-based rank of every object inside its shown list; padding ranks last.

    scores [n, L], valid bool[n, L] -> int64[n, L]; ties to the lower place in the shown order.
    """
    order = np.argsort(np.where(valid, -scores, np.inf), axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    places = np.tile(np.arange(1, order.shape[1] + 1), (len(order), 1))
    np.put_along_axis(ranks, order, places, axis=1)
    return ranks


def shown_average_precision(ranks: Rows, clicked: Mask, weights: Float | None = None) -> Float:
    """Average precision inside each shown list with the clicked objects as the relevant ones.

    `AP_w = sum_j w_j P(r_j) / sum_j w_j`, P(r) = share of clicked among the first r places: the
    self-normalised inverse-propensity mean of the precision at each click; equal weights give plain AP.
    ranks int64[n, L], clicked bool[n, L], weights float64[n, L] -> float64[n]; NaN for a list without a
    click.
    """
    length = ranks.shape[1]
    hits = np.zeros(ranks.shape, dtype=np.float64)
    np.put_along_axis(hits, ranks - 1, clicked.astype(np.float64), axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, length + 1)
    at_object = np.take_along_axis(precision, ranks - 1, axis=1)
    share = clicked.astype(np.float64) if weights is None else np.where(clicked, weights, 0.0)
    total = share.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (share * at_object).sum(axis=1) / total, np.nan)


def shown_ndcg(ranks: Rows, clicked: Mask, k: int = 10) -> Float:
    """nDCG@k inside each shown list, gain 1 for a click, discount `1/log2(1 + rank)`.

    ranks int64[n, L], clicked bool[n, L] -> float64[n]; NaN for a list without a click.
    """
    discount = np.where(ranks <= k, 1.0 / np.log2(1.0 + ranks), 0.0)
    dcg = np.where(clicked, discount, 0.0).sum(axis=1)
    ideal = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(1.0 + np.arange(1, k + 1)))])
    best = ideal[np.minimum(clicked.sum(axis=1), k)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(best > 0, dcg / best, np.nan)


def propensity_weights(propensity: Float) -> Float:
    """`min(1/p, 10)` per shown object; propensity float64 in (0, 1] -> float64 of the same shape."""
    return np.minimum(1.0 / propensity, MAX_PROPENSITY_WEIGHT)


def shown_hinge(scores: Scores, clicked: Mask, valid: Mask) -> Float:
    """Mean hinge `max(0, 1 - s_c + s_u)` over all (clicked c, unclicked u) pairs of each shown list.

    scores [n, L], clicked and valid bool[n, L] -> float64[n]; NaN for a list without such a pair.
    """
    unclicked = valid & ~clicked
    loss = np.maximum(0.0, 1.0 - scores[:, :, None].astype(np.float64) + scores[:, None, :])
    pairs = clicked[:, :, None] & unclicked[:, None, :]
    count = pairs.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, np.where(pairs, loss, 0.0).sum(axis=(1, 2)) / count, np.nan)


def auc_per_list(scores: Scores, clicked: Mask, random: Scores, counts: Mask) -> Float:
    """Share of (clicked, random) pairs of each list with the clicked one scored higher, ties one half.

    scores [n, L], clicked bool[n, L], random [n, R], counts bool[n, R] (the random objects that count) ->
    float64[n]; NaN without a pair.
    """
    owner, rank = np.nonzero(clicked)
    own, other = scores[owner, rank][:, None], random[owner]
    won = (((own > other) + 0.5 * (own == other)) * counts[owner]).sum(axis=1)
    pairs = clicked.sum(axis=1) * counts.sum(axis=1)
    total = np.bincount(owner, won, minlength=len(scores))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, total / pairs, np.nan)


def weighted_auc(scores: Scores, ordered: Scores, targets: Rows, weights: Float, barred: Rows) -> float:
    """Weighted mean over `targets` of the share of other candidates scored lower, ties one half.

    Candidates are all of scores [n] but `barred` (int64, distinct, none a target); ordered: the scores sorted
    upwards; targets int64[k], weights float[k]. NaN without a target or another candidate.
    """
    others = scores.shape[0] - barred.shape[0] - 1
    if targets.shape[0] == 0 or others < 1:
        return float("nan")
    wanted, out = scores[targets], np.sort(scores[barred])
    below = np.searchsorted(ordered, wanted, side="left") - np.searchsorted(out, wanted, side="left")
    upto = np.searchsorted(ordered, wanted, side="right") - np.searchsorted(out, wanted, side="right")
    return float(np.average((below + 0.5 * (upto - below - 1)) / others, weights=weights))


@dataclass(frozen=True, slots=True)
class ShownLists:
    """n shown lists padded to the longest, L: `valid`, `clicked` bool[n, L], `weights` float64[n, L]
    (1/propensity, clipped; 1 where none was logged).
    """

    valid: Mask
    clicked: Mask
    weights: Float

    @property
    def shown_order(self) -> Rows:
        """Ranks of the order the user saw, int64[n, L]."""
        count, length = self.valid.shape
        return np.tile(np.arange(1, length + 1, dtype=np.int64), (count, 1))

    def in_order(self, places: Rows) -> ShownLists:
        """Where list i is put at places[i], int64[n]."""
        return self.at(np.argsort(places))

    def at(self, where: Mask | Rows | slice) -> ShownLists:
        """Those at `where`: bool[n], their numbers, or a slice, which is not copied."""
        return ShownLists(self.valid[where], self.clicked[where], self.weights[where])


def shown_lists(impressions: Sequence[Impression]) -> ShownLists:
    """Pad impressions to arrays."""
    length = max((len(impression.shown) for impression in impressions), default=1)
    shape = (len(impressions), length)
    lengths = np.array([len(impression.shown) for impression in impressions], np.int64)
    valid = np.arange(length) < lengths[:, None]
    clicked, weights = np.zeros(shape, bool), np.ones(shape)
    for row, impression in enumerate(impressions):
        clicked[row, list(impression.clicked)] = True
        if impression.propensity is not None:
            weights[row, : lengths[row]] = propensity_weights(np.asarray(impression.propensity, np.float64))
    return ShownLists(valid, clicked, weights)


class PositionBalance:
    """Counts over the lists of a window, gathered part by part. Memory: two float64 [L, L]."""

    def __init__(self, length: int) -> None:
        self._pairs = np.zeros((length, length))
        self._won = np.zeros((length, length))

    def add(self, scores: Scores, clicked: Mask, valid: Mask) -> None:
        """Take lists: scores [n, L], clicked and valid bool[n, L]. Ties win one half."""
        pairs = clicked[:, :, None] & (valid & ~clicked)[:, None, :]
        above = scores[:, :, None] > scores[:, None, :]
        equal = scores[:, :, None] == scores[:, None, :]
        self._pairs += pairs.sum(axis=0)
        self._won += (pairs & above).sum(axis=0) + 0.5 * (pairs & equal).sum(axis=0)

    def value(self) -> float:
        """Mean over rank pairs of the mean of both accuracies, weighted by a b / (a + b) for the number of
        lists a with the upper and b with the lower rank clicked: the inverse variance of such a mean, up to
        a factor. NaN when no rank pair has both.
        """
        upper = np.triu_indices(len(self._pairs), 1)
        a, b = self._pairs[upper], self._pairs.T[upper]
        both = (a > 0) & (b > 0)
        if not both.any():
            return float("nan")
        a, b = a[both], b[both]
        accuracy: Float = (self._won[upper][both] / a + self._won.T[upper][both] / b) / 2
        weights = a * b / (a + b)
        return float((weights * accuracy).sum() / weights.sum())


PART_PAIRS = 1 << 20
"""Pairs of ranks that are looked at together: some 8 MB for each of a few arrays."""
SCALE = 2.0


def differences(own: Scores, other: Scores, lists: ShownLists, like: Mask | None = None) -> Float:
    """How much more users prefer the order of `own` to that of `other` in each list, float64[n] in [-1, 1].

    own, other: scores [n, L]; lists in the order in which they were shown, of the past first. like: bool[n],
    the lists that say by how much the rankings usually differ, where others are not like those asked about;
    None: all.
    """
    total, known = np.zeros((lists.valid.shape[1],) * 2), np.zeros((lists.valid.shape[1],) * 2)
    for part in _parts(lists):
        valid = lists.valid[part] if like is None else lists.valid[part] & like[part, None]
        total += (_above(own[part]) - _above(other[part])).sum(axis=0, where=_pairs(valid))
        known += _pairs(valid).sum(axis=0)
    usual = total / np.maximum(known, 1.0)
    out = np.zeros(len(lists.valid))
    for part, weights in _balanced(lists):
        apart = _above(own[part]) - _above(other[part]) - usual
        out[part] = (weights * apart).sum(axis=(1, 2))
    return np.clip(SCALE * out, -1.0, 1.0)


def standing_higher(own: Scores, other: Scores, lists: ShownLists) -> tuple[Float, Float]:
    """Whether clicked objects stand higher under `own` than under `other` in each list, float64[n]: 1, 0, or
    0.5 where as much speaks for either; and how much the list tells, float64[n], 0 where both order its
    clicked and unclicked objects alike. Weighted as `differences`: where clicks depend on the rank alone, the
    weighted mean is 0.5.
    """
    won, told = np.zeros(len(lists.valid)), np.zeros(len(lists.valid))
    for part, weights in _balanced(lists):
        gained = weights * (_above(own[part]) - _above(other[part]))
        net, told[part] = gained.sum(axis=(1, 2)), np.abs(gained).sum(axis=(1, 2))
        won[part] = 0.5 + 0.5 * np.sign(np.where(np.abs(net) > 1e-12, net, 0.0))
    return won, told


def _parts(lists: ShownLists) -> list[slice]:
    count, length = lists.valid.shape
    step = max(1, PART_PAIRS // (length * length))
    return [slice(at, min(at + step, count)) for at in range(0, count, step)]


def _balanced(lists: ShownLists) -> Iterator[tuple[slice, Float]]:
    """Part by part the weights of (clicked, unclicked) pairs of ranks, float64[n, L, L]: by the share of the
    clicks on the other one of the two in the lists before.
    """
    seen = np.zeros((lists.valid.shape[1],) * 2)
    for part in _parts(lists):
        clicked = _clicked_pairs(lists.clicked[part], lists.valid[part])
        before = seen + np.cumsum(clicked, axis=0) - clicked
        turned = before.transpose(0, 2, 1)
        both = before + turned
        yield part, clicked * np.divide(turned, both, out=np.zeros_like(both), where=both > 0)
        seen += clicked.sum(axis=0)


def in_shown_order(scores: Scores, lists: ShownLists) -> float:
    """Share of all pairs of the lists that a ranking has in the order that was shown, ties one half; 0.5
    without a pair. scores [n, L].
    """
    upper = np.triu(np.ones((lists.valid.shape[1],) * 2, bool), 1)
    right = pairs = 0.0
    for part in _parts(lists):
        counted = _pairs(lists.valid[part]) & upper
        right += float(_above(scores[part]).sum(where=counted))
        pairs += float(counted.sum())
    return right / pairs if pairs else 0.5


def by_cluster(values: Float, clusters: Sequence[Hashable]) -> list[float]:
    """The mean over the lists of each cluster, in the order in which clusters come first; lists whose value
    is NaN are left out.

    Lists of one query are not independent: together they make one bet.
    """
    found: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values.tolist(), clusters, strict=True):
        if not math.isnan(value):
            found.setdefault(cluster, []).append(value)
    return [sum(group) / len(group) for group in found.values()]


def _above(scores: Scores) -> Float:
    """Whether the object at the first rank is scored above that at the second, ties one half; [n, L, L]."""
    first, second = scores[:, :, None], scores[:, None, :]
    return np.asarray((first > second) + 0.5 * (first == second))


def _pairs(valid: np.ndarray) -> np.ndarray:
    return np.asarray(valid[:, :, None] & valid[:, None, :])


def _clicked_pairs(clicked: np.ndarray, valid: np.ndarray) -> Float:
    """Pairs of (clicked, unclicked) ranks, with equal shares of 1 in each list; float64[n, L, L]."""
    pairs = (clicked[:, :, None] & (valid & ~clicked)[:, None, :]).astype(np.float64)
    return np.asarray(pairs / np.maximum(1.0, pairs.sum(axis=(1, 2), keepdims=True)))


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
    def of(cls, values: Sequence[float]) -> Preference:
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


NO_PREFERENCE = Preference(0.0, math.inf, 0)
