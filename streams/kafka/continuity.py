"""Whether a log is still the one that was read: a new leader may have other records in place of some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from streams.address import Address
from streams.errors import LogMismatch
from streams.kafka.clients.protocol import CorruptBatch, Fetched, OutOfRange
from streams.kafka.damage import Prober


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
