"""float32 arrays that are used again: what is computed at every swap takes the place of what it replaces."""

from __future__ import annotations

import threading
import weakref

import numpy as np

from learners.block import Float32s

KEPT = 16
"""Arrays that wait for their next use; more than the parts of an index and their predecessors."""


class Buffers:
    """Lends arrays and takes them back when their owner is gone. Any thread."""

    def __init__(self) -> None:
        self._free: list[Float32s] = []
        self._lock = threading.Lock()

    def take(self, length: int) -> Float32s:
        """A float32 array of this length with anything in it."""
        with self._lock:
            fitting = [i for i, one in enumerate(self._free) if length <= len(one) <= 2 * length]
            if fitting:
                best = min(fitting, key=lambda i: len(self._free[i]))
                return self._free.pop(best)[:length]
        return np.empty(length, np.float32)

    def owned(self, array: Float32s, owner: object) -> None:
        """`array` came from `take` and comes back when `owner` has been collected, and never before: whoever
        reads the array holds its owner.
        """
        whole = array if array.base is None else array.base
        assert isinstance(whole, np.ndarray)
        weakref.finalize(owner, self._back, whole).atexit = False

    def _back(self, array: Float32s) -> None:
        with self._lock:
            self._free.append(array)
            del self._free[:-KEPT]
