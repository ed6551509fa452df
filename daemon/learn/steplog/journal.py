"""What the step log records next: segments on their chain, cuts, bases and breaks; what may be sent, what
may go. Pure.

The learner's loop never waits for the log, so batches may be missing here. A gap shows by the records
before a batch: then a break is recorded, and steps are left out up to the next captured version, where
replicas can begin again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from daemon.learn.steplog.segments import (
    SEGMENT_BYTES,
    AppliedBatch,
    Captured,
    Durable,
    Item,
    TakenSteps,
    as_steps,
    merged,
    nothing,
    size_of,
)
from streams.steps.codec import encode_segment
from streams.steps.segment import (
    ERROR,
    GENESIS,
    QUEUE,
    RATE,
    BadSegment,
    Base,
    Body,
    Break,
    ChainPosition,
    RankOneSteps,
    Taken,
    Triplets,
)

CUTS_KEPT = 64
"""Captured versions that may still become durable; more would mean that none did for long."""
BASES_KEPT = 2
"""Should the newest version be damaged, replicas begin at the one before."""
BURST_SECONDS = 2.0
"""Unused rate is saved up for this long: a batch read ahead comes at once."""


class ByteAllowance:
    """A bucket that fills with `rate` bytes per second, up to `BURST_SECONDS` of them.

    between: most bytes between two durable versions, None for any number: what retention cannot remove, since
    replicas of the last version need it, must not fill a disk while no version becomes durable.
    """

    def __init__(self, rate: int, now: float, between: int | None = None) -> None:
        self._rate, self._between = rate, between
        self._held = rate * BURST_SECONDS
        self._at = now
        self._taken = 0

    def version(self) -> None:
        """A version is durable: what was taken before it is counted no more."""
        self._taken = 0

    def take(self, size: int, now: float) -> bool:
        """Whether `size` bytes may go; they are counted then. A full bucket lets any size go."""
        full = self._rate * BURST_SECONDS
        self._held = min(full, self._held + self._rate * max(0.0, now - self._at))
        self._at = now
        if size > self._held and self._held < full:
            return False
        if self._between is not None and self._taken and self._taken + size > self._between:
            return False
        self._held -= size
        self._taken += size
        return True


@dataclass(frozen=True, slots=True)
class Written:
    """One segment as record values. `before`: the chain's value that it hangs on."""

    body: Body
    place: ChainPosition
    before: bytes
    records: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of all its records."""
        return sum(map(len, self.records))


class Journal:
    """The segments of one writer epoch, from its beginning. `lost`: why batches are missing, when they are.

    place: of segment 0; base: the version that the writer begins from; dim: of the vectors; max_record_bytes:
    of the sink; taken: the learner's method of that name.
    """

    def __init__(
        self,
        place: ChainPosition,
        base: Durable,
        dim: int,
        max_record_bytes: int,
        allowance: ByteAllowance,
        *,
        taken: TakenSteps,
    ) -> None:
        self.lost = QUEUE
        self.whole = True  # nothing is being left out
        self._base, self._records = base, base.records
        self._dim, self._steps_of = dim, taken
        self._max_record_bytes, self._allowance = max_record_bytes, allowance
        self._place, self._chain = place, GENESIS
        self._cuts: dict[int, bytes] = {}
        self._pending: list[Taken] = []
        self._pending_bytes = 0

    def begin(self) -> Written:
        """Segment 0: where the writer begins."""
        base = self._base
        return self._write(Base(base.number, base.records, GENESIS, base.digest, base.writer))

    def take(self, item: Item, now: float) -> list[Written]:
        """What is to be written because of an item; steps wait for `flush` until a segment is full."""
        if isinstance(item, AppliedBatch):
            return self._applied(item, now)
        if isinstance(item, Captured):
            return self._captured(item)
        chain = self._cuts.pop(item.records, None)
        if chain is None:
            return []
        self._cuts = {records: at for records, at in self._cuts.items() if records > item.records}
        self._allowance.version()
        base = Base(item.number, item.records, chain, item.digest, item.writer)
        return [*self.flush(), self._write(base)]

    def flush(self) -> list[Written]:
        """Everything taken so far."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return [self._write(merged(pending))] if pending else []

    def leave_out(self, reason: str) -> list[Written]:
        """From here on steps are left out, up to the next captured version; what is pending still goes."""
        written = self.flush()
        self.whole = False
        return [*written, self._write(Break(self._records, reason))]

    def unwritten(self, first: Written) -> list[Written]:
        """The log has refused `first` and all after it: continue from before it, with a break."""
        self._place, self._chain = first.place, first.before
        self._pending, self._pending_bytes = [], 0
        self._cuts.clear()
        self.whole = False
        body = first.body
        records = body.first if isinstance(body, RankOneSteps | Triplets) else body.records
        return [self._write(Break(records, ERROR))]

    def _applied(self, batch: AppliedBatch, now: float) -> list[Written]:
        if not self.whole:
            return []
        if batch.first != self._records:
            return self.leave_out(self.lost)
        steps = list(as_steps(batch, self._dim, self._steps_of))
        if not self._allowance.take(sum(map(size_of, steps)), now):
            return self.leave_out(RATE)
        written = []
        for one in steps:
            written += self._add(one)
        if any(isinstance(one.body, Break) for one in written):
            self._pending, self._pending_bytes = [], 0
        self._records = batch.last
        return written

    def _captured(self, item: Captured) -> list[Written]:
        written = []
        if self.whole and item.records != self._records:
            written = self.leave_out(self.lost)
        self.whole, self._records, self.lost = True, item.records, QUEUE
        if self._pending:
            self._pending[-1] = replace(self._pending[-1], cut=True)
        else:
            self._pending.append(replace(nothing(item.records, item.watermark, self._dim), cut=True))
        written += self.flush()
        if isinstance(written[-1].body, Break):  # what was pending could not be written down
            self.whole = True
            written.append(self._write(replace(nothing(item.records, item.watermark, self._dim), cut=True)))
        self._cuts[item.records] = self._chain
        while len(self._cuts) > CUTS_KEPT:
            self._cuts.pop(next(iter(self._cuts)))
        return written

    def _add(self, steps: Taken) -> list[Written]:
        """Hold steps back until a segment is full. After whole records, a segment takes in no part of another
        record.
        """
        size = size_of(steps)
        full = self._pending_bytes + size > SEGMENT_BYTES
        whole = bool(self._pending) and self._pending[-1].last > self._pending[-1].first
        written = self.flush() if full or (whole and steps.last == steps.first) else []
        self._pending.append(steps)
        self._pending_bytes += size
        return [*written, *self.flush()] if steps.project else written

    def _write(self, body: Body) -> Written:
        place, before = self._place, self._chain
        try:
            encoded = encode_segment(place, body, before, self._max_record_bytes)
        except BadSegment:
            if not isinstance(body, RankOneSteps | Triplets):
                raise
            self.whole = False
            body = Break(body.first, ERROR)
            encoded = encode_segment(place, body, before, self._max_record_bytes)
        self._place, self._chain = replace(place, seq=place.seq + 1), encoded.after
        return Written(body, place, before, tuple(encoded.records))


class Floor:
    """Called with every segment sent; knows where the last version but one was cut."""

    def __init__(self) -> None:
        self._cuts: dict[int, int] = {}
        self._bases: deque[int] = deque(maxlen=BASES_KEPT)

    def sent(self, body: Body, offset: int) -> None:
        """A segment was written, its first record at `offset`."""
        if isinstance(body, RankOneSteps | Triplets) and body.cut:
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
