"""Batches of records to flat arrays: the decoder in plain Python, and the fast one in compiled code.

`PlainDecoder` is the specification: it says which records are events, which are poison and why.
`BatchDecoder` gives the same on every input. It reads the records once for what is where, then copies
every vector to its place in its column (`streams.compiled`). A record that is not an ordinary event goes
to the plain decoder, which decides about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import msgpack
import numpy as np
import numpy.typing as npt

from streams import poison
from streams.catalog import Catalog
from streams.event import Float32Array, Int64Array, SpaceSpec
from streams.ids import UInt64Array, hash_ids
from streams.limits import MAX_KEY_BYTES, MAX_VALUE_BYTES
from streams.poison import DeadLetter, Poison
from streams.resolve import Parts, Resolver, RoleColumns, build_role
from streams.source import RecordBatch
from streams.wire import read_event


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The events of one polled batch as columns of length n, and what was refused.

    `offsets` int64 [n]; `timestamps` int64 [n], the events' own `ts` in ms; `weights` float32 [n];
    `ids` uint64 [n], xxh64 (seed 0) of each event id's UTF-8 bytes; `sources` uint64 [n], the same of each
    `src`, 0 without one; `keys` bytes of 64 [n], the UTF-8 of each `key`, b"" without one, or None from a
    decoder that leaves them out. `poison` holds the refused records, in order; `next_offset` is one past the
    last record polled, refused ones included; `last_digest` is the SHA-256 of that record's value (of nothing
    for null).
    """

    partition: int
    offsets: Int64Array
    timestamps: Int64Array
    weights: Float32Array
    ids: UInt64Array
    sources: UInt64Array
    query: RoleColumns
    clicked: RoleColumns
    skipped: RoleColumns
    poison: list[DeadLetter]
    next_offset: int
    last_digest: bytes
    keys: npt.NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self.ids)


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


__all__ = ["BatchDecoder", "DecodedBatch"]

NO_LIMIT = np.iinfo(np.int64).max


class BatchDecoder:
    """Decodes batches of one topic into one space; keeps nothing from batch to batch.

    Structure, sizes, space and ids are checked here and refused as poison; that the numbers inside
    vectors are finite and sparse indices ascend and lie within the view is left to the learner, which
    reads every number anyway. keyed: whether the events' keys are wanted. Making one imports numba.
    """

    def __init__(
        self,
        space: SpaceSpec,
        catalog: Catalog | None,
        topic: str,
        max_record_bytes: int = MAX_VALUE_BYTES,
        keyed: bool = False,
    ) -> None:
        from streams.compiled.reading import RecordScanner  # brings numba in: only where a decoder is made

        self._plain = PlainDecoder(space, catalog, topic, max_record_bytes)
        self._reading = RecordScanner(space, catalog, keyed)
        self._max_bytes = max_record_bytes

    def decode(self, batch: RecordBatch) -> DecodedBatch:
        """Decode every record of a batch that has at least one."""
        count, refused = len(batch.values), list[DeadLetter]()
        found = self._reading.find(_present(batch.values), self._max_bytes)
        if len(found) < count:
            values, refused = self._judge_others(batch, found.records)
            if len(found) + len(refused) < count:
                found = self._reading.find(values, NO_LIMIT)
            assert len(found) + len(refused) == count, "what was written anew is an ordinary event"
        offsets = np.array(batch.offsets, np.int64)
        return DecodedBatch(
            batch.partition,
            offsets[found.records] if refused else offsets,
            found.timestamps,
            found.weights,
            found.ids,
            found.sources,
            *self._reading.roles(found),
            refused,
            batch.offsets[-1] + 1,
            sha256(batch.values[-1] or b"").digest(),
            found.keys,
        )

    def _judge_others(
        self, batch: RecordBatch, found: Int64Array
    ) -> tuple[Sequence[bytes], list[DeadLetter]]:
        """The batch's values without poison, every event in its ordinary form; and the poison."""
        values = list(_present(batch.values))
        refused = []
        for place in np.setdiff1d(np.arange(len(values)), found, assume_unique=True).tolist():
            judged = self._plain.judge(batch, place)
            if isinstance(judged, DeadLetter):
                refused.append(judged)
                values[place] = b""
            else:
                values[place] = judged.repacked()
        return values, refused


def _present(values: Sequence[bytes | None]) -> Sequence[bytes]:
    """No value and no bytes are alike to the compiled code: neither is an event."""
    return [value or b"" for value in values] if None in values else cast(Sequence[bytes], values)
