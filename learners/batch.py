"""A batch of triplets: three blocks of equal length, dimension and kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.block import Block
from learners.errors import BlockError


@dataclass(frozen=True, slots=True, eq=False)
class TripletBatch:
    """Row i of the three blocks is triplet i.

    keys: bytes of 64 [n], the UTF-8 of the key whose model an event is for, b"" without one; None where no
    event has one. Raises BlockError when lengths, dimensions or kinds differ.
    """

    query: Block
    clicked: Block
    skipped: Block
    keys: NDArray[np.bytes_] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, block in (("clicked", self.clicked), ("skipped", self.skipped)):
            if type(block) is not type(self.query):
                raise BlockError(
                    f"{name} is a {type(block).__name__}, query a {type(self.query).__name__}: use one"
                )
            if len(block) != len(self.query):
                raise BlockError(
                    f"{name} has {len(block)} rows, query {len(self.query)}: give one each per triplet"
                )
            if block.dim != self.query.dim:
                raise BlockError(f"{name} has {block.dim} dimensions, query {self.query.dim}: map both alike")
        if self.keys is not None and self.keys.shape != (len(self.query),):
            raise BlockError(f"keys have shape {self.keys.shape}: give one per triplet ({len(self.query)})")

    def __len__(self) -> int:
        return len(self.query)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.query.dim

    def slice(self, start: int, stop: int) -> TripletBatch:
        """Triplets start..stop-1 without copying."""
        keys = None if self.keys is None else self.keys[start:stop]
        blocks = (block.slice(start, stop) for block in (self.query, self.clicked, self.skipped))
        return TripletBatch(*blocks, keys=keys)

    def take(self, rows: Any) -> TripletBatch:
        """The triplets named by an integer array, in its order, copied."""
        keys = None if self.keys is None else self.keys[rows]
        return TripletBatch(
            *(block.take(rows) for block in (self.query, self.clicked, self.skipped)), keys=keys
        )
