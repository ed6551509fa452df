"""Finding what of a partition cannot be read, by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from streams.errors import StreamUnavailable
from streams.kafka.clients.protocol import ConsumerClient, CorruptBatch, Fetched, Overfull
from streams.placing import Bounds

_SLICE_S = 0.2


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets `first` to `last` of a partition hold records that cannot be read."""

    partition: int
    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.first} to {self.last} cannot be read: {self.reason}"


class Prober:
    """Reads single records with clients of its own; each is thrown away after an error."""

    def __init__(self, make: Callable[[], ConsumerClient], timeout_s: float) -> None:
        self._make, self._timeout_s = make, timeout_s
        self._client: ConsumerClient | None = None

    def read(self, partition: int, offset: int) -> Fetched | None:
        """The first record at `offset` or behind it; None when only a gap was found there.

        Raises CorruptBatch, OutOfRange, and StreamUnavailable when nothing comes within the time limit.
        """
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            try:
                return self._read(partition, offset, deadline)
            except Overfull:  # batches behind it: the next client may get fewer of them at once
                self.close()
            except BaseException:
                self.close()
                raise
        raise _no_answer(partition, offset)

    def _read(self, partition: int, offset: int, deadline: float) -> Fetched | None:
        client = self._client = self._client or self._make()
        client.assign({partition: offset})
        while time.monotonic() < deadline:
            pieces = client.poll(1, _SLICE_S)
            if pieces:
                return pieces[0]
            if client.positions()[partition] > offset:
                return None
        raise _no_answer(partition, offset)

    def close(self) -> None:
        """Release the client."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _no_answer(partition: int, offset: int) -> StreamUnavailable:
    return StreamUnavailable(f"partition {partition}: no answer about offset {offset}")


def find_damage(prober: Prober, positions: Mapping[int, int], bounds: Bounds) -> Damage | None:
    """The damage at one of these positions; None when all of them can be read after all.

    Its end is found by steps that double, then by halving: some 2 log2(n) tries for n records. A sound
    stretch between two damaged ones may be taken for damage with them when a step leaps over it.
    """
    with closing(prober):
        for partition, first in positions.items():
            end = bounds[partition][1]
            reason = _fault_at(prober, partition, first, end)
            if reason is not None:
                return Damage(partition, first, _last(prober, partition, first, end), reason)
    return None


def _last(prober: Prober, partition: int, damaged: int, end: int) -> int:
    """The last offset that cannot be read, going up from one that cannot."""
    step = 1
    sound = min(end, damaged + step)
    while _fault_at(prober, partition, sound, end) is not None:
        damaged, step = sound, 2 * step
        sound = min(end, damaged + step)
    while sound - damaged > 1:
        middle = (damaged + sound) // 2
        if _fault_at(prober, partition, middle, end) is None:
            sound = middle
        else:
            damaged = middle
    return damaged


def _fault_at(prober: Prober, partition: int, offset: int, end: int) -> str | None:
    """Why the record at `offset` cannot be read; None when it can, or when the partition ends there."""
    if offset >= end:
        return None
    try:
        prober.read(partition, offset)
    except CorruptBatch as error:
        return str(error)
    return None
