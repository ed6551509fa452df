"""Impressions that come in pieces, and clicks that come apart from them, wait in a window of bounded size.

An impression is closed, and its clicks are given to it, when there is no more room for it: the one that was
added to longest ago goes first. In a file that is sorted by impression or by time every piece has come by
then; what comes later is told, not lost in silence.

A click belongs to the latest of the impressions with its join key that showed its object and came before it,
at most `within` ago. Where impressions are joined by their id there is only one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from streams.event import Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.decide import SeenIds
from streams.feed.items import Dropped, Ignored, Item, Placed

Numbers = Sequence[float | None]

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


@dataclass(slots=True)
class OpenImpression:
    """An impression under way; `positions` and `chances` (propensities) go with `objects`, or are empty."""

    said: Said
    objects: list[str] = field(default_factory=list)
    positions: list[float | None] = field(default_factory=list)
    chances: list[float | None] = field(default_factory=list)
    clicked: set[str] = field(default_factory=set)

    def add(self, said: Said, objects: list[str], positions: Numbers, chances: Numbers) -> None:
        """Take in a piece."""
        own = self.said
        own.ts = min(own.ts, said.ts)
        own.query = own.query or said.query
        if not objects or (self.objects and said.rank > own.rank):
            return
        if said.rank != own.rank:
            own.rank = said.rank
            self.objects, self.positions, self.chances = [], [], []
        self.objects += objects
        self.positions += positions
        self.chances += chances

    def item(self, refs: ObjectRefs) -> Item:
        """The impression, or why there is none."""
        said = self.said
        if not said.query:
            return Dropped(reasons.MISSING_FIELD, f"impression {said.id[:80]!r} has no query")
        if not self.objects:
            return Dropped(reasons.NO_SHOWN, f"impression {said.id[:80]!r} shows nothing")
        objects, chances = self.objects, self.chances
        if any(at is not None for at in self.positions):
            places = [math.inf if at is None else at for at in self.positions]
            order = sorted(range(len(objects)), key=places.__getitem__)
            objects = [objects[at] for at in order]
            chances = [chances[at] for at in order] if chances else chances
        if len(set(objects)) < len(objects):
            first = {one: at for at, one in reversed(list(enumerate(objects)))}
            chances = [chances[at] for at in sorted(first.values())] if chances else chances
            objects = list(dict.fromkeys(objects))
        clicked = tuple(at for at, one in enumerate(objects) if one in self.clicked) if self.clicked else ()
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


class ObjectRefs:
    """Objects by their ids, made once while they are seen often."""

    _MOST = 100_000

    def __init__(self) -> None:
        self._refs: dict[str, ObjectRef] = {}

    def all(self, names: Sequence[str]) -> tuple[ObjectRef, ...]:
        """The objects of these ids."""
        known = self._refs.get
        return tuple([known(name) or self.of(name) for name in names])

    def of(self, name: str) -> ObjectRef:
        """The object of this id."""
        found = self._refs.get(name)
        if found is None:
            if len(self._refs) >= self._MOST:
                self._refs.clear()
            found = self._refs[name] = ObjectRef(id=name)
        return found


@dataclass(slots=True)
class WaitingClick:
    """A click whose impression is not closed yet; `missed`: one of its join key has been that did not show
    the object."""

    place: str
    object: str
    ts: int
    missed: bool = False


class JoinWindow:
    """Impressions and clicks under way, at most `size` of each; what becomes of them is in `done`."""

    def __init__(self, size: int, within_ms: int | None, refs: ObjectRefs) -> None:
        self.done: list[Placed] = []
        self._size, self._within_ms, self._refs = size, within_ms, refs
        self._open: OrderedDict[str, OpenImpression] = OrderedDict()
        self._by_join: dict[Hashable, list[OpenImpression]] = {}
        self._clicks: OrderedDict[Hashable, list[WaitingClick]] = OrderedDict()
        self._waiting = 0
        self._closed = SeenIds(CLOSED)
        self._closed_joins = SeenIds(CLOSED)

    def shown(
        self,
        said: Said,
        objects: list[str],
        positions: Numbers = (),
        chances: Numbers = (),
        clicked: Sequence[str] = (),
    ) -> None:
        """A piece of an impression: objects, best place first unless positions say it, and those clicked."""
        one = self._open.get(said.id)
        if one is None:
            if said.id in self._closed:
                detail = f"impression {said.id[:80]!r} was closed before this came"
                self.done.append((said.place, Ignored(reasons.AFTER_WINDOW, detail)))
                return
            if len(self._open) >= self._size:
                self._close()
            one = self._open[said.id] = OpenImpression(said)
            self._by_join.setdefault(said.join, []).append(one)
        else:
            self._open.move_to_end(said.id)
        one.add(said, objects, positions, chances)
        one.clicked.update(clicked)

    def click(self, join: Hashable, place: str, clicked: str, ts: int) -> None:
        """A click that came by itself."""
        self._clicks.setdefault(join, []).append(WaitingClick(place, clicked, ts))
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
        """Close the impression that was added to longest ago."""
        name, one = self._open.popitem(last=False)
        join = one.said.join
        same = self._by_join[join]
        if join in self._clicks:
            left = [click for click in self._clicks[join] if not self._given(click, one, same)]
            self._waiting -= len(self._clicks[join]) - len(left)
            if left:
                self._clicks[join] = left
            else:
                del self._clicks[join]
        same.remove(one) if len(same) > 1 else self._by_join.pop(join)
        self._closed.add(name)
        self._closed_joins.add(join)
        self.done.append((one.said.place, one.item(self._refs)))

    def _given(self, click: WaitingClick, one: OpenImpression, same: list[OpenImpression]) -> bool:
        """Give the click to this impression if it belongs to it."""
        if not self._in_time(click, one):
            return False
        if click.object not in one.objects:
            click.missed = True
            return False
        if len(same) > 1 and self._best(click, same) is not one:
            return False
        self._give(click, one)
        return True

    def _give(self, click: WaitingClick, one: OpenImpression) -> None:
        if click.object in one.clicked:
            detail = f"object {click.object[:80]!r} of impression {one.said.id[:80]!r}"
            self.done.append((click.place, Ignored(reasons.REPEATED_CLICK, detail)))
        one.clicked.add(click.object)

    def _best(self, click: WaitingClick, same: list[OpenImpression]) -> OpenImpression | None:
        fits = [one for one in same if self._in_time(click, one) and click.object in one.objects]
        return max(fits, key=lambda one: one.said.ts, default=None)

    def _in_time(self, click: WaitingClick, one: OpenImpression) -> bool:
        return self._within_ms is None or 0 <= click.ts - one.said.ts <= self._within_ms

    def _give_up(self, join: Hashable, clicks: list[WaitingClick]) -> None:
        """Clicks that wait no longer: to an open impression, or told as lost."""
        self._waiting -= len(clicks)
        for click in clicks:
            best = self._best(click, self._by_join.get(join, []))
            if best is not None:
                self._give(click, best)
                continue
            if click.missed or any(self._in_time(click, one) for one in self._by_join.get(join, [])):
                reason, said = reasons.CLICK_NOT_SHOWN, "no impression of its join key showed it"
            elif join in self._closed_joins:
                reason, said = reasons.AFTER_WINDOW, "the impressions of its join key are closed, or too old"
            else:
                reason, said = reasons.CLICK_WITHOUT_IMPRESSION, "no impression has its join key"
            self.done.append((click.place, Ignored(reason, f"object {click.object[:80]!r}: {said}")))
