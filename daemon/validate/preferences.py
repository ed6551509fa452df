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

**An interleaved list needs less to be true** (`outcomes`). It tells the share of its credited clicks that one
team got, less the other's: `(n_one - n_other) / (n_one + n_other)`, in [-1, 1], and 0 where neither got one.
A click on an object of neither team credits nobody. Under a user without a preference between the two
rankings the mean is 0 whatever the bias of places, because each team stands in either place of a round with
the same probability (`daemon.serve.interleave`) and the outcome changes its sign with the teams: so these
values are bets as they are. Lists of one query are alike: together they make one bet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from daemon.validate.measures import Float, Scores
from daemon.validate.scorer import ShownLists
from streams.event import FIRST, SECOND, Draft, DraftModel, Impression

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
        first, second = map(_state, draft.models)
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


def _state(model: DraftModel) -> State:
    return model.version, model.records
