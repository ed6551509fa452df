"""Simulated users, vectorised: who asks, what they click, and what the feed's rule makes of it.

Of the objects, a fifth never comes as a query: labels judge on them. Of the others the feed holds some
out. With `kinds`, whole classes never come either. The triplets of a list are those that a learner takes of
`streams.feed` by default: pairs above the clicks, at most so many of a list, and a random object of the
catalog for each click; only which pairs and objects are drawn comes from a generator here and from hashes of
ids there. A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.demo.users import OTHER, SAME
from streams.event import ObjectRef
from streams.feed.options import LEAST_APART, FeedSettings
from streams.partitions import is_holdout, route_key
from tests.quality.bench.sets import Ints, RawSet
from tests.quality.clicks import SATISFIED

JUDGED_SHARE = 0.2
KINDS_KEPT_AWAY = 0.25
LENGTH = 10
CHUNK = 8_192
WITHOUT_PREFERENCE = 0.5
"""How often users click what they look at, where they have no preference."""

Bools = npt.NDArray[np.bool_]
ClickModel = Callable[[Bools, np.random.Generator], Bools]


def position(same: Bools, rng: np.random.Generator) -> Bools:
    """`daemon.demo.users.position_biased` for many lists: bool [lists, LENGTH] -> who is clicked."""
    examined = 1 / np.sqrt(np.arange(1, same.shape[1] + 1))
    return rng.random(same.shape) < examined * np.where(same, SAME, OTHER)


def cascade(same: Bools, rng: np.random.Generator) -> Bools:
    """`tests.quality.clicks.cascade` for many lists."""
    clicked = rng.random(same.shape) < np.where(same, SAME, OTHER)
    stops = clicked & (rng.random(same.shape) < SATISFIED)
    before: Ints = np.cumsum(stops, axis=1) - stops
    return clicked & (before == 0)


def by_rank(same: Bools, rng: np.random.Generator) -> Bools:
    """Without any preference: who is clicked depends on the rank alone."""
    return rng.random(same.shape) < WITHOUT_PREFERENCE / np.sqrt(np.arange(1, same.shape[1] + 1))


CLICKS: Mapping[str, ClickModel] = {"position": position, "cascade": cascade}
NOTHING: Mapping[str, ClickModel] = {"by rank": by_rank}
"""Users of whom nothing can be learned."""


@dataclass(frozen=True)
class Split:
    """asking: rows that come as queries. judged: rows that labels judge on, of kinds that come; unseen: of
    kinds that never do."""

    asking: Ints
    judged: Ints
    unseen: Ints


def split(data: RawSet, seed: int = 0, kinds: bool = False) -> Split:
    """Who asks and who is judged."""
    rng = np.random.default_rng((seed, 77))
    away = np.zeros(len(data), bool)
    if kinds:
        classes = np.unique(data.labels)
        chosen = rng.choice(classes, max(1, round(KINDS_KEPT_AWAY * len(classes))), replace=False)
        away = np.isin(data.labels, chosen)
    judged = rng.random(len(data)) < JUDGED_SHARE
    return Split(*(np.flatnonzero(one).astype(np.int64) for one in (~judged & ~away, judged & ~away, away)))


@dataclass(frozen=True)
class Learned:
    """What lists gave, in order; every `*_of` is the number of the list, from 0.

    rows: triplets, int64 [3, n], query, clicked, skipped. drawn: whether the skipped object was drawn
    from the catalog. ranks: int64 [2, n], of the clicked and of the skipped object, -1 for one that was
    drawn. clicked: int64 [2, m], query and clicked object of every click that was not held
    out; held_clicked: of the others. shown: objects shown in all lists. held: lists held out that can be
    judged, query and objects, int64 [h, 1 + LENGTH]; held_clicks: bool [h, LENGTH]. open, open_clicks: the
    same of the others.
    """

    rows: Ints
    drawn: Bools
    ranks: Ints
    of: Ints
    clicked: Ints
    clicked_of: Ints
    held_clicked: Ints
    shown: Ints
    held: Ints
    held_clicks: Bools
    held_of: Ints
    open: Ints
    open_clicks: Bools


class Users:
    """Lists and clicks without end, in the same order for the same seed. apart: rows of kinds of queries that
    are held out as a whole, bool [n]. share: of queries held out, None: as by default. The attribute has the
    rows of queries of which arms learn nothing, too. explored: share of the lists in which a random object is
    in one slot.
    """

    def __init__(
        self,
        data: RawSet,
        clicks: str,
        seed: int,
        who: Split,
        apart: Bools | None = None,
        share: float | None = None,
        explored: float = 0.0,
    ) -> None:
        self._labels, self._asking = data.labels, who.asking
        self._clicks, self._rng = {**CLICKS, **NOTHING}[clicks], np.random.default_rng((seed, 5))
        self._settings, self._number = FeedSettings(), 0
        self._share_explored, self._exploring = explored, np.random.default_rng((seed, 13))
        share = self._settings.holdout_share if share is None else share
        keys = [route_key(ObjectRef(id=one)) for one in data.ids]
        self._held_out = np.array([is_holdout(key, share, 0) for key in keys])
        self.apart = np.array([is_holdout(key, min(share, LEAST_APART), 0) for key in keys])
        if apart is not None:
            self._held_out |= apart
            self.apart |= apart

    def look(self, lists: Ints, count: int) -> Learned:
        """`count` further lists, the objects shown for a query being its row of `lists`, int64 [n,
        LENGTH]."""
        parts = []
        while count:
            parts.append(self._look(lists, min(count, CHUNK)))
            count -= min(count, CHUNK)
        return joined(parts)

    def _look(self, lists: Ints, count: int) -> Learned:
        queries = self._asking[self._rng.integers(len(self._asking), size=count)]
        numbers = self._number + np.arange(count)
        self._number += count
        shown = self._explored(queries, lists[queries])
        clicks = self._clicks(self._labels[shown] == self._labels[queries][:, None], self._rng)
        usable = clicks.any(1) & ~clicks.all(1)
        held, known = self._held_out[queries] & usable, ~self._held_out[queries] & usable
        learned = np.flatnonzero(~self._held_out[queries] & clicks.any(1))
        rows, drawn, ranks, of = self._triplets(queries[learned], shown[learned], clicks[learned])
        at, rank = np.nonzero(clicks[learned])
        apart = np.flatnonzero(self._held_out[queries])
        by, place = np.nonzero(clicks[apart])
        return Learned(
            rows, drawn, ranks, numbers[learned][of],
            np.stack([queries[learned][at], shown[learned][at, rank]]), numbers[learned][at],
            np.stack([queries[apart][by], shown[apart][by, place]]), shown.ravel(),
            np.column_stack([queries[held], shown[held]]), clicks[held], numbers[held],
            np.column_stack([queries[known], shown[known]]), clicks[known],
        )  # fmt: skip

    def _explored(self, queries: Ints, shown: Ints) -> Ints:
        """The lists with an object of the catalog in one slot of some, neither in the list nor the query."""
        chosen = np.flatnonzero(self._exploring.random(len(shown)) < self._share_explored)
        ranks = self._exploring.integers(LENGTH, size=len(chosen))
        found = self._exploring.integers(len(self._labels), size=len(chosen))
        known = (shown[chosen] == found[:, None]).any(1) | (queries[chosen] == found)
        shown[chosen[~known], ranks[~known]] = found[~known]
        return shown

    def _triplets(self, queries: Ints, shown: Ints, clicks: Bools) -> tuple[Ints, Bools, Ints, Ints]:
        """Triplets in the order of their lists: pairs by rank, then a drawn object per click."""
        lower, upper = np.tril_indices(LENGTH, -1)
        pairs = clicks[:, lower] & ~clicks[:, upper]
        chance = np.where(pairs, self._rng.random(pairs.shape), 2)
        cap = self._settings.triplets_per_impression
        if cap:
            last = np.partition(chance, cap - 1, axis=1)[:, cap - 1 : cap]
            pairs &= chance <= last
        pair_of, pair = np.nonzero(pairs)
        click_of, rank = np.nonzero(clicks)
        objects = self._objects(queries, shown, clicks, click_of)
        of = np.concatenate([pair_of, click_of])
        order = np.argsort(of, kind="stable")
        rows = np.stack([
            queries[of],
            np.concatenate([shown[pair_of, lower[pair]], shown[click_of, rank]]),
            np.concatenate([shown[pair_of, upper[pair]], objects]),
        ])  # fmt: skip
        drawn = np.arange(len(of)) >= len(pair_of)
        ranks = np.stack([
            np.concatenate([lower[pair], rank]), np.concatenate([upper[pair], np.full(len(rank), -1)])
        ])  # fmt: skip
        return rows[:, order], drawn[order], ranks[:, order], of[order]

    def _objects(self, queries: Ints, shown: Ints, clicks: Bools, of: Ints) -> Ints:
        """A random object for each click, neither the query nor one clicked in its list."""
        size = len(self._labels)
        found = self._rng.integers(size, size=len(of))
        while True:
            among = ((shown[of] == found[:, None]) & clicks[of]).any(1) | (found == queries[of])
            if not among.any():
                return found
            found[among] = self._rng.integers(size, size=int(among.sum()))


def joined(parts: list[Learned]) -> Learned:
    """One after another."""
    return Learned(
        np.concatenate([one.rows for one in parts], axis=1),
        np.concatenate([one.drawn for one in parts]),
        np.concatenate([one.ranks for one in parts], axis=1),
        np.concatenate([one.of for one in parts]),
        np.concatenate([one.clicked for one in parts], axis=1),
        np.concatenate([one.clicked_of for one in parts]),
        np.concatenate([one.held_clicked for one in parts], axis=1),
        np.concatenate([one.shown for one in parts]),
        np.concatenate([one.held for one in parts]),
        np.concatenate([one.held_clicks for one in parts]),
        np.concatenate([one.held_of for one in parts]),
        np.concatenate([one.open for one in parts]),
        np.concatenate([one.open_clicks for one in parts]),
    )
