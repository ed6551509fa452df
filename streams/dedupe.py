"""Which events were there before: a window of the newest event ids, in the order they were applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streams.errors import StreamError

UInt64s: TypeAlias = NDArray[np.uint64]


class IdWindow:
    """Remembers the last `capacity` distinct ids that it admitted; 0 remembers none and admits all.

    ids: the 64-bit hashes of event ids, as a decoder gives them. A known id is a repetition: it is not
    admitted, and its place in the window stays what it was. So an id is known until `capacity` others were
    admitted after it. What is admitted depends on the ids and their order alone, not on where batches end.
    Two different ids of one hash count as one: with 100,000 known ids that befalls one event in 10^14.
    Costs 24 to 40 bytes per id of `capacity`, and about 50 ns per event. Not safe for two threads at once.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"a window holds 0 ids or more, not {capacity}")
        self.capacity = capacity
        self._ring = np.zeros(capacity, np.uint64)
        self._table = np.zeros(1 << (2 * capacity).bit_length(), np.uint64)  # at most half full
        self._admitted = 0
        if capacity:
            from streams.compiled import window  # here, so that the first event does not wait for it

            self._compiled = window

    def __len__(self) -> int:
        """How many ids are known."""
        return min(self._admitted, self.capacity)

    def admit(self, ids: UInt64s) -> NDArray[np.bool_]:
        """bool [n], for uint64 [n] in the order of application: True for each id that was not known."""
        fresh = np.ones(len(ids), np.bool_)
        if self.capacity and len(ids):
            self._admitted = self._compiled.admit(ids, self._ring, self._table, self._admitted, fresh)
        return fresh

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the window is restored from; empty without a capacity.

        `ids` uint64 [len]: the known ids, the k-th admitted at k mod capacity; a read-only view, which
        changes with the next `admit`. `admitted` int64 []: how many were ever admitted.
        """
        if not self.capacity:
            return {}
        ids = self._ring[: len(self)]
        ids.flags.writeable = False
        return {"ids": ids, "admitted": np.array(self._admitted, np.int64)}

    @classmethod
    def from_arrays(cls, capacity: int, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """A window that goes on from `arrays`, copied; an empty one where there are none.

        Raises StreamError when they are not those of a window of this capacity.
        """
        window = cls(capacity)
        if not arrays:
            return window
        ids, admitted = _checked(capacity, arrays)
        if capacity and window._compiled.fill(ids, window._table) != len(ids):
            raise StreamError("the array of known event ids holds an id twice, or none: it was altered")
        window._ring[: len(ids)] = ids
        window._admitted = admitted
        return window


def _checked(capacity: int, arrays: Mapping[str, NDArray[Any]]) -> tuple[UInt64s, int]:
    """(ids, admitted) of arrays whose types and lengths fit each other and the capacity."""
    expected = {"ids": (np.uint64, 1), "admitted": (np.int64, 0)}
    if {name: (array.dtype.type, array.ndim) for name, array in arrays.items()} != expected:
        raise StreamError("a window of event ids is uint64 `ids` [n] and int64 `admitted` []: it was altered")
    ids, admitted = arrays["ids"], int(arrays["admitted"])
    if admitted < 0 or len(ids) != min(admitted, capacity):
        raise StreamError(
            f"{len(ids)} known event ids of {admitted} admitted do not make a window of {capacity}: "
            "it was altered, or written with another capacity"
        )
    return ids, admitted
