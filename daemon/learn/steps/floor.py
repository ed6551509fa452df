"""Below which offset nobody needs the step log any more. Pure."""

from __future__ import annotations

from collections import deque

from streams.steps.segment import Base, Body, Steps, Triplets

BASES_KEPT = 2
"""Should the newest version be damaged, replicas begin at the one before."""
CUTS_KEPT = 64
"""Captured versions that may still become durable, as the journal keeps them."""


class Floor:
    """Told of every segment sent; knows where the last version but one was cut."""

    def __init__(self) -> None:
        self._cuts: dict[int, int] = {}
        self._bases: deque[int] = deque(maxlen=BASES_KEPT)

    def sent(self, body: Body, offset: int) -> None:
        """A segment was written, its first record at `offset`."""
        if isinstance(body, Steps | Triplets) and body.cut:
            self._cuts[body.last] = offset
            while len(self._cuts) > CUTS_KEPT:
                self._cuts.pop(next(iter(self._cuts)))
        elif isinstance(body, Base):
            self._bases.append(self._cuts.pop(body.records, offset))
            self._cuts = {records: at for records, at in self._cuts.items() if records > body.records}

    @property
    def offset(self) -> int:
        """What is below may go; 0 before the first base."""
        return self._bases[0] if self._bases else 0
