"""Ids as 64-bit hashes: what readers remember of events without keeping their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]


def hash_ids(ids: Sequence[str]) -> UInt64Array:
    """xxh64 (seed 0) of each id's UTF-8 bytes, uint64 [n]."""
    from streams.compiled.hashing import hash_each  # brings numba in: only where events are decoded

    encoded = [one.encode() for one in ids]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=bounds[1:])
    hashes = np.empty(len(encoded), np.uint64)
    hash_each(np.frombuffer(b"".join(encoded), np.uint8), bounds, hashes)
    return hashes
