"""Worlds that change while users ask: which objects are there, which kinds of queries come, and what counts
as right.

Everything is a function of the set, the seed and the times of the changes, never of what is learned. A world
that drifts goes from its first state to its last in as many equal steps as it has changes.

- new objects: a share of the objects arrives, of the kinds that are there.
- new intents: queries of a share of the classes, which never came before, begin. Their objects were there.
- shifting tastes: two classes that the owner's ranking confuses count as one, and later each counts as one
with another: of four classes a, b, c, d, first ab and cd, then ac and bd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from tests.quality.bench.sets import Ints, RawSet
from tests.quality.bench.users import Bools

Drift: TypeAlias = Literal["nothing", "new objects", "new intents", "shifting tastes", "all together"]
DRIFTS: tuple[Drift, ...] = ("nothing", "new objects", "new intents", "shifting tastes", "all together")
ARRIVING = 0.4
"""Of the objects."""
BEGINNING = 1 / 3
"""Of the classes."""


@dataclass(frozen=True, eq=False)
class WorldState:
    """Between two changes, of each row of the set. there: it is an object, bool [n]. asked: it may come as a
    query, bool [n]. labels: rows of one number are right for each other, int64 [n]. touched: a query whose
    right answers, or whose coming, changed since the beginning, bool [n]."""

    there: Bools
    asked: Bools
    labels: Ints
    touched: Bools

    def among(self, rows: Ints) -> Ints:
        """Those that are there and are asked."""
        return rows[self.there[rows] & self.asked[rows]]


@dataclass(frozen=True)
class World:
    """changes: times, ascending, in seconds. states: one more than changes."""

    changes: tuple[float, ...]
    states: tuple[WorldState, ...]

    def at(self, time: float) -> int:
        """The number of the state at a time; a change counts from its own time on."""
        return int(np.searchsorted(self.changes, time, side="right"))


def make(data: RawSet, lists: Ints, drift: Drift, seed: int, changes: Sequence[float]) -> World:
    """A world. lists: what the owner's ranking shows for each row, int64 [n, any], by which classes are
    confused."""
    rng = np.random.default_rng((seed, 67))
    classes = np.unique(data.labels)
    late_objects = rng.permutation(len(data))[: round(ARRIVING * len(data))]
    late_classes = rng.permutation(classes)[: max(1, round(BEGINNING * len(classes)))]
    fours = fourfold(data.labels, lists)
    fours = [fours[one] for one in rng.permutation(len(fours))]
    objects, intents, tastes = (drift in (one, "all together") for one in DRIFTS[1:4])
    states = []
    for step in range(len(changes) + 1):
        done = step / max(1, len(changes))
        there, begun = np.ones(len(data), bool), np.ones(len(data), bool)
        if objects:
            there[_rest(late_objects, done)] = False
        if intents:
            begun = ~np.isin(data.labels, _rest(late_classes, done))
        labels, moved = data.labels, np.zeros(len(data), bool)
        if tastes:
            count = round(done * len(fours))
            labels = regrouped(data.labels, fours, count)
            moved = np.isin(data.labels, np.ravel(fours[:count]))
        began = begun & np.isin(data.labels, late_classes) if intents else np.zeros(len(data), bool)
        touched = moved | began if tastes or intents else np.full(len(data), objects and done > 0)
        states.append(WorldState(there, begun, labels, touched))
    return World(tuple(changes), tuple(states))


def _rest(late: Ints, done: float) -> Ints:
    return late[round(done * len(late)) :]


def confusion(labels: Ints, lists: Ints) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """How often one class is shown for another, both ways, per row, float64 [classes, classes], 0 on the
    diagonal. labels: from 0 on."""
    count = int(labels.max()) + 1
    found = np.zeros((count, count))
    np.add.at(found, (np.repeat(labels, lists.shape[1]), labels[lists].ravel()), 1)
    found /= np.maximum(np.bincount(labels, minlength=count), 1)[:, None]
    found += found.T
    np.fill_diagonal(found, 0)
    return found


def fourfold(labels: Ints, lists: Ints) -> list[tuple[int, int, int, int]]:
    """Classes in fours (a, b, c, d), greedily: a and b, and c and d, are confused most, then the pairs with
    each other; among the two ways to pair them anew, (a, c) and (b, d) is the one that is confused more. What
    is left over stays out."""
    found = confusion(labels, lists)
    pairs = _greedy(found)
    between = np.array([[sum(found[a, c] for a in one for c in two) for two in pairs] for one in pairs])
    np.fill_diagonal(between, 0)
    fours = []
    for one, two in _greedy(between):
        (a, b), (c, d) = pairs[one], pairs[two]
        if found[a, d] + found[b, c] > found[a, c] + found[b, d]:
            c, d = d, c
        fours.append((a, b, c, d))
    return fours


def _greedy(weights: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[tuple[int, int]]:
    """Disjoint pairs, the heaviest first; one of an odd number stays alone."""
    first, second = np.triu_indices(len(weights), 1)
    taken: set[int] = set()
    pairs = []
    for at in np.argsort(-weights[first, second], kind="stable"):
        one, two = int(first[at]), int(second[at])
        if not taken & {one, two}:
            taken |= {one, two}
            pairs.append((one, two))
    return pairs


def regrouped(labels: Ints, fours: Sequence[tuple[int, int, int, int]], moved: int) -> Ints:
    """Classes that count as one have the lower number of the two: the first `moved` fours are paired anew."""
    group = np.arange(int(labels.max()) + 1)
    for number, (a, b, c, d) in enumerate(fours):
        for one, two in ((a, c), (b, d)) if number < moved else ((a, b), (c, d)):
            group[[one, two]] = min(one, two)
    return np.asarray(group[labels], np.int64)
