"""The decoder in plain Python, one record after another: the specification of `streams.decode`.

It says which records are events, which are poison and why. The compiled decoder gives the same on every input
and asks this one about every record that it does not know to be an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from streams import poison
from streams.catalog import Catalog
from streams.columns import Parts, build_role
from streams.deadletter import DeadLetter
from streams.decoded import DecodedBatch
from streams.ids import UInt64Array, hash_ids
from streams.poison import Poison
from streams.resolve import Resolver
from streams.source import RecordBatch
from streams.space import SpaceSpec
from streams.wire import MAX_KEY_BYTES, MAX_VALUE_BYTES, read_event

ROLES = ("q", "c", "s")
"""Query, clicked, skipped: the order of everything that is kept per role."""


@dataclass(frozen=True, slots=True)
class PlainEvent:
    """One event: its checked fields as unpacked, and per role the catalog row and the inline vectors."""

    fields: dict[str, Any]
    rows: tuple[int, ...]
    parts: tuple[Parts | None, ...]

    def repacked(self) -> bytes:
        """The same event as whoever writes canonically would have sent it; numbers in vectors unchanged."""
        objects = {name: _as_maps(self.fields[name]) for name in ROLES}
        packed: bytes = msgpack.packb({**self.fields, **objects})
        return packed


class PlainDecoder:
    """Decodes batches of one topic into one space; the same promises as `streams.decode.BatchDecoder`."""

    def __init__(
        self,
        space: SpaceSpec,
        catalog: Catalog | None,
        topic: str,
        max_record_bytes: int = MAX_VALUE_BYTES,
        keyed: bool = False,
    ) -> None:
        self._resolver = Resolver(space, catalog)
        self._topic = topic
        self._max_bytes = max_record_bytes
        self._keyed = keyed

    def decode(self, batch: RecordBatch) -> DecodedBatch:
        """Decode every record of a batch that has at least one."""
        offsets: list[int] = []
        events: list[PlainEvent] = []
        refused: list[DeadLetter] = []
        for place, offset in enumerate(batch.offsets):
            found = self.judge(batch, place)
            if isinstance(found, DeadLetter):
                refused.append(found)
            else:
                offsets.append(offset)
                events.append(found)
        space = self._resolver.space
        query, clicked, skipped = (
            build_role(space, [one.rows[role] for one in events], [one.parts[role] for one in events])
            for role in range(len(ROLES))
        )
        return DecodedBatch(
            batch.partition,
            np.array(offsets, np.int64),
            np.array([one.fields["ts"] for one in events], np.int64),
            np.array([one.fields.get("w", 1.0) for one in events], np.float32),
            hash_ids([one.fields["id"] for one in events]),
            _sources(events),
            query,
            clicked,
            skipped,
            refused,
            batch.offsets[-1] + 1,
            sha256(batch.values[-1] or b"").digest(),
            _keys(events) if self._keyed else None,
        )

    def judge(self, batch: RecordBatch, place: int) -> PlainEvent | DeadLetter:
        """What the record at `place` of the batch is: an event, or a dead letter with the reason."""
        value = batch.values[place]
        try:
            if batch.damaged is not None:
                raise Poison(poison.CORRUPT_BATCH, batch.damaged)
            return self._read(value)
        except Poison as error:
            where = (self._topic, batch.partition, batch.offsets[place])
            return DeadLetter(*where, error.reason, error.detail, value)

    def _read(self, value: bytes | None) -> PlainEvent:
        fields = read_event(value, self._max_bytes)
        if "sp" in fields:
            self._resolver.check_space(fields["sp"])
        rows, parts = zip(*(self._resolver.locate(fields[name], name) for name in ROLES), strict=True)
        return PlainEvent(fields, rows, parts)


def _sources(events: Sequence[PlainEvent]) -> UInt64Array:
    """Hashes of where events came from, 0 where they do not say."""
    named = [place for place, one in enumerate(events) if "src" in one.fields]
    sources = np.zeros(len(events), np.uint64)
    sources[named] = hash_ids([events[place].fields["src"] for place in named])
    return sources


def _keys(events: Sequence[PlainEvent]) -> npt.NDArray[np.bytes_]:
    """The keys of events, b"" where they have none."""
    return np.array([one.fields.get("key", "").encode() for one in events], f"S{MAX_KEY_BYTES}")


def _as_maps(raw: Any) -> Any:
    """Maps as dicts again: `wire.unpack` gives them as tuples of pairs."""
    if type(raw) is tuple:
        return {key: _as_maps(value) for key, value in raw}
    return raw
