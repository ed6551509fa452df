"""Shown lists as NumPy arrays, and the pairs of their objects. Pure.

A list tells something by pairs: of an object that was clicked and one that was not, or of any two. Lists of a
window differ in length, and the longest may be many times the median, so that what is made is as large as
the pairs that there are, and not as the longest list squared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streams.event import Impression

Float: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

MAX_PROPENSITY_WEIGHT = 10.0
"""Clip of 1/propensity: below .1 the variance of a weighted click outgrows what it corrects."""


def propensity_weights(propensity: Float) -> Float:
    """`min(1/p, 10)` per shown object; propensity float64 in (0, 1] -> float64 of the same shape."""
    return np.minimum(1.0 / propensity, MAX_PROPENSITY_WEIGHT)


@dataclass(frozen=True, eq=False)
class ShownLists:
    """n shown lists padded to the longest, L: `valid`, `clicked` bool[n, L], `weights` float64[n, L]
    (1/propensity, clipped; 1 where none was logged). What is read of the clicks alone is computed once, for
    all rankings.
    """

    valid: Mask
    clicked: Mask
    weights: Float

    @property
    def pairs(self) -> Iterable[tuple[ClickedPairs, Float]]:
        """The pairs of a clicked and an unclicked object, part by part, with their weights, float64[m], of 1
        in each list together: by the share of the clicks on the other one of the two places in the lists
        before."""
        return _balanced(self) if self._kept is None else self._kept

    @cached_property
    def _kept(self) -> list[tuple[ClickedPairs, Float]] | None:
        clicks = self.clicked.sum(axis=1)
        count = int((clicks * (self.valid.sum(axis=1) - clicks)).sum())
        return list(_balanced(self)) if count <= KEPT_PAIRS else None

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


PART_PAIRS = 1 << 20
"""Pairs of ranks that are looked at together: at most some 8 MB for each of a few arrays, but for longer
lists."""
KEPT_PAIRS = 1 << 18
"""Pairs of lists that are kept with them: 10 MB at most."""


@dataclass(frozen=True, slots=True, eq=False)
class ClickedPairs:
    """All pairs of a clicked and an unclicked object in consecutive lists, in the order of the lists. Of each
    pair: owner, the list, counted from the first of `part`; clicked and other, the two places from 0 on, all
    int64[m]; length: L.
    """

    part: slice
    owner: Rows
    clicked: Rows
    other: Rows
    length: int

    def scores(self, scores: Scores) -> tuple[Scores, Scores]:
        """Those of the clicked and of the other objects; scores [n, L] of all lists."""
        ours = scores[self.part]
        return ours[self.owner, self.clicked], ours[self.owner, self.other]

    def above(self, scores: Scores) -> Float:
        """Whether the clicked object is scored above the other, ties one half; float64[m]."""
        own, other = self.scores(scores)
        return np.asarray((own > other) + 0.5 * (own == other))

    def summed(self, values: Float) -> Float:
        """The sum of each list of the part."""
        return np.asarray(np.bincount(self.owner, values, self.part.stop - self.part.start), np.float64)

    def by_ranks(self, values: Float) -> Float:
        """The sum at each pair of places (clicked, other), float64[L, L]."""
        size = self.length * self.length
        sums = np.bincount(self.clicked * self.length + self.other, values, size)
        return np.asarray(sums.reshape(self.length, -1), np.float64)


def clicked_pairs(clicked: Mask, valid: Mask) -> Iterator[ClickedPairs]:
    """The pairs of all lists, part by part; clicked and valid bool[n, L]."""
    count, length = valid.shape
    clicks, free = clicked.sum(axis=1), (valid & ~clicked).sum(axis=1)
    reached = np.cumsum(clicks * free)
    begin = 0
    while begin < count:
        before = reached[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(reached, before + PART_PAIRS, side="right")))
        part = slice(begin, end)
        rows, ranks = np.nonzero(clicked[part])
        _, others = np.nonzero((valid & ~clicked)[part])
        per = free[part][rows]
        first = np.cumsum(free[part]) - free[part]  # of each list in `others`
        which = np.repeat(np.arange(len(rows)), per)
        within = np.arange(len(which)) - np.repeat(np.cumsum(per) - per, per)
        yield ClickedPairs(part, rows[which], ranks[which], others[first[rows[which]] + within], length)
        begin = end


def _balanced(lists: ShownLists) -> Iterator[tuple[ClickedPairs, Float]]:
    """See `ShownLists.pairs`."""
    seen = np.zeros((lists.valid.shape[1],) * 2)
    for pairs in clicked_pairs(lists.clicked, lists.valid):
        share = (1.0 / np.maximum(1.0, pairs.summed(np.ones(len(pairs.owner)))))[pairs.owner]
        alike, turned = _before(pairs, share)
        alike += seen[pairs.clicked, pairs.other]
        turned += seen[pairs.other, pairs.clicked]
        both = alike + turned
        yield pairs, share * np.divide(turned, both, out=np.zeros_like(both), where=both > 0)
        seen += pairs.by_ranks(share)


def _before(pairs: ClickedPairs, share: Float) -> tuple[Float, Float]:
    """At the two places of each pair, the shares of earlier pairs of the part with a click on the same place,
    and with one on the other place. A list has two places in at most one pair."""
    low, high = np.minimum(pairs.clicked, pairs.other), np.maximum(pairs.clicked, pairs.other)
    places = low * pairs.length + high
    order = np.argsort(places, kind="stable")
    upper, given = (pairs.clicked < pairs.other)[order], share[order]
    begins = np.flatnonzero(np.diff(places[order], prepend=-1))
    of = np.repeat(begins, np.diff(begins, append=len(order)))

    def earlier(values: Float) -> Float:
        sums = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(sums[:-1] - sums[of])

    clicks_above, clicks_below = earlier(np.where(upper, given, 0.0)), earlier(np.where(upper, 0.0, given))
    alike, turned = np.empty(len(order)), np.empty(len(order))
    alike[order] = np.where(upper, clicks_above, clicks_below)
    turned[order] = np.where(upper, clicks_below, clicks_above)
    return alike, turned


def order_signs(scores: Scores, valid: Mask) -> Rows:
    """In how many lists the object at a place is scored above that at a lower place, less in how many below;
    int64[L, L], 0 but where the second place is the lower one. scores [n, L]; valid bool[n, L], False from
    some place on."""
    order, length = np.argsort(-valid.sum(axis=1), kind="stable"), valid.shape[1]
    # no comparison with what is no number is true
    columns = np.ascontiguousarray(np.where(valid, scores, np.float32(np.nan))[order].T)
    signs, reaching = np.zeros((length, length), np.int64), valid.sum(axis=0).tolist()
    for place in range(1, length):
        upper, lower = columns[place - 1, : reaching[place]], columns[place:, : reaching[place]]
        above = (upper > lower).view(np.int8) - (upper < lower).view(np.int8)
        signs[place - 1, place:] = above.sum(axis=1, dtype=np.int64)
    return signs
