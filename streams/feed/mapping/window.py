"""Impressions that come in pieces, and clicks that come apart from them, wait in a window of bounded size.

An impression is closed, and its clicks are given to it, when there is no more room for it: the one that was
added to longest ago goes first. In a file that is sorted by impression or by time every piece has come by
then; later pieces are reported, never dropped in silence.

A click belongs to the latest of the impressions with its join key that showed its object and came before it,
at most `within` ago. Where impressions are joined by their id there is only one. Ids are scoped by the key of
the impression: a click that is limited to some keys belongs to their impressions alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streams.event import Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.decide import SeenIds
from streams.feed.items import Dropped, Ignored, Item, Placed, UnclickedList, scoped
from streams.limits import MAX_SHOWN

Numbers = Sequence[float | None]
NOTHING_CLICKED: frozenset[str] = frozenset()
Keys = tuple[str, ...] | None
"""The keys whose impressions a click may belong to; None: all."""
MOST_OBJECTS = 10 * MAX_SHOWN
"""Of an impression in pieces, which may name an object several times."""

CLOSED = 200_000
"""Impressions that left the window are remembered, so many by their ids and join keys: some 50 MB."""


@dataclass(slots=True)
class Said:
    """What a row, or several that follow each other, say of an impression besides its objects.

    `rank`: of the kinds of rows that tell what was shown, which; the objects of the lowest count alone.
    """

    id: str
    join: Hashable
    place: str
    ts: int
    query: str | None
    source: str | None
    key: str | None
    rank: int = 0

    @property
    def name(self) -> Hashable:
        """What the impression is known by."""
        return self.id if self.key is None else scoped(self.id, self.key)


class Piece(NamedTuple):
    """Some of an impression's objects, best place first unless `positions` say it; `chances`: propensities;
    `clicked`: those of all its objects that were clicked."""

    objects: list[str]
    positions: Numbers = ()
    chances: Numbers = ()
    clicked: Sequence[str] = ()


@dataclass(slots=True, eq=False)
class OpenImpression:
    """An impression under way; `positions` and `chances` (propensities) go with `objects`, or are empty.

    Most have none of these two and no click, and many thousands wait at a time: what is empty is shared.
    """

    said: Said
    objects: list[str] = field(default_factory=list)
    positions: Numbers = ()
    chances: Numbers = ()
    clicked: frozenset[str] = NOTHING_CLICKED

    def add(self, said: Said, piece: Piece) -> None:
        """Take in a piece."""
        own, objects = self.said, piece.objects
        if piece.clicked:
            self.clicked |= {*piece.clicked}
        own.ts = min(own.ts, said.ts)
        own.query = own.query or said.query
        if not objects or (self.objects and said.rank > own.rank) or len(self.objects) > MOST_OBJECTS:
            return
        if said.rank != own.rank:
            own.rank = said.rank
            self.objects, self.positions, self.chances = [], (), ()
        self.objects += objects
        self.positions = _longer(self.positions, piece.positions)
        self.chances = _longer(self.chances, piece.chances)

    def item(self, refs: ObjectRefs) -> Item:
        """The impression, or why there is none."""
        said = self.said
        if not said.query:
            return Dropped(reasons.MISSING_FIELD, f"impression {said.id[:80]!r} has no query")
        if not self.objects:
            return Dropped(reasons.NO_SHOWN, f"impression {said.id[:80]!r} shows nothing")
        objects, chances = self._ordered()
        if len(set(objects)) < len(objects):
            first = {one: at for at, one in reversed(list(enumerate(objects)))}
            chances = [chances[at] for at in sorted(first.values())] if chances else chances
            objects = list(dict.fromkeys(objects))
        if len(objects) > MAX_SHOWN:
            detail = f"impression {said.id[:80]!r} shows {len(objects):,} objects, the limit is {MAX_SHOWN:,}"
            return Dropped(reasons.TOO_LARGE, detail)
        hits = self.clicked
        clicked = tuple([at for at, one in enumerate(objects) if one in hits]) if hits else ()
        propensity: tuple[float, ...] | None = None
        if chances:
            propensity = tuple(one for one in chances if one is not None and 0 < one <= 1)
            if len(propensity) < len(objects):
                return Dropped(reasons.BAD_PROPENSITY, f"impression {said.id[:80]!r} has one that is not")
        return Impression(
            id=said.id,
            ts=said.ts,
            query=refs.of(said.query),
            shown=refs.all(objects),
            clicked=clicked,
            propensity=propensity,
            source=said.source,
            key=said.key,
        )

    def item_or_unclicked(self, refs: ObjectRefs) -> Item | UnclickedList:
        """The same, where nobody clicked and nothing can be wrong with it without its objects made."""
        said = self.said
        if self.clicked or self.chances or not said.query or not 0 < len(self.objects) <= MAX_SHOWN:
            return self.item(refs)
        return UnclickedList(said.id, said.ts, said.query, self._ordered()[0], said.source, said.key)

    def _ordered(self) -> tuple[list[str], Numbers]:
        """Objects and chances by the positions of the objects; those without one come last."""
        objects, chances, positions = self.objects, self.chances, self.positions
        if positions and any(at is not None for at in positions):
            places = [math.inf if at is None else at for at in positions]
            order = sorted(range(len(objects)), key=places.__getitem__)
            objects = [objects[at] for at in order]
            chances = [chances[at] for at in order] if chances else chances
        return objects, chances


def _longer(values: Numbers, more: Numbers) -> Numbers:
    """The numbers and more of them; a list grows where it is."""
    if not more:
        return values
    grown: list[float | None] = values if isinstance(values, list) else [*values]
    grown.extend(more)
    return grown


class ObjectRefs(dict[str, ObjectRef]):
    """Objects by their ids, made once while they are seen often."""

    _MOST = 100_000

    def all(self, names: Sequence[str]) -> tuple[ObjectRef, ...]:
        """The objects of these ids."""
        return tuple(map(self.__getitem__, names))

    def of(self, name: str) -> ObjectRef:
        """The object of this id."""
        return self[name]

    def __missing__(self, name: str) -> ObjectRef:
        if len(self) >= self._MOST:
            self.clear()
        found = self[name] = ObjectRef(id=name)
        return found


@dataclass(slots=True)
class WaitingClick:
    """A click whose impression is not closed yet; `late`: one of its join key and time was, when it came."""

    place: str
    ts: int
    late: bool
    keys: Keys = None


class TimeSpans:
    """From when to when there were impressions of a join key; of the newest `CLOSED` keys."""

    def __init__(self, within_ms: int | None) -> None:
        self._within_ms = within_ms
        self._spans: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __contains__(self, join: Hashable) -> bool:
        return join in self._spans

    def add(self, join: Hashable, ts: int) -> None:
        """There was one at this time."""
        first, last = self._spans.get(join, (ts, ts))
        self._spans[join] = (min(first, ts), max(last, ts))
        if len(self._spans) > CLOSED:
            self._spans.popitem(last=False)

    def cover(self, join: Hashable, ts: int) -> bool:
        """Whether a click of this time may belong to one of them."""
        if join not in self._spans:
            return False
        first, last = self._spans[join]
        return self._within_ms is None or first <= ts <= last + self._within_ms


class PieceJoin(Protocol):
    """Where pieces of impressions and clicks come together; `timed`: whether it needs the times of clicks."""

    timed: bool

    def shown(self, said: Said, piece: Piece) -> None:
        """A piece of an impression."""

    def click(self, join: Hashable, place: str, clicked: str, ts: int, keys: Keys = None) -> None:
        """A click that came by itself; keys: whose impressions it may belong to."""


class JoinWindow:
    """Impressions and clicks under way, at most `size` of each; what becomes of them is in `done`."""

    def __init__(self, size: int, within_ms: int | None, refs: ObjectRefs) -> None:
        self.done: list[Placed] = []
        self.timed = within_ms is not None
        self._size, self._within_ms, self._refs = size, within_ms, refs
        self._open: OrderedDict[Hashable, OpenImpression] = OrderedDict()
        self._by_join: dict[Hashable, list[OpenImpression]] = {}
        # By join key and object: of a session that never ends, only what an impression showed is looked at.
        self._clicks: OrderedDict[tuple[Hashable, str], list[WaitingClick]] = OrderedDict()
        self._waiting = 0
        self._closed = SeenIds(CLOSED)
        self._begun, self._ended = TimeSpans(within_ms), TimeSpans(within_ms)

    def shown(self, said: Said, piece: Piece) -> None:
        """A piece of an impression."""
        name = said.name
        one = self._open.get(name)
        if one is None:
            if name in self._closed:
                detail = f"impression {said.id[:80]!r} was closed before this came"
                self.done.append((said.place, Ignored(reasons.AFTER_WINDOW, detail)))
                return
            if len(self._open) >= self._size:
                self._close()
            one = self._open[name] = OpenImpression(said)
            self._by_join.setdefault(said.join, []).append(one)
            self._begun.add(said.join, said.ts)
        else:
            self._open.move_to_end(name)
        one.add(said, piece)

    def click(self, join: Hashable, place: str, clicked: str, ts: int, keys: Keys = None) -> None:
        """A click that came by itself; keys: whose impressions it may belong to."""
        late = self._ended.cover(join, ts)
        self._clicks.setdefault((join, clicked), []).append(WaitingClick(place, ts, late, keys))
        self._waiting += 1
        while self._waiting > self._size:
            self._give_up(*self._clicks.popitem(last=False))

    def finish(self) -> None:
        """Close everything."""
        while self._open:
            self._close()
        while self._clicks:
            self._give_up(*self._clicks.popitem(last=False))

    def _close(self) -> None:
        name, one = self._open.popitem(last=False)
        join = one.said.join
        same = self._by_join[join]
        for shown in dict.fromkeys(one.objects) if self._clicks else ():
            waiting = self._clicks.pop((join, shown), None)
            if waiting is not None:
                self._take(one, shown, waiting, same)
        same.remove(one) if len(same) > 1 else self._by_join.pop(join)
        self._closed.add(name)
        self._ended.add(join, one.said.ts)
        self.done.append((one.said.place, one.item(self._refs)))

    def _take(
        self, one: OpenImpression, shown: str, waiting: list[WaitingClick], same: list[OpenImpression]
    ) -> None:
        left = []
        for click in waiting:
            if self._may_have(click, one) and (len(same) == 1 or self._best(click, shown, same) is one):
                self._give(click, shown, one)
            else:
                left.append(click)
        self._waiting -= len(waiting) - len(left)
        if left:
            self._clicks[one.said.join, shown] = left

    def _give(self, click: WaitingClick, clicked: str, one: OpenImpression) -> None:
        if clicked in one.clicked:
            detail = f"object {clicked[:80]!r} of impression {one.said.id[:80]!r}"
            self.done.append((click.place, Ignored(reasons.REPEATED_CLICK, detail)))
        one.clicked |= {clicked}

    def _best(self, click: WaitingClick, clicked: str, same: list[OpenImpression]) -> OpenImpression | None:
        fits = [one for one in same if self._may_have(click, one) and clicked in one.objects]
        return max(fits, key=lambda one: one.said.ts, default=None)

    def _may_have(self, click: WaitingClick, one: OpenImpression) -> bool:
        if click.keys is not None and one.said.key not in click.keys:
            return False
        return self._within_ms is None or 0 <= click.ts - one.said.ts <= self._within_ms

    def _give_up(self, key: tuple[Hashable, str], clicks: list[WaitingClick]) -> None:
        """Clicks that need not wait any longer: added to an open impression, or reported as lost."""
        join, clicked = key
        self._waiting -= len(clicks)
        for click in clicks:
            best = self._best(click, clicked, self._by_join.get(join, []))
            if best is not None:
                self._give(click, clicked, best)
                continue
            reason, said = self._why(click, join)
            self.done.append((click.place, Ignored(reason, f"object {clicked[:80]!r}: {said}")))

    def _why(self, click: WaitingClick, join: Hashable) -> tuple[str, str]:
        if join not in self._begun:
            return reasons.CLICK_WITHOUT_IMPRESSION, "no impression has its join key"
        if click.late:
            return reasons.AFTER_WINDOW, "impressions of its join key and time were closed before it came"
        if not self._begun.cover(join, click.ts):
            return reasons.CLICK_WITHOUT_IMPRESSION, "the impressions of its join key are of another time"
        return reasons.CLICK_NOT_SHOWN, "no impression of its join key showed it in time"
