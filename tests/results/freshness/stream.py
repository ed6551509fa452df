"""One cell: a set in a world, a seed, and who makes the lists. The learner takes every list when it comes;
what answers is the model of so long ago.

In the open loop lists are of the owner's ranking of the objects that are there, so that all delays have the
same clicks, bit for bit. In the closed loop a delay's lists are made by the model that it answers with: what
is late also learns from the lists of what was late. That model is taken anew every `REFRESHED` seconds, so it
is at most so old, or as old as the delay says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from scipy import sparse

from tests.quality.bench.cells import by_default
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.loop import Learner
from tests.quality.bench.retrieval import Scores, nearest
from tests.quality.bench.sets import Ints, RawSet, load
from tests.quality.bench.users import LENGTH, Bools, Split, Users, split
from tests.quality.bench.versions import Version
from tests.results.freshness.answers import answered, best, served
from tests.results.freshness.delays import DAY, DELAYS, HOUR, MINUTE, DelayedModels, Look, arrivals, looks
from tests.results.freshness.kept import kept
from tests.results.freshness.worlds import Drift, World, WorldState, make

PER_MINUTE = 10.0
"""Lists."""
KEPT_OF_VIEW = 60
"""Directions of each view where there are several: 300 columns for the photos instead of 1,243, a tenth of
the time."""
CONFUSED = 100
"""Nearest objects by the owner's ranking, of which the first ten that are there are shown."""
BEFORE = 3 * DAY
"""Lists that are learned from before anything changes."""
STEPS, BETWEEN = 12, 2 * HOUR
"""A world that drifts steadily does so for a day: so many changes, so far apart."""
PER_STEP = 1
REFRESHED = 15 * MINUTE
AFTER = tuple(
    hours * HOUR
    for hours in (0, 1 / 60, 1 / 20, 1 / 6, 1 / 3, 2 / 3, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 15, 18, 21, 24)
)
"""When models are taken after a change at once."""

Pace: TypeAlias = Literal["steadily", "at once", "from the start"]
Row: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class StreamCell:
    """pace: how the world changes; "from the start": it does not, and what is looked at is how the first
    clicks are learned. closed: the delay by which lists are made; None: the open loop."""

    data: str
    drift: Drift
    pace: Pace
    seed: int
    closed: str | None = None

    @property
    def parts(self) -> tuple[object, ...]:
        """What its result is kept by."""
        loop = "open" if self.closed is None else f"closed {self.closed}"
        return self.data, self.drift, self.pace, loop, self.seed

    @property
    def changes(self) -> tuple[float, ...]:
        """When its world changes."""
        if self.pace == "steadily":
            return tuple(BEFORE + BETWEEN * step for step in range(STEPS))
        return (BEFORE,) if self.pace == "at once" else ()

    @property
    def looks(self) -> list[Look]:
        """What is looked at: moments spread over the day of the drift, each with every delay; or the models
        of the first day after the change, each without delay: a longer delay answers with the same ones,
        later.
        """
        if self.pace == "steadily":
            rng = np.random.default_rng((self.seed, 68))
            parts = STEPS * PER_STEP
            moments = BEFORE + (np.arange(parts) + rng.random(parts)) * BETWEEN / PER_STEP
            wanted = DELAYS.values() if self.closed is None else [DELAYS[self.closed]]
            return looks(moments.tolist(), list(wanted))
        began = BEFORE if self.pace == "at once" else 0.0
        return [Look(began + after, began + after, 0.0) for after in AFTER]


class Visitors(Users):
    """Users of a world as it is at the time."""

    def __init__(self, data: RawSet, seed: int, who: Split, state: WorldState) -> None:
        super().__init__(data, "position", seed, who)
        self._rows = who.asking
        self.live(state)

    def live(self, state: WorldState) -> None:
        """From now on in this state."""
        self._labels, self._asking = state.labels, state.among(self._rows)
        self._there = np.flatnonzero(state.there)

    def _objects(self, queries: Ints, shown: Ints, clicks: Bools, of: Ints) -> Ints:
        """As it is there, of the objects that are there."""
        found = self._there[self._rng.integers(len(self._there), size=len(of))]
        while True:
            among = ((shown[of] == found[:, None]) & clicks[of]).any(1) | (found == queries[of])
            if not among.any():
                return found
            found[among] = self._there[self._rng.integers(len(self._there), size=int(among.sum()))]


@lru_cache(maxsize=4)
def near(name: str) -> Ints:
    """The nearest objects of each row by the owner's ranking, int64 [n, CONFUSED]."""
    data = load(name)
    return nearest(own_scores(data.joined()), CONFUSED, len(data))


def shown(lists: Ints, there: Bools) -> Ints:
    """The first ten of each list that are there, int64 [n, LENGTH]. Raises ValueError where there are
    fewer."""
    kept = there[lists]
    if (kept.sum(1) < LENGTH).any():
        raise ValueError(f"a list of {lists.shape[1]} has fewer than {LENGTH} objects that are there")
    order = np.argsort(~kept, axis=1, kind="stable")[:, :LENGTH]
    return np.take_along_axis(lists, order, axis=1)


@lru_cache(maxsize=4)
def _space(name: str) -> Space:
    data = load(name)
    several = len(data.views) > 1
    space = mapped(data, "whiten", components=KEPT_OF_VIEW) if several else mapped(data, "precondition")
    return replace(space, Z=space.Z.toarray() if sparse.issparse(space.Z) else space.Z)


