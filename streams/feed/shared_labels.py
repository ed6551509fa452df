"""Triplets of objects that share a label, or a text query that both are relevant for, drawn at random.

As Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010) draw them: by labels (section 2.3) the query is uniform
over objects, the clicked object uniform over those that share a label with it, the skipped one uniform over
the rest; by relevances (the same, with those of section 5.2.1) the pair (a, b) of query and clicked object
has probability proportional to `sum_t Pr(a|t) Pr(b|t) Pr(t)` over the text queries t, a other than b. A
matrix of objects by objects is never made: memory is that of the table.

Nothing here is read or written, and all chance comes from the generator that is given.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

ROUNDS = 64
"""Rounds of redrawing before the few that are left are drawn from exactly what they may be."""

PAIRS_AT_ONCE = 4096
"""Pairs of objects whose labels are compared together: bounds memory by what so many objects belong to."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
DrawnTriplets = tuple[IntArray, IntArray, IntArray]
"""query, clicked, skipped: columns of the table, int64 [count]."""


class NothingToDraw(ValueError):
    """A table from which nothing can be drawn.  The message says what is wrong with it."""


class SharedLabels:
    """A table of labels (or text queries) by objects with relevances > 0, CSR float64 [labels, objects].

    `has_partner`, `has_rest`: bool [objects], whether another object shares a label with it, and whether
    some object shares none.
    """

    def __init__(self, relevance: sp.csr_matrix) -> None:
        table = sp.csr_matrix(relevance, dtype=np.float64, copy=True)
        table.sum_duplicates()
        table.eliminate_zeros()
        self._table = table
        self._labels, self._objects = table.shape
        self._of = sp.csr_matrix(table.T)
        self._of.data[:] = 1.0
        self._sizes = np.diff(table.indptr).astype(np.int64)
        each = np.diff(self._of.indptr)
        self._one_each = bool((each <= 1).all())
        self._only = -1 - np.arange(self._objects)  # of an object without a label, a number of its own
        self._only[each == 1] = self._of.indices[self._of.indptr[:-1][each == 1]]
        ends = np.cumsum(self._sizes[self._of.indices])
        self._ends = np.concatenate([[0], ends]).astype(np.int64)
        """Of every (object, label): how many members its labels up to this one have, all objects counted."""
        self.has_partner: BoolArray = self._of @ (self._sizes > 1).astype(np.float64) > 0
        self.has_rest = self._rests()

    @property
    def usable(self) -> BoolArray:
        """Whether an object can be a query, bool [objects]."""
        return self.has_partner & self.has_rest

    def draw(self, count: int, rng: np.random.Generator) -> DrawnTriplets:
        """By labels: uniform queries, uniform partners, a uniform rest. Raises NothingToDraw."""
        queries = np.flatnonzero(self.usable)
        if not len(queries):
            raise NothingToDraw("no object shares a label with one object and none with another")
        query = queries[rng.integers(0, len(queries), size=count)]
        return query, self._partners(query, rng), self._rest(query, rng)

    def draw_by_relevance(self, count: int, rng: np.random.Generator) -> DrawnTriplets:
        """By relevances: pairs in proportion, a uniform rest. Raises NothingToDraw."""
        table = self._table
        rows = np.repeat(np.arange(self._labels), np.diff(table.indptr))
        ends = np.concatenate([[0.0], np.cumsum(table.data)])
        first, last = ends[table.indptr[:-1]], ends[table.indptr[1:]]
        others = np.maximum((last - first)[rows] - table.data, 0.0)
        others[self._sizes[rows] < 2] = 0.0
        # Pr(t) Pr(a|t) and, with what is left for b, 1 - Pr(a|t): the mass of a as the query, of t.
        mass = np.where(self.has_rest[table.indices], table.data * others / (last - first)[rows], 0.0)
        picked = drawn_entries(mass, count, rng)
        row, query = rows[picked], table.indices[picked].astype(np.int64)
        at = first[row] + rng.random(count) * others[picked]
        at += np.where(at >= ends[picked], table.data[picked], 0.0)  # beyond the query's own place
        other = np.searchsorted(ends[1:], at, side="right")
        other = np.clip(other, table.indptr[row], table.indptr[row + 1] - 1)
        # Rounding at the edge of a place may end at the query itself: its neighbour in the row is as near.
        at_end = picked + 1 >= table.indptr[row + 1]
        other = np.where(other == picked, np.where(at_end, picked - 1, picked + 1), other)
        return query, table.indices[other].astype(np.int64), self._rest(query, rng)

    def _partners(self, query: IntArray, rng: np.random.Generator) -> IntArray:
        clicked = np.empty(len(query), dtype=np.int64)
        waiting = np.arange(len(query))
        for _ in range(ROUNDS):
            wanted = query[waiting]
            start, end = self._ends[self._of.indptr[wanted]], self._ends[self._of.indptr[wanted + 1]]
            place = start + rng.integers(0, end - start)
            entry = np.searchsorted(self._ends, place, side="right") - 1
            label = self._of.indices[entry]
            drawn = self._table.indices[self._table.indptr[label] + place - self._ends[entry]]
            kept = drawn != wanted
            if not self._one_each:  # one of several labels in common was as likely as each of them
                kept &= rng.random(len(waiting)) * self._in_common(wanted, drawn) < 1.0
            clicked[waiting[kept]] = drawn[kept]
            waiting = waiting[~kept]
            if not len(waiting):
                return clicked
        for at in waiting:
            related = self._related(query[at])
            clicked[at] = rng.choice(related[related != query[at]])
        return clicked

    def _rest(self, query: IntArray, rng: np.random.Generator) -> IntArray:
        skipped = np.empty(len(query), dtype=np.int64)
        waiting = np.arange(len(query))
        for _ in range(ROUNDS):
            drawn = rng.integers(0, self._objects, size=len(waiting))
            kept = self._in_common(query[waiting], drawn) == 0
            skipped[waiting[kept]] = drawn[kept]
            waiting = waiting[~kept]
            if not len(waiting):
                return skipped
        for at in waiting:
            rest = np.ones(self._objects, dtype=bool)
            rest[self._related(query[at])] = False
            skipped[at] = rng.choice(np.flatnonzero(rest))
        return skipped

    def _in_common(self, left: IntArray, right: IntArray) -> IntArray:
        """How many labels the objects of each pair share, int64 [n]."""
        common: IntArray = np.equal(self._only[left], self._only[right]).astype(np.int64)
        if self._one_each:
            return common
        for start in range(0, len(left), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            both = self._of[left[part]].multiply(self._of[right[part]])
            common[part] = np.asarray(both.sum(axis=1)).ravel().astype(np.int64)
        return common

    def _related(self, one: int) -> IntArray:
        """The objects that share a label with one, itself among them, int64, ascending."""
        labels = self._of.indices[self._of.indptr[one] : self._of.indptr[one + 1]]
        members = [self._table.indices[slice(*self._table.indptr[at : at + 2])] for at in labels]
        return np.unique(np.concatenate(members)).astype(np.int64)

    def _rests(self) -> BoolArray:
        """`has_rest`. Labels with fewer members than there are objects, all together, leave some out; only
        where they do not are members counted, once for all objects of the same labels."""
        rests: BoolArray = np.diff(self._ends[self._of.indptr]) < self._objects
        known: dict[bytes, bool] = {}
        for one in np.flatnonzero(~rests).tolist():
            labels = self._of.indices[self._of.indptr[one] : self._of.indptr[one + 1]]
            key = labels.tobytes()
            if key not in known:
                known[key] = len(self._related(one)) < self._objects
            rests[one] = known[key]
        return rests


def drawn_entries(mass: npt.NDArray[np.float64], count: int, rng: np.random.Generator) -> IntArray:
    """So many entries, each as likely as its mass is large, int64 [count]. Raises NothingToDraw."""
    cumulative = np.cumsum(mass)
    if not len(cumulative) or cumulative[-1] <= 0:
        raise NothingToDraw("no query has both a relevant and a non-relevant object; nothing can be drawn")
    # side="right" skips entries of no mass; the minimum guards the last one against rounding.
    at = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    found: IntArray = np.minimum(at, np.flatnonzero(mass)[-1])
    return found
