"""Which lists of a window count, so that no source decides alone. Pure.

A source is who clicked: a user, a session, or who holds a token (`Impression.source`). A program that clicks,
or an employee who votes, may send half of all lists. Of each source at most `MOST` times as many lists of the
window count as the median source has; no bet is made of the others, and the shares of clicks by which bets
are balanced (`daemon.validate.preferences`) are not of them. Which ones count is chosen by a hash of their
ids, and:

- **Bets stay in [-1, 1], with a mean of 0 where no ranking is better.** Which lists count is a function of
  ids and sources. Given these, clicks are as likely as before, so that each list that counts has the mean
  that it had; and its value is made as before.
- **Many users with several lists each lose little.** Where all have alike many, or each list has a source of
  its own, all lists count, and bets are those of a log without sources. Of numbers with a geometric
  distribution 3 in 4 lists count or more, of such as 1 / k^2 for k lists (few have most), 3 in 10.
- **A source that sends many counts as two others.** So it does over all looks together: of its k lists in the
  window c count, and each new one with the chance c / k. Whoever makes up ids with ever smaller hashes can
  have c lists count in each look, and no more.
- **Of one or two sources all lists count:** nothing tells which of them is unlike others. `SourceShare` says
  how many lists the strongest one gave.

Lists without a source count, and do not say how many a source has: it may be thousands of users who sent
them. Nothing here knows that several sources are the same person.
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
