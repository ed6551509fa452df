"""Ids as a sequence of texts that finds rows: packed bytes and one table of 32-bit slots, made and searched
without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from streams.packed import Packed


class IdColumn(Sequence[str]):
    """n different ids; row i is the i-th. Memory per id: its bytes, 8, and 8 to 16 of slots."""

    def __init__(self, packed: Packed) -> None:
        from streams.compiled.index import fill_slots  # brings numba in: only where ids are looked up

        self.packed = packed
        self._slots = np.full(1 << (2 * len(packed)).bit_length(), -1, np.int32)
        fill_slots(packed.data, packed.bounds, self._slots)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.packed.nbytes + self._slots.nbytes

    def __len__(self) -> int:
        return len(self.packed)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        """The id of a row; IndexError outside 0 .. n - 1. A slice is a list of texts."""
        if isinstance(row, slice):
            return [self.packed[one].decode() for one in range(*row.indices(len(self)))]
        return self.packed[row].decode()

    def rows_of(self, wanted: Packed) -> npt.NDArray[np.int64]:
        """The row of each wanted id (UTF-8), -1 where it is not there; int64 [len(wanted)]."""
        from streams.compiled.index import find_each

        rows = np.empty(len(wanted), np.int64)
        find_each(wanted.data, wanted.bounds, (self.packed.data, self.packed.bounds, self._slots), rows)
        return rows
