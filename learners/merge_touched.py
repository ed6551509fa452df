"""Merging states of which only touched entries are kept: as `learners.merge`, on S = W - W_0 entry by entry.

Sums are taken in float64, learner by learner in the order given, and rounded once; an entry whose sum is 0 is
none. Where the result has more entries than may be kept, the largest of these stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from learners.errors import StateError
from learners.forms.touched import entries_of
from learners.merge import Arrays, State, shares_of
from learners.oasis_sparse import OasisSparse, OasisSparseConfig


class TouchedMerge:
    """How states of `OasisSparse` with these settings are merged."""

    def __init__(self, settings: OasisSparseConfig) -> None:
        self._settings = settings

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """base + sum_k w_k (x_k - base), w_k = u_k / sum u, or 1 where `summed`; as
        `learners.merge.StateMerge`. Raises StateError for states of another kind or dimension."""
        _check([base, *states])
        factors = [1.0] * len(states) if summed else shares_of(updates)
        moved = [(one, by) for one, by in zip(states, factors, strict=True) if by and not _same(one, base)]
        if not moved:
            return _copied(base)
        if len(moved) == 1 and moved[0][1] == 1.0:
            return _copied(moved[0][0])
        first, counters = self._change(base), _counters(base)
        total = first.copy()
        counted = counters + sum(_counters(one) - counters for one in states)
        for one, by in moved:
            total = total + by * (self._change(one) - first)
        return self._state(total, counted)

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """current + (merged - counted); as `learners.merge.StateMerge`. Raises StateError as `states`."""
        _check([current, counted, merged])
        if _same(counted, merged):
            return _copied(current)
        if _same(current, counted):
            return _copied(merged)
        whole = self._change(current) + (self._change(merged) - self._change(counted))
        counts = _counters(current) + (_counters(merged) - _counters(counted))
        return self._state(whole, np.maximum(counts, 0))

    def _change(self, state: State) -> sparse.csr_array:
        return OasisSparse.from_state(state, self._settings).change().astype(np.float64)

    def _state(self, change: sparse.csr_array, counters: Any) -> Arrays:
        """The state of this S. counters: as `_counters`."""
        learner = OasisSparse.from_state(
            {
                "dim": np.array(change.shape[0], np.int64),
                **entries_of(sparse.csr_array(change)),
                "dropped": counters[1:],
                "events": counters[0],
            },
            self._settings,
        )
        learner.keep_largest(self._settings.entries)
        return _copied(learner.state())


def _check(states: Sequence[State]) -> None:
    kinds = [{name: array.dtype for name, array in one.items()} for one in states]
    if any(kind != kinds[0] for kind in kinds):
        raise StateError(f"states to merge have other arrays: {sorted(kinds[0])}")
    if "dim" not in kinds[0] or len({int(one["dim"]) for one in states}) > 1:
        raise StateError("states to merge have other dimensions")


def _same(one: State, other: State) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def _copied(state: State) -> Arrays:
    return {name: np.array(array) for name, array in state.items()}


def _counters(state: State) -> Any:
    return np.array([int(state["events"]), *state["dropped"]], np.int64)
