"""What the newest events did to the learner, by the names they carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.caps.config import CapsConfig
from learners.caps.kernel import KINDS, LIMIT, UNIT, count, plan, settle
from learners.errors import StateError

NAMES = KINDS
"""Names of an event, in this order: its source, its query, the clicked item, the skipped item."""
SOURCE, QUERY, ITEM = 1, 2, 3
"""Fates of events that were not let in: which of the caps was used up."""
REASONS: Mapping[int, str] = {SOURCE: "cap_source", QUERY: "cap_query", ITEM: "cap_item"}


class StepWindow:
    """How much each source, query and item moved the learner in the newest events, and who may go on.

    An event is let in unless the steps of one of its names within the newest `config.window` events that were
    let in have reached the cap of that kind; the first such kind is its fate. It is learned with no more
    weight than the caps of its names leave. So the steps of a name in a window add up to its cap at most, and
    a refused event moves no window. What an event spends is its step in full steps, rounded up to 1 / UNIT.
    What is decided depends on the events in their order alone, not on where batches end.

    Names are 64-bit numbers; names of different kinds never meet. 40 bytes of state per event of the window,
    which `salt` does not change: it only hides from who chooses names where they lie in the table. Costs O(1)
    per event. Not safe for two threads at once.
    """

    def __init__(self, config: CapsConfig, salt: int = 0) -> None:
        """No event yet. Raises ConfigError as CapsConfig does."""
        self.config = config
        self._salt = np.uint64(salt)
        caps = (config.source, config.query, config.item, config.item)
        room = config.window if config.any else 0
        counted = sum(cap > 0 for cap in caps)
        slots = 1 << (2 * counted * room).bit_length()  # at most half full
        self._ring = np.zeros((room, NAMES), np.uint64)
        self._spent = np.zeros(room, np.int64)
        self._window = (
            self._ring,
            self._spent,
            np.zeros(slots, np.uint64),
            np.zeros((slots, 3), np.int64),
            np.array([np.ceil(cap * UNIT) if cap > 0 else -1 for cap in caps], np.int64),
        )
        self._admitted = 0

    def plan(
        self, names: NDArray[np.uint64], weights: NDArray[np.float64], start: int
    ) -> tuple[int, NDArray[np.uint8], NDArray[np.float64]]:
        """(stop, fates, limits): what becomes of the events start..stop-1, at least one.

        names: uint64 [n, 4], weights: float64 [n]. fates uint8 and limits float64 [stop - start]: 0 and the
        weight to learn with, or a key of REASONS and 0. `settle` those let in before planning again.
        """
        fates, limits = np.zeros(len(weights), np.uint8), np.zeros(len(weights))
        if not self.config.any:
            return len(weights), fates[start:], weights[start:]
        stop, self._admitted = plan(
            self._window, self._salt, self._admitted, names, weights, start, fates, limits
        )
        if stop == start:
            raise RuntimeError("what was let in before is not settled")
        return int(stop), fates[start:stop], limits[start:stop]

    def settle(self, steps: NDArray[np.float64]) -> None:
        """What the events let in by the last `plan` spent: float64, in full steps, 0 for no change."""
        if self.config.any:
            settle(self._window, self._salt, self._admitted - len(steps), steps)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the window is restored from; empty without a cap. Views, which change with the next event.

        `names` uint64 [window, 4], `spent` int64 [window] in 1 / UNIT of a full step: of the events in the
        window, the k-th let in at k mod window. `admitted` int64 []: how many were ever let in.
        """
        if not self.config.any:
            return {}
        views = {"names": self._ring.view(), "spent": self._spent.view()}
        for view in views.values():
            view.flags.writeable = False
        return {**views, "admitted": np.array(self._admitted, np.int64)}

    @classmethod
    def from_arrays(cls, config: CapsConfig, arrays: Mapping[str, NDArray[Any]], salt: int = 0) -> Self:
        """A window that goes on from `arrays`, copied. Raises StateError when they are not its own."""
        window = cls(config, salt)
        if not config.any:
            return window
        names, spent, admitted = _checked(window, arrays)
        window._ring[...] = names
        window._spent[...] = spent
        window._admitted = admitted
        count(window._window, window._salt, min(admitted, config.window))
        return window


def _checked(
    window: StepWindow, arrays: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
    """(names, spent, admitted) of arrays with the shapes, types and ranges of this window."""
    own = {name: (array.dtype, array.shape) for name, array in window.arrays().items()}
    if {name: (array.dtype, array.shape) for name, array in arrays.items()} != own:
        raise StateError(
            f"a window of {window.config.window} steps is uint64 `names`, int64 `spent`, int64 `admitted`: "
            "it was altered, or written with another window"
        )
    spent, admitted = arrays["spent"], int(arrays["admitted"])
    if admitted < 0 or (spent < 0).any() or (spent > LIMIT * UNIT).any() or spent[admitted:].any():
        raise StateError("a window of steps holds what no events leave: it was altered")
    return arrays["names"], spent, admitted
