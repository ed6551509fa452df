"""The holdout window: the newest impressions a version is judged on, a pure function of the holdout
positions.

Of every partition it holds the last `share = ceil(size / partitions)` records before its position, and of
these the usable ones (at least one clicked and one unclicked object). So the window read again from the log
at the same positions is the same window, whatever restarts, polls and rewinds lie between, as long as the
log still holds those records. Memory: at most `size + partitions` impressions. An impression that was
written twice (a broker that did not answer was sent it again) counts once: it is known by its id, and where
one model per key is learned by its key too, as different keys may use one id.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streams.event import Impression


def is_usable(impression: Impression) -> bool:
    """At least one shown object was clicked and at least one was not: else there is nothing to compare."""
    return 0 < len(impression.clicked) < len(impression.shown)


def share_of(size: int, partitions: int) -> int:
    """Records of one partition that the window looks back on."""
    return -(-size // partitions)


def rebuild_from(ends: Mapping[int, tuple[int, int]], size: int) -> dict[int, int]:
    """Where to start reading so that the window is full at the ends: `share` records back, or the earliest.

    ends: partition -> (earliest, end), or (earliest, any wanted position) to see an older window again.
    """
    share = share_of(size, len(ends))
    return {partition: max(earliest, end - share) for partition, (earliest, end) in ends.items()}


@dataclass(frozen=True, slots=True)
class Held:
    """A usable impression and where it stood in the holdout topic."""

    partition: int
    offset: int
    impression: Impression


Identity = tuple[str, str | None]


class Window:
    """Newest usable impressions per partition, and the position up to which the topic was read. keyed: one
    model per key is learned."""

    def __init__(self, size: int, starts: Mapping[int, int], keyed: bool = False) -> None:
        self._keyed = keyed
        self._share = share_of(size, len(starts))
        self._positions = dict(starts)
        self._held: dict[int, deque[Held]] = {partition: deque() for partition in starts}
        self._ids: Counter[Identity] = Counter()

    @property
    def positions(self) -> dict[int, int]:
        """Next offset per partition: with the version's hash it determines every verdict."""
        return dict(sorted(self._positions.items()))

    def add(self, held: Held) -> bool:
        """Take a usable impression and move past it; whether it was not here already."""
        self._held[held.partition].append(held)
        identity = self._identity(held)
        self._ids[identity] += 1
        is_first = self._ids[identity] == 1
        self.move(held.partition, held.offset + 1)
        return is_first

    def move(self, partition: int, next_offset: int) -> None:
        """The partition was read up to `next_offset`; what fell out of the look-back is forgotten."""
        self._positions[partition] = max(next_offset, self._positions[partition])
        oldest = self._positions[partition] - self._share
        queue = self._held[partition]
        while queue and queue[0].offset < oldest:
            gone = self._identity(queue.popleft())
            self._ids[gone] -= 1
            if not self._ids[gone]:
                del self._ids[gone]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Held]:
        """Each once, oldest first, by (time, partition, offset): an order that does not depend on how polls
        interleaved.
        """
        everything = (held for queue in self._held.values() for held in queue)
        ordered = sorted(everything, key=lambda h: (h.impression.ts, h.partition, h.offset))
        firsts: dict[Identity, Held] = {}
        for held in ordered:
            firsts.setdefault(self._identity(held), held)
        return iter(firsts.values())

    def _identity(self, held: Held) -> Identity:
        return held.impression.id, held.impression.key if self._keyed else None
