"""Impressions and clicks that come apart and never end, joined in event time. Pure: no clock, no files.

A watermark says up to when everything has come. A click is given to its list when the watermark has passed
its time, for by then every list that it can belong to is there; a list is closed when the watermark has
passed its time and the window. So the outcome does not depend on the order in which records came, but for
those that came after the watermark: a click whose list is closed comes as `LateClick`, a list that is late
itself is closed at once.

A click belongs to the latest of the lists with its join key that showed its object, at or before it and at
most `within_ms` ago; where it names the id of its list, to that one. A list is known by its key and its id:
the same id under another key is another list. A click that is limited to keys finds their lists alone, one
without finds the latest of its id.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.decide import SeenIds, hashable
from streams.feed.items import Ignored, LateClick, PlacedOrLate, scoped
from streams.feed.mapping import window

CLOSED_EARLY, LATE_CLICK, LATE_IMPRESSION = "closed_early", "late_click", "late_impression"
"""What is counted beside the fates of items: a list that had to make room; a click whose list was closed; a
list that came when the watermark had passed its window."""

CLICKS_REMEMBERED = 20_000
"""Clicks by join key, object and bucket of time, to drop repeats."""
MOST_OF_JOIN = 1_000
"""The newest lists of one join key, which its clicks are looked for in."""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """Times in ms. `window_ms`: how long a list waits for its clicks before it is closed; `within_ms`: how
    long after a list its clicks may come where they do not name it; `most_open`: lists, and clicks, that
    wait; `remembered`: closed lists that late clicks still find; `bucket_ms`: clicks of one join key (a list,
    or a session and query) on one object in the same bucket are one.
    """

    window_ms: int = 600_000
    within_ms: int = 1_800_000
    most_open: int = 50_000
    remembered: int = 50_000
    bucket_ms: int = 10_000


@dataclass(slots=True, eq=False)
class JoinedImpression(window.OpenImpression):
    """A list that is under way, or closed and remembered."""

    is_closed: bool = False

    def plain(self) -> tuple[Any, ...]:
        """Itself as plain data, for a checkpoint."""
        said, clicked = self.said, sorted(self.clicked) if self.clicked else ()
        about = (said.id, said.join, said.place, said.ts, said.query, said.source, said.key, said.rank)
        return (about, self.objects, self.positions, self.chances, clicked)


class PendingClick(NamedTuple):
    """A click that waits for the watermark; `number` keeps the order of those of one time."""

    ts: int
    number: int
    join: Any
    clicked: str
    place: str
    keys: window.Keys = None


class OpenDeadline(NamedTuple):
    """When a list is closed; `number` keeps the order of those of one time."""

    ts: int
    number: int
    name: Hashable


Waiting = TypeVar("Waiting", PendingClick, OpenDeadline)


class TimeQueue(Generic[Waiting]):
    """What waits for the watermark, earliest first: those that came in order in a line, the rest in a heap.

    Records come nearly in order, and a line takes a third of the time of a heap.
    """

    def __init__(self) -> None:
        self._line: deque[Waiting] = deque()
        self._heap: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._line) + len(self._heap)

    def __iter__(self) -> Iterator[Waiting]:
        """Earliest first."""
        return heapq.merge(self._line, sorted(self._heap))

    def add(self, one: Waiting) -> None:
        """Let it wait."""
        if not self._line or one > self._line[-1]:
            self._line.append(one)
        else:
            heapq.heappush(self._heap, one)

    def pop(self) -> Waiting:
        """Take out the earliest one."""
        if self._heap and (not self._line or self._heap[0] < self._line[0]):
            return heapq.heappop(self._heap)
        return self._line.popleft()

    def due(self, until: int) -> Iterator[Waiting]:
        """Take out all up to this time, earliest first."""
        line, heap = self._line, self._heap
        while True:
            if heap and (not line or heap[0] < line[0]):
                if heap[0].ts > until:
                    return
                yield heapq.heappop(heap)
            elif line and line[0].ts <= until:
                yield line.popleft()
            else:
                return


class EventTimeJoin:
    """See the module. What becomes of lists and clicks is in `done`, in the order in which it was decided;
    `counts` has `CLOSED_EARLY` and the two beside it.
    """

    def __init__(self, settings: JoinSettings, refs: window.ObjectRefs | None = None) -> None:
        self.done: list[PlacedOrLate] = []
        self.counts: Counter[str] = Counter()
        self.watermark = 0
        self._settings, self._refs = settings, window.ObjectRefs() if refs is None else refs
        self._lists: dict[Hashable, JoinedImpression] = {}
        self._closed: deque[Hashable] = deque()
        self._by_join: dict[Hashable, list[JoinedImpression]] = {}
        """Those that `_lists` does not find by their join key or id: see `_joins`."""
        self._deadlines: TimeQueue[OpenDeadline] = TimeQueue()
        self._clicks: TimeQueue[PendingClick] = TimeQueue()
        self._repeats = SeenIds(CLICKS_REMEMBERED)
        self._number = 0

    @property
    def open_lists(self) -> int:
        """Lists that wait for clicks."""
        return len(self._deadlines)

    @property
    def remembered_lists(self) -> int:
        """Closed lists in which late clicks find their place."""
        return len(self._closed)

    @property
    def waiting_clicks(self) -> int:
        """Clicks that wait for the watermark."""
        return len(self._clicks)

    def shown(self, said: window.Said, piece: window.Piece) -> None:
        """A list, or a piece of one."""
        one = self._lists.get(said.name)
        if one is None:
            one = JoinedImpression(said)
            one.add(said, piece)
            self._open(one)
        elif one.is_closed:
            detail = f"impression {said.id[:80]!r} was closed before this came"
            self.done.append((said.place, Ignored(reasons.AFTER_WINDOW, detail)))
        else:
            one.add(said, piece)

    def shown_whole(
        self, said: window.Said, objects: list[str], chances: window.Numbers = (), clicked: Sequence[str] = ()
    ) -> None:
        """A list of which there are no further pieces: its id, a second time, is a repeat. The join keeps
        `objects` as they are."""
        if said.name in self._lists:
            self.done.append((said.place, Ignored(reasons.DUPLICATE, f"id {said.id[:80]!r}")))
        else:
            hits = frozenset(clicked) if clicked else window.NOTHING_CLICKED
            self._open(JoinedImpression(said, objects, (), chances, hits))

    def click(self, join: Hashable, place: str, clicked: str, ts: int, keys: window.Keys = None) -> None:
        """A click; `join` is a text that names its list, or what its list and it have in common; keys: whose
        lists it may belong to."""
        repeat = (join, clicked, ts // self._settings.bucket_ms, *(() if keys is None else (keys,)))
        if not self._repeats.add(repeat):
            self._ignore(place, reasons.REPEATED_CLICK, clicked, "it was clicked just before")
            return
        self._number += 1
        click = PendingClick(ts, self._number, join, clicked, place, keys)
        if ts <= self.watermark:
            self._give(click)
            return
        self._clicks.add(click)
        if len(self._clicks) > self._settings.most_open:
            self._give(self._clicks.pop())

    def advance(self, watermark: int) -> None:
        """Everything up to here has come: give the clicks, close the lists. It never goes back."""
        self.watermark = max(self.watermark, watermark)
        for click in self._clicks.due(self.watermark):
            self._give(click)
        for deadline in self._deadlines.due(self.watermark):
            self._close(deadline.name)

    def finish(self) -> None:
        """Nothing more comes: give all clicks, close all lists."""
        waiting = [*self._clicks, *self._deadlines]
        self.advance(max([self.watermark, *(one.ts for one in waiting)]))

    def drained(self) -> list[PlacedOrLate]:
        """What was decided since the last call."""
        done, self.done = self.done, []
        return done

    def _open(self, one: JoinedImpression) -> None:
        said = one.said
        name = self._enter(one)
        self._number += 1
        deadline = said.ts + self._settings.window_ms
        if deadline <= self.watermark:
            self.counts[LATE_IMPRESSION] += 1
        self._deadlines.add(OpenDeadline(deadline, self._number, name))
        if len(self._deadlines) > self._settings.most_open:
            self.counts[CLOSED_EARLY] += 1  # clicks of its that wait find it closed, and are corrections
            self._close(self._deadlines.pop().name)

    def _enter(self, one: JoinedImpression) -> Hashable:
        """Have it found by clicks; what it is known by."""
        said = one.said
        name = said.name
        self._lists[name] = one
        for join in _joins(said):
            same = self._by_join.setdefault(join, [])
            same.append(one)
            if len(same) > MOST_OF_JOIN:  # of the key that has most, so that none takes another's room
                ((most, _),) = Counter(other.said.key for other in same).most_common(1)
                same.remove(next(other for other in same if other.said.key == most))
        return name

    def _close(self, name: Hashable) -> None:
        one = self._lists[name]
        one.is_closed = True
        self.done.append((one.said.place, one.item_or_unclicked(self._refs)))
        self._closed.append(name)
        if len(self._closed) > self._settings.remembered:
            self._forget(self._closed.popleft())

    def _forget(self, name: Hashable) -> None:
        one = self._lists.pop(name)
        for join in _joins(one.said):
            same = self._by_join.get(join, [])
            if one in same:
                same.remove(one)
                if not same:
                    del self._by_join[join]

    def _give(self, click: PendingClick) -> None:
        candidates = self._candidates(click)
        one = self._best(click, candidates)
        if one is None:
            reason = reasons.CLICK_NOT_SHOWN if candidates else reasons.CLICK_WITHOUT_IMPRESSION
            why = "no list of its join key showed it in time" if candidates else "no list has its join key"
            self._ignore(click.place, reason, click.clicked, why)
        elif click.clicked in one.clicked:
            why = f"it was clicked in impression {one.said.id[:80]!r} before"
            self._ignore(click.place, reasons.REPEATED_CLICK, click.clicked, why)
        elif not one.is_closed:
            one.clicked |= {click.clicked}
        else:
            self.counts[LATE_CLICK] += 1
            before = one.item(self._refs)
            one.clicked |= {click.clicked}
            if isinstance(before, Impression):
                rank = next(at for at, ref in enumerate(before.shown) if ref.id == click.clicked)
                self.done.append((click.place, LateClick(before, rank)))

    def _candidates(self, click: PendingClick) -> Sequence[JoinedImpression]:
        """Lists of its join key that a click may belong to; those whose id it names, where there are some."""
        join, keys = click.join, click.keys
        same: Sequence[JoinedImpression] = self._by_join.get(join, ())
        if keys is not None:
            same = [one for one in same if one.said.key in keys]
        if type(join) is str:
            if keys is None and not same:  # most clicks
                one = self._lists.get(join)
                return () if one is None else (one,)
            names = [join] if keys is None else [scoped(join, key) for key in keys]
            named = {name: self._lists[name] for name in names if name in self._lists}
            named |= {one.said.name: one for one in same if one.said.id == join}
            if named:
                return [*named.values()]
        return same

    def _best(self, click: PendingClick, candidates: Sequence[JoinedImpression]) -> JoinedImpression | None:
        within = self._settings.within_ms
        fits = [
            one
            for one in candidates
            if (one.said.id == click.join or 0 <= click.ts - one.said.ts <= within)
            and click.clicked in one.objects
        ]
        return max(fits, key=lambda one: one.said.ts, default=None)

    def _ignore(self, place: str, reason: str, clicked: str, why: str) -> None:
        self.done.append((place, Ignored(reason, f"object {clicked[:80]!r}: {why}")))

    def snapshot(self) -> dict[str, Any]:
        """All of it as `checkpoint.pack` takes it, after `drained`: what `restored` goes on from."""
        assert not self.done
        return {
            "watermark": self.watermark,
            "number": self._number,
            "counts": dict(self.counts),
            "closed": [self._lists[name] for name in self._closed],
            "open": [(deadline, number, self._lists[name]) for deadline, number, name in self._deadlines],
            "clicks": [tuple(one) for one in self._clicks],
            "repeats": list(self._repeats),
        }

    @classmethod
    def restored(
        cls, settings: JoinSettings, said: Mapping[str, Any], refs: window.ObjectRefs | None = None
    ) -> EventTimeJoin:
        """A join that goes on where `snapshot` was taken. KeyError, TypeError, ValueError: it is of none."""
        join = cls(settings, refs)
        join.watermark, join._number = int(said["watermark"]), int(said["number"])
        join.counts.update(said["counts"])
        for packed in said["closed"]:
            one = join._known(packed, is_closed=True)
            join._closed.append(one.said.name)
        for deadline, number, packed in said["open"]:
            one = join._known(packed, is_closed=False)
            join._deadlines.add(OpenDeadline(deadline, number, one.said.name))
        for ts, number, key, clicked, place, *keys in said["clicks"]:  # older ones have no keys
            join._clicks.add(PendingClick(ts, number, hashable(key), clicked, place, *map(hashable, keys)))
        for repeat in said["repeats"]:
            join._repeats.add(hashable(repeat))
        return join

    def lists(self) -> Iterator[JoinedImpression]:
        """Every list that is open or remembered."""
        return iter(self._lists.values())

    def _known(self, packed: Sequence[Any], *, is_closed: bool) -> JoinedImpression:
        (name, join, place, ts, query, source, key, rank), objects, positions, chances, clicked = packed
        said = window.Said(name, hashable(join), place, ts, query, source, key, rank)
        hits = frozenset(clicked) if clicked else window.NOTHING_CLICKED
        one = JoinedImpression(said, objects, positions, chances, hits, is_closed)
        self._enter(one)
        return one


def _joins(said: window.Said) -> set[Hashable]:
    """What clicks look for it by that is not its name; those without a key may name its id alone."""
    return {said.join} - {said.id} if said.key is None else {said.join, said.id}
