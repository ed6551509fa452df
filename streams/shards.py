"""A topic shared out among several learners: shard k of N takes the partitions p with p mod N = k.

Where a record lies is decided by the hash of its query when it is written, so a query always belongs to one
shard, as long as the numbers of partitions and of shards stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streams.source import GrowingSource, HeldBack, Source

_NAME = re.compile(r"(\d{1,4})-of-(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """Learner `number` of `of`, counted from 0. ValueError where there is no such one."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"there is no shard {self.number} of {self.of}: they are counted from 0")

    @property
    def name(self) -> str:
        """`0-of-2`, as its folder is called."""
        return f"{self.number}-of-{self.of}"

    @classmethod
    def named(cls, name: str) -> Shard | None:
        """Inverse of `name`; None for anything else."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found and int(found[1]) < int(found[2]) else None

    def takes(self, partition: int) -> bool:
        """Whether the partition is one of this shard's."""
        return partition % self.of == self.number

    def among(self, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions that are this shard's, in their order."""
        return [partition for partition in partitions if self.takes(partition)]


class ShardSource(GrowingSource):
    """A growing source that knows the partitions of one shard alone; `identity` is that of the whole topic.

    Positions of a part of a topic are noted by nobody but the one that has them all: `commit` does nothing,
    and there is no note.
    """

    def __init__(self, opening: Callable[[], Source], shard: Shard) -> None:
        super().__init__(opening)
        self._shard = shard

    def bounds(self) -> dict[int, tuple[int, int]]:
        """See `Source`; of the shard's partitions, as all that follows."""
        return {p: bounds for p, bounds in super().bounds().items() if self._shard.takes(p)}

    def held_back(self) -> dict[int, HeldBack]:
        """See `Source`."""
        return {p: held for p, held in super().held_back().items() if self._shard.takes(p)}

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """See `Source`."""
        return {p: offset for p, offset in super().offsets_at(ts_ms).items() if self._shard.takes(p)}

    def commit(self, positions: Mapping[int, int], note: str = "") -> None:
        """Does nothing."""

    def committed(self) -> dict[int, int]:
        """See `Source`."""
        return {p: offset for p, offset in super().committed().items() if self._shard.takes(p)}

    def note(self) -> str:
        """Always ""."""
        return ""
