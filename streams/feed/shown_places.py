"""Which shown places say how much their rank is examined: gathered list by list, and what they add up to.

What is proved of a list (the places that chance filled) comes with it as its draft; whole lists that were
shuffled are named by their source.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streams.event import EITHER, Impression
from streams.feed.position_bias import ComparedPlaces, Examination, Int, estimate
from streams.partitions import route_key
from streams.signed_lists import is_signed, read_signed

LEAST_SHARE = 0.01
"""Of the clicks, those on pairs that moved, where these are to tell the curve: objects that move are not like
others, and a hundredth of a log says little of the rest."""

Method = Literal["chance", "moves"]


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The examination of each rank, and what it was found from. Arrays are [ranks], from the first.

    shown, clicks int64: over all lists. lists: how many, of which `without_click`; `explored` had a random
    object in one place, `drafted` a round of a team draft, `shuffled` were shuffled as a whole; by_chance:
    the places in which chance had a part. pairs: of query and object, of which `moved` were shown at several
    ranks. chance, moves: the curve by either method.
    """

    shown: Int
    clicks: Int
    lists: int
    without_click: int
    explored: int
    drafted: int
    shuffled: int
    by_chance: int
    pairs: int
    moved: int
    chance: Examination
    moves: Examination

    @property
    def moved_share(self) -> float:
        """The share of the clicks that are on pairs which moved."""
        total = int(self.clicks.sum())
        return self.moves.clicks / total if total else 0.0

    @property
    def method(self) -> Method | None:
        """Which of the two is taken: that by chance, unless moves tell more than twice as many ranks."""
        by_moves = self.moves.known if self.moved_share >= LEAST_SHARE else 0
        if self.chance.known and 2 * self.chance.known >= by_moves:
            return "chance"
        return "moves" if by_moves else None

    @property
    def taken(self) -> Examination | None:
        """The curve by that method."""
        return {"chance": self.chance, "moves": self.moves, None: None}[self.method]

    @property
    def refused(self) -> str:
        """Why there is no curve; "" where there is one."""
        if self.method is not None:
            return ""
        by_moves = self.moves.refused or (
            f"only {100 * self.moved_share:.2g} % of the clicks are on pairs that were shown at several ranks"
        )
        return f"by chance: {self.chance.refused}; by pairs that were shown at several ranks: {by_moves}"


class ShownPlaces:
    """The places of all lists so far, down to `ranks`. shuffled: sources whose lists had a random order.

    It holds some 25 bytes a place and 300 for each pair of query and object; `result` takes 110 a place.
    """

    def __init__(self, ranks: int, shuffled: Collection[str] = ()) -> None:
        self._ranks, self._sources = ranks, frozenset(shuffled)
        self._groups: dict[Hashable, int] = {}
        self._by_chance, self._all = _Gathered(), _Gathered()
        self._lists = self._without_click = 0
        self._explored = self._drafted = self._shuffled = 0

    def add(self, impression: Impression) -> None:
        """Take in a list; of its draft only what was proved may be there."""
        number, self._lists = self._lists, self._lists + 1
        self._without_click += not impression.clicked
        hits = frozenset(impression.clicked)
        asked = (impression.key, route_key(impression.query))
        for rank, shown in enumerate(impression.shown[: self._ranks]):
            name = shown.id if shown.id is not None else route_key(shown)
            self._all.add(self._group((asked, name)), rank, number, rank in hits)
        for kind, rank in self._placed_by_chance(impression):
            if rank < self._ranks:
                self._by_chance.add(self._group(kind), rank, number, rank in hits)

    def _group(self, name: Hashable) -> int:
        return self._groups.setdefault(name, len(self._groups))

    def _placed_by_chance(self, impression: Impression) -> list[tuple[Hashable, int]]:
        """(group, rank) of each place that chance filled, of the surest kind alone."""
        length, draft = len(impression.shown), impression.draft
        if impression.source in self._sources:
            self._shuffled += 1
            return [(("shuffled", length), rank) for rank in range(length)]
        if draft is None:
            return []
        found: list[tuple[Hashable, int]] = []
        if draft.explored is not None:
            self._explored += 1
            found.append((("explored", length), draft.explored))
        rounds = rounds_of(draft.teams, length if draft.explored is None else draft.explored)
        self._drafted += bool(rounds)
        return found + [(("round", first), rank) for first in rounds for rank in (first, first + 1)]

    def result(self) -> PositionBias:
        """What they say."""
        by_chance, everything, ranks = self._by_chance.places(), self._all.places(), self._ranks
        cells = np.unique(everything.group * ranks + everything.rank)
        ranks_of_pair = np.unique(cells // ranks, return_counts=True)[1]
        return PositionBias(
            shown=np.bincount(everything.rank, minlength=ranks),
            clicks=np.bincount(everything.rank[everything.clicked], minlength=ranks),
            lists=self._lists,
            without_click=self._without_click,
            explored=self._explored,
            drafted=self._drafted,
            shuffled=self._shuffled,
            by_chance=len(by_chance),
            pairs=len(ranks_of_pair),
            moved=int((ranks_of_pair > 1).sum()),
            chance=estimate(by_chance, ranks),
            moves=estimate(everything, ranks),
        )


class _Gathered:
    def __init__(self) -> None:
        self._group, self._rank, self._listed = array("q"), array("q"), array("q")
        self._clicked = bytearray()

    def add(self, group: int, rank: int, listed: int, clicked: bool) -> None:
        self._group.append(group)
        self._rank.append(rank)
        self._listed.append(listed)
        self._clicked.append(clicked)

    def places(self) -> ComparedPlaces:
        group, rank, listed = (np.array(one, np.int64) for one in (self._group, self._rank, self._listed))
        return ComparedPlaces(group, rank, listed, np.array(self._clicked, np.bool_))


def as_proved(impression: Impression, secret: bytes) -> Impression:
    """With the draft that its id proves and no other, however old: how a list was made stays true. secret:
    checks signed ids, b"" where none is known. Raises BadSignature."""
    if not secret or not is_signed(impression.id):
        return replace(impression, draft=None) if impression.draft else impression
    return replace(impression, draft=read_signed(secret, impression).draft)


def rounds_of(teams: tuple[int, ...], end: int) -> list[int]:
    """The first ranks of those rounds of a team draft in which a coin put two objects in order.

    Read from the top to `end`, the place of a random object: what stood there is not known, and so neither
    where the rounds below it begin.
    """
    found, at = [], 0
    while at + 1 < end:
        if teams[at] == EITHER:
            at += 1
            continue
        if teams[at + 1] not in (EITHER, teams[at]):
            found.append(at)
        at += 2
    return found
