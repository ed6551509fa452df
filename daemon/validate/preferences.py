"""Which of two rankings users prefer, list by list, from clicks that also depend on the rank. Pure.

A list tells something at each pair of its ranks of which one object was clicked and the other was not. Let
`F` be 1 where one ranking puts the upper object above the lower and the other does not, -1 the other way
round, and 0 where both agree. The upper object is clicked more often whatever it is, so that

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
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from daemon.validate.measures import Float, Scores
from daemon.validate.scorer import ShownLists

PART_PAIRS = 1 << 20
"""Pairs of ranks that are looked at together: some 8 MB for each of a few arrays."""
SCALE = 2.0


def differences(own: Scores, other: Scores, lists: ShownLists) -> Float:
    """How much more users prefer the order of `own` to that of `other` in each list, float64[n] in [-1, 1].

    own, other: scores [n, L]; lists in the order in which they were shown, of the past first.
    """
    count, length = lists.valid.shape
    step = max(1, PART_PAIRS // (length * length))
    parts = [slice(at, min(at + step, count)) for at in range(0, count, step)]
    total, known = np.zeros((length, length)), np.zeros((length, length))
    for part in parts:
        valid = lists.valid[part]
        total += (_above(own[part]) - _above(other[part])).sum(axis=0, where=_pairs(valid))
        known += _pairs(valid).sum(axis=0)
    usual = total / np.maximum(known, 1.0)
    seen = np.zeros((length, length))
    out = np.zeros(count)
    for part in parts:
        clicked = _clicked_pairs(lists.clicked[part], lists.valid[part])
        before = seen + np.cumsum(clicked, axis=0) - clicked
        turned = before.transpose(0, 2, 1)
        both = before + turned
        share = np.divide(turned, both, out=np.zeros_like(both), where=both > 0)
        apart = _above(own[part]) - _above(other[part]) - usual
        out[part] = (clicked * share * apart).sum(axis=(1, 2))
        seen += clicked.sum(axis=0)
    return np.clip(SCALE * out, -1.0, 1.0)


def by_cluster(values: Float, clusters: Sequence[Hashable]) -> list[float]:
    """The mean over the lists of each cluster, in the order in which clusters come first.

    Lists of one query are not independent: together they make one bet.
    """
    found: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values.tolist(), clusters, strict=True):
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
