"""Which lists of a window count, so that no source decides alone (docs/decisions/088). Pure.

A source is who clicked (`Impression.source`). Of each at most `MOST` times as many lists of the window count
as the median source has; of the others no bet is made, and the shares of clicks by which bets are balanced
are not of them. Which ones count is a function of ids and sources alone, so that a bet on those that count is
as fair as it was. Of one or two sources all lists count, and so do lists without a source, which do not say
how many a source has: it may be thousands of users who sent them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemon.validate.scorer import stable_order
from daemon.validate.shown import Mask, ShownLists
from daemon.versions.verdict import SourceShare
from streams.event import Impression

MOST = 2.0
"""Lists of a source that count, over the median of all sources. With 1 half of the sources would lose some:
of a geometric distribution of mean 5, 59 % of the lists would count instead of 83 %."""


def counted_lists(impressions: Sequence[Impression]) -> tuple[Mask, SourceShare | None]:
    """Which lists of a window count, bool[n], and the share of the source with the most lists, None where no
    list has a source."""
    places: dict[str, list[int]] = {}
    for place, impression in enumerate(impressions):
        if impression.source is not None:
            places.setdefault(impression.source, []).append(place)
    counted = np.ones(len(impressions), bool)
    if not places:
        return counted, None
    most = int(MOST * np.median([len(of) for of in places.values()]))
    for of in places.values():
        if len(of) > most:
            counted[sorted(of, key=lambda place: stable_order(impressions[place].id))[most:]] = False
    strongest = max(places.values(), key=len)
    return counted, SourceShare(len(strongest), len(impressions), int(counted[strongest].sum()))


def only_counted(lists: ShownLists, counted: Mask) -> ShownLists:
    """The same lists, of which those that do not count hold no object."""
    if counted.all():
        return lists
    where = counted[:, None]
    return ShownLists(lists.valid & where, lists.clicked & where, lists.weights)
