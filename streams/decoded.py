"""What a decoder makes of a batch of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.columns import RoleColumns
from streams.deadletter import DeadLetter
from streams.ids import UInt64Array
from streams.vectors import Float32Array, Int64Array


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The events of one polled batch as columns of length n, and what was refused.

    `offsets` int64 [n]; `timestamps` int64 [n], the events' own `ts` in ms; `weights` float32 [n];
    `ids` uint64 [n], xxh64 (seed 0) of each event id's UTF-8 bytes; `sources` uint64 [n], the same of each
    `src`, 0 without one; `keys` bytes of 64 [n], the UTF-8 of each `key`, b"" without one, or None from a
    decoder that leaves them out. `poison` holds the refused records, in order; `next_offset` is one past the
    last record polled, refused ones included; `last_digest` is the SHA-256 of that record's value (of nothing
    for null).
    """

    partition: int
    offsets: Int64Array
    timestamps: Int64Array
    weights: Float32Array
    ids: UInt64Array
    sources: UInt64Array
    query: RoleColumns
    clicked: RoleColumns
    skipped: RoleColumns
    poison: list[DeadLetter]
    next_offset: int
    last_digest: bytes
    keys: npt.NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self.ids)
