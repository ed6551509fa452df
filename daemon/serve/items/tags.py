"""Tags of many objects as sorted postings: a mask is two bisections and one assignment per tag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streams.ids import hash_ids


class TagColumn:
    """Which of n rows bear which tags. Tags are known by 64 bits of hash; 12 bytes per tag of a row.

    hashes: uint64 [k], ascending; rows: int32 [k], the row that bears it.
    """

    def __init__(self, length: int, hashes: NDArray[np.uint64], rows: NDArray[np.int32]) -> None:
        order = np.argsort(hashes, kind="stable")
        self._length = length
        self._hashes, self._rows = hashes[order], rows[order]

    @classmethod
    def of(cls, tags: Sequence[Sequence[str]]) -> TagColumn:
        """Row i bears `tags[i]`."""
        rows = np.repeat(np.arange(len(tags), dtype=np.int32), [len(one) for one in tags])
        return cls(len(tags), hash_ids([tag for one in tags for tag in one]), rows)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._hashes.nbytes + self._rows.nbytes

    def bearing(self, tags: Sequence[str]) -> NDArray[np.bool_]:
        """bool [n]: the rows that bear every one of these tags; no tags, all rows."""
        mask = np.ones(self._length, np.bool_)
        try:
            wanted = hash_ids(tags)
        except UnicodeEncodeError:  # half a character, which no tag holds
            return ~mask
        for value in wanted:
            first, last = (
                np.searchsorted(self._hashes, value, "left"),
                np.searchsorted(self._hashes, value, "right"),
            )
            one = np.zeros(self._length, np.bool_)
            one[self._rows[first:last]] = True
            mask &= one
            if not mask.any():  # thousands of tags may be asked for, and no row bears so many
                break
        return mask

    def moved(self, places: NDArray[np.int32]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """(hashes, rows) with row i now at `places[i]`; those at -1 are left out."""
        to = places[self._rows]
        kept = to >= 0
        return self._hashes[kept], to[kept]
