"""Merging states of which only touched entries are kept: as `learners.merge`, on S = W - W_0 entry by entry.

Sums are taken in float64, learner by learner in the order given, and rounded once. Where the result has more
entries than may be kept, those of smallest magnitude are dropped as a step drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from learners.errors import StateError
from learners.kernels.row_tables import DROPPED, DROPS
from learners.merge import Arrays, State, shares_of
from learners.oasis_sparse import OasisSparse, OasisSparseConfig, settled_tables


class TouchedMerge:
    """How states of `OasisSparse` with these settings are merged."""

    def __init__(self, settings: OasisSparseConfig) -> None:
        self._settings = settings

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """base + sum_k w_k (x_k - base), w_k = u_k / sum u, or 1 where `summed`; as
        `learners.merge.StateMerge`. Raises StateError for states of another kind or shape."""
        shares = shares_of(updates)
        factors = [1.0] * len(states) if summed else shares
        moved = [(one, by) for one, by in zip(states, factors, strict=True) if by and not _same(one, base)]
        if not moved:
            return _copied(base)
        if len(moved) == 1 and moved[0][1] == 1.0:
            return _copied(moved[0][0])
        first, counters = self._change(base), _counters(base)
        total, counted = first.copy(), counters.copy()
        for one in states:
            counted += _counters(one) - counters
        for one, by in moved:
            total = total + by * (self._change(one) - first)
        return self._state(base, total, counted)

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """current + (merged - counted); as `learners.merge.StateMerge`. Raises StateError as `states`."""
        if _same(counted, merged):
            return _copied(current)
        if _same(current, counted):
            return _copied(merged)
        whole = self._change(current) + (self._change(merged) - self._change(counted))
        counts = _counters(current) + (_counters(merged) - _counters(counted))
        return self._state(current, whole, np.maximum(counts, 0))

    def _change(self, state: State) -> sparse.csr_array:
        learner = OasisSparse.from_state(state, self._settings)
        return learner.change().astype(np.float64)

    def _state(self, like: State, change: sparse.csr_array, counters: Any) -> Arrays:
        if len(like["starts"]) != change.shape[0]:
            raise StateError("states to merge have other dimensions")
        learner = OasisSparse(change.shape[0], self._settings)
        settled_tables(learner.tables, change, self._settings.entries)
        learner.tables.marks[[DROPS, DROPPED]] += counters[1:]
        learner.events = int(counters[0])
        return _copied(learner.state())


def _same(one: State, other: State) -> bool:
    if {name: (a.shape, a.dtype) for name, a in one.items()} != {
        name: (a.shape, a.dtype) for name, a in other.items()
    }:
        raise StateError(f"states to merge have other arrays or shapes: {sorted(one)}, {sorted(other)}")
    return all(np.array_equal(one[name], other[name]) for name in one)


def _copied(state: State) -> Arrays:
    return {name: np.array(array) for name, array in state.items()}


def _counters(state: State) -> Any:
    """Events, and how often and how many entries were dropped."""
    return np.array([int(state["events"]), *state["marks"][[DROPS, DROPPED]]], np.int64)
