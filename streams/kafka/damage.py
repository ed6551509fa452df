"""What a partition really holds: which records cannot be read, and whether it is still the log that was
read.

A new leader may have other records in place of some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256

from streams.errors import LogMismatch, StreamUnavailable
from streams.kafka.clients.protocol import ConsumerClient, CorruptBatch, Fetched, OutOfRange, Overfull
from streams.partitions import Bounds
from streams.source import Address

_SLICE_S = 0.02


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
    """Reads single records with clients of its own; thrown away after an error. name: of the topic."""

    def __init__(self, make: Callable[[], ConsumerClient], timeout_s: float, name: object) -> None:
        self._make, self._timeout_s, self._name = make, timeout_s, name
        self._client: ConsumerClient | None = None

    def read(self, partition: int, offset: int, end: int | None = None) -> Fetched | None:
        """The first record at `offset` or behind it; None when only a gap was found there, up to `end`.

        Raises CorruptBatch, OutOfRange, and StreamUnavailable when nothing comes within the time limit.
        """
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            try:
                return self._read(partition, offset, offset + 1 if end is None else end, deadline)
            except Overfull:  # batches behind it: the next client may get fewer of them at once
                self.close()
            except BaseException:
                self.close()
                raise
        raise self._no_answer(partition, offset)

    def _read(self, partition: int, offset: int, end: int, deadline: float) -> Fetched | None:
        client = self._client = self._client or self._make()
        client.assign({partition: offset})
        while time.monotonic() < deadline:
            pieces = client.poll(1, _SLICE_S)
            if pieces:
                return pieces[0]
            if client.positions()[partition] >= end:
                return None
        raise self._no_answer(partition, offset)

    def _no_answer(self, partition: int, offset: int) -> StreamUnavailable:
        return StreamUnavailable(f"{self._name}, partition {partition}: no answer about offset {offset}")

    def close(self) -> None:
        """Release the client."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def find_damage(
    prober: Prober, positions: Mapping[int, int], bounds: Bounds, other: Prober | None = None
) -> Damage | None:
    """The damage at one of these positions; None when all of them can be read after all.

    other: asked where the batch ends, if the first cannot tell.

    Where the batch does not say its own end, that is found by steps that double, then by halving: some
    2 log2(n) tries for n records. A sound stretch between two damaged ones may then be taken for damage with
    them when a step leaps over it.
    """
    with closing(prober):
        for partition, first in positions.items():
            end = bounds[partition][1]
            fault = _fault_at(prober, partition, first, end)
            if fault is not None:
                said = _end_said(fault, other, partition, first, end)
                last = _last(prober, partition, first, end) if said is None else said
                return Damage(partition, first, last, str(fault))
    return None


def _end_said(fault: CorruptBatch, other: Prober | None, partition: int, first: int, end: int) -> int | None:
    """The last offset of the batch as it says itself; None unless that can be."""
    last = fault.last
    if last is None and other is not None:
        with closing(other):
            found = _fault_at(other, partition, first, end)
        last = None if found is None else found.last
    return last if last is not None and first <= last < end else None


def _last(prober: Prober, partition: int, damaged: int, end: int) -> int:
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


def _fault_at(prober: Prober, partition: int, offset: int, end: int) -> CorruptBatch | None:
    """Why the record at `offset` cannot be read; None when it can, or when the partition ends there."""
    if offset >= end:
        return None
    try:
        prober.read(partition, offset)
    except CorruptBatch as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last record of a partition that was handed out: its offset, leader epoch and value's SHA-256."""

    offset: int
    epoch: int
    digest: bytes


def last_of(piece: Fetched) -> LastRead:
    """The last record of a piece."""
    return LastRead(piece.offsets[-1], piece.epoch, digest_of(piece.values[-1]))


def digest_of(value: bytes | None) -> bytes:
    """SHA-256 of a value, of nothing for null."""
    return sha256(value or b"").digest()


def follows(last: LastRead | None, piece: Fetched) -> bool:
    """Whether a piece is known to belong to the log that was read: no new leader has written in between."""
    return last is None or last.epoch < 0 or piece.epoch < 0 or last.epoch == piece.epoch


def look_back(
    prober: Prober, address: Address, positions: Mapping[int, int], known: Mapping[int, str]
) -> dict[int, LastRead]:
    """The last records before some positions, as if they had been handed out here: with their epochs.

    `known`: sha256 (hex) of each. Raises LogMismatch as `check_last_record` does.
    """
    last = {}
    for partition, digest in known.items():
        before = LastRead(positions[partition] - 1, -1, bytes.fromhex(digest))
        found = check_last_record(prober, address, partition, before)
        if found is not None:
            last[partition] = found
    return last


def check_last_record(prober: Prober, address: Address, partition: int, last: LastRead) -> LastRead | None:
    """Read the last record again; raises LogMismatch when it is another one, or gone from between others.

    Comes back with it and its epoch now. None: it expired, or is damaged now; it cannot be compared and says
    nothing.
    """
    try:
        found = prober.read(partition, last.offset)
    except (OutOfRange, CorruptBatch):
        return None  # too old: expired. Too new: then the position is past the end, and reading says so
    if found is None or found.offsets[0] != last.offset or digest_of(found.values[0]) != last.digest:
        raise LogMismatch(
            f"{address}, partition {partition}: offset {last.offset} holds another record than the one that "
            "was read there: a leader without the newest records was elected (unclean election), and the "
            "log went another way from there on"
        )
    return replace(last, epoch=found.epoch)