class Made:
    """Lists made by a model when they are asked for, as an array of lists would be read."""

    def __init__(self, scores: Scores, there: Bools) -> None:
        self._scores, self._there = scores, there

    def __getitem__(self, queries: Ints) -> Ints:
        asked, at = np.unique(queries, return_inverse=True)
        table = np.where(self._there, self._scores(asked), -np.inf)
        table[np.arange(len(asked)), asked] = -np.inf
        return best(table)[at]


class Stream:
    """A learner in a world. lists: `near`. until: when lists end. learned, now: how far it is."""

    def __init__(self, cell: StreamCell, data: RawSet, lists: Ints, world: World, until: float) -> None:
        self._lists, self.world, self.closed = lists, world, cell.closed
        self._who = split(data, cell.seed)
        how = by_default(data.name, "position", "static", cell.seed).learning
        self._space = _space(data.name)
        self._learner = Learner(self._space, how)
        self._arrivals, self.learned, self.now = arrivals(PER_MINUTE, until, cell.seed), 0, -np.inf
        self._visitors = Visitors(data, cell.seed, self._who, world.states[0])
        self._held: Ints = np.zeros(0, np.int64)
        self.own = own_scores(self._space.Z if data.sparse else data.joined())
        self._models: DelayedModels[Scores] = DelayedModels(self.own)

    def branch(self, world: World) -> Self:
        """A copy that goes on in a world that was the same so far."""
        other = copy(self)
        other.world, other._learner = world, deepcopy(self._learner)
        other._visitors = deepcopy(self._visitors)
        return other

    @property
    def judged(self) -> Ints:
        """Rows that never come."""
        return self._who.judged

    def go_on(self, until: float) -> None:
        """Learn from every list that comes up to then, each in the world of its time."""
        for end in (*self._stops(until), until):
            if self.closed is not None and np.isfinite(self.now):
                self._models.keep(self.now, self.served())
            state = self.world.states[self.world.at(self.now)]
            count = int(np.searchsorted(self._arrivals, end, side="right")) - self.learned
            if count > 0:
                self._visitors.live(state)
                part = self._visitors.look(self._shown(state), count)
                self._learner.take(part.rows, part.drawn)
                self._held = np.union1d(self._held, part.held[:, 0])
                self.learned += count
            self.now = end

    def _stops(self, until: float) -> list[float]:
        """Times before `until` at which something else begins."""
        stops = [one for one in self.world.changes if self.now < one < until]
        if self.closed is not None:
            begin = max(self.now, 0.0)
            first = np.floor(begin / REFRESHED) + 1 if np.isfinite(self.now) else 0
            stops += np.arange(first * REFRESHED, until, REFRESHED).tolist()
        return sorted(set(stops))

    def _shown(self, state: WorldState) -> Any:
        if self.closed is None:
            return shown(self._lists, state.there)
        late = max(0.0, DELAYS[self.closed] - REFRESHED)
        return Made(self._models.at(self.now - late), state.there)

    def served(self) -> Scores:
        """What the model of now answers: the owner's ranking as long as nothing was learned."""
        if not len(self._held):
            return self.own
        made = Version(self._learner.W, self._space.Z, self._space.metric, self._learner.familiarity)
        return served(made, self._held)


def measured(stream: Stream, wanted: Sequence[Look]) -> Iterator[Row]:
    """(moment, delay, mAP, P@10, clicks of a list, mAP of what the changes touched), as models are taken."""
    for look in wanted:
        if look.taken > stream.now:
            stream.go_on(look.taken)
        state = stream.world.states[stream.world.at(look.moment)]
        scores = stream.served() if look.taken > 0 else stream.own
        yield look.moment, look.delay, *answered(scores, state, stream.judged).row


def world_of(cell: StreamCell) -> World:
    """The world of a cell."""
    return make(load(cell.data), near(cell.data)[:, :LENGTH], cell.drift, cell.seed, cell.changes)


def _begun(cell: StreamCell) -> Stream:
    """A stream of the cell, as far as it is the same in all cells of its drift."""
    if cell.closed is None and cell.changes:
        return _warm(cell.data, cell.drift, cell.seed).branch(world_of(cell))
    return Stream(cell, load(cell.data), near(cell.data), world_of(cell), BEFORE + DAY)


@lru_cache(maxsize=1)
def _warm(data: str, drift: Drift, seed: int) -> Stream:
    """Up to the first moment that is looked at with the longest delay."""
    cell = StreamCell(data, drift, "at once", seed)
    stream = Stream(cell, load(data), near(data), world_of(cell), BEFORE + DAY)
    stream.go_on(BEFORE - DAY)
    return stream


def run(cell: StreamCell) -> list[Row]:
    """The rows of a cell, measured if they are not kept."""
    return [tuple(row) for row in kept(cell.parts, lambda: measured(_begun(cell), cell.looks))]


def own_answers(cell: StreamCell) -> Row:
    """mAP, P@10, clicks and mAP of what was touched, by the owner's ranking in the last state of the
    world."""

    def answer() -> Iterator[Row]:
        data, state = load(cell.data), world_of(cell).states[-1]
        yield answered(own_scores(data.joined()), state, split(data, cell.seed).judged).row

    return tuple(kept(("own", *cell.parts), answer)[0])
