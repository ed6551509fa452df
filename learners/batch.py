"""A batch of triplets: three blocks of equal length, dimension and kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from learners.block import Block
from learners.errors import BlockError


@dataclass(frozen=True, slots=True, eq=False)
class TripletBatch:
    """Row i of the three blocks is triplet i. Raises BlockError when lengths, dimensions or kinds differ."""

    query: Block
    clicked: Block
    skipped: Block

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

    def __len__(self) -> int:
        return len(self.query)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.query.dim

    def slice(self, start: int, stop: int) -> TripletBatch:
        """Triplets start..stop-1 without copying."""
        return TripletBatch(
            self.query.slice(start, stop), self.clicked.slice(start, stop), self.skipped.slice(start, stop)
        )

    def take(self, rows: Any) -> TripletBatch:
        """The triplets named by an integer array, in its order, copied."""
        return TripletBatch(self.query.take(rows), self.clicked.take(rows), self.skipped.take(rows))
