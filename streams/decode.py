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
from streams.catalog import Catalog, RawParts, Resolver, RoleColumns, build_role
from streams.event import PAIR_UNKNOWN, Float32Array, Int64Array, SpaceSpec
from streams.ids import UInt64Array, hash_ids
from streams.limits import MAX_KEY_BYTES, MAX_VALUE_BYTES
from streams.poison import DeadLetter, Poison
from streams.queries import VectorMaps, in_views
from streams.source import RecordBatch
from streams.wire import read_event, read_object


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The events of one polled batch as columns of length n, and what was refused.

    `offsets` int64 [n]; `timestamps` int64 [n], the events' own `ts` in ms, none later than its record's
    arrival where times are bounded (`Arrivals`); `weights` float32 [n];
    `ids` uint64 [n], xxh64 (seed 0) of each event id's UTF-8 bytes; `sources` uint64 [n], the same of each
    `src`, 0 without one; `pairs` uint8 [n], where each skipped object stood, one of the `PAIR_` constants;
    `keys` bytes of 64 [n], the UTF-8 of each `key`, b"" without one, or None from a decoder that leaves them
    out. `poison` holds the refused records, in order; `next_offset` is one past the last record polled,
    refused ones included; `last_digest` is the SHA-256 of that record's value (of nothing for null).
    """

    partition: int
    offsets: Int64Array
    timestamps: Int64Array
    weights: Float32Array
    ids: UInt64Array
    sources: UInt64Array
    pairs: npt.NDArray[np.uint8]
    query: RoleColumns
    clicked: RoleColumns
    skipped: RoleColumns
    poison: list[DeadLetter]
    next_offset: int
    last_digest: bytes
    keys: npt.NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self.ids)


FIRST_BELIEVED_MS = 1_293_840_000_000
"""The year 2011, of Kafka's first release: an earlier arrival was stamped by a producer without a clock."""
LAST_BELIEVED_MS = 4_102_444_800_000
"""The year 2100: what claims to have arrived later was stamped in microseconds, or by a broken clock."""


class Arrivals:
    """When the records of a batch came to the log, as the log recorded it: never by a clock, so that a reader
    in a year decides as the first reader did.

    A record without a time, or with one before the year 2011 or past 2100, says nothing of its arrival.
    """

    def __init__(self, batch: RecordBatch) -> None:
        times = np.array(batch.timestamps, np.int64)
        self._said = (times >= FIRST_BELIEVED_MS) & (times <= LAST_BELIEVED_MS)
        self._ms = np.where(self._said, times, LAST_BELIEVED_MS)

    def too_late(self, places: Int64Array, ts: Int64Array, max_future_ms: int) -> npt.NDArray[np.bool_]:
        """Which event times lie more than `max_future_ms` past the arrival of the records at `places`."""
        late: npt.NDArray[np.bool_] = ts > self._ms[places] + max_future_ms
        return late

    def believed(self, places: Int64Array, ts: Int64Array) -> Int64Array:
        """The event times, none later than its record's arrival where that is known."""
        times: Int64Array = np.where(self._said[places], np.minimum(ts, self._ms[places]), ts)
        return times


ROLES = ("q", "c", "s")
"""Query, clicked, skipped: the order of everything that is kept per role."""


@dataclass(frozen=True, slots=True)
class PlainEvent:
    """One event: its checked fields as unpacked, and per role the catalog row and the inline vectors."""

    fields: dict[str, Any]
    rows: tuple[int, ...]
    parts: tuple[RawParts | None, ...]

    def repacked(self) -> bytes:
        """The same event in the canonical encoding; numbers in vectors unchanged."""
        objects = {name: _as_maps(self.fields[name]) for name in ROLES}
        packed: bytes = msgpack.packb({**self.fields, **objects})
        return packed


class PlainDecoder:
    """Decodes batches of one topic into one space; the same promises as `BatchDecoder`."""

    def __init__(
        self,
        space: SpaceSpec,
        catalog: Catalog | None,
        topic: str,
        max_record_bytes: int = MAX_VALUE_BYTES,
        keyed: bool = False,
        *,
        max_future_ms: int | None = None,
    ) -> None:
        self._resolver = Resolver(space, catalog)
        self._topic = topic
        self._max_bytes = max_record_bytes
        self._keyed = keyed
        self.max_future_ms = max_future_ms
        self.queries: VectorMaps = {}
        """What takes queries of other models to the space; an event with one is decoded in plain Python."""

    def decode(self, batch: RecordBatch) -> DecodedBatch:
        """Decode every record of a batch that has at least one."""
        places: list[int] = []
        events: list[PlainEvent] = []
        refused: list[DeadLetter] = []
        for place in range(len(batch)):
            found = self.judge(batch, place)
            if isinstance(found, DeadLetter):
                refused.append(found)
            else:
                places.append(place)
                events.append(found)
        times = np.array([one.fields["ts"] for one in events], np.int64)
        if self.max_future_ms is not None:
            times = Arrivals(batch).believed(np.array(places, np.int64), times)
        space = self._resolver.space
        query, clicked, skipped = (
            build_role(space, [one.rows[role] for one in events], [one.parts[role] for one in events])
            for role in range(len(ROLES))
        )
        return DecodedBatch(
            batch.partition,
            np.array([batch.offsets[place] for place in places], np.int64),
            times,
            np.array([one.fields.get("w", 1.0) for one in events], np.float32),
            hash_ids([one.fields["id"] for one in events]),
            _sources(events),
            np.array([one.fields.get("pair", PAIR_UNKNOWN) for one in events], np.uint8),
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
            poison.refuse_unread(batch)
            event = self._read(value)
            if self.max_future_ms is not None:
                at, times = np.array([place], np.int64), np.array([event.fields["ts"]], np.int64)
                if Arrivals(batch).too_late(at, times, self.max_future_ms).any():
                    raise Poison(poison.IN_THE_FUTURE, far_ahead(self.max_future_ms))
            return event
        except Poison as error:
            where = (self._topic, batch.partition, batch.offsets[place])
            return DeadLetter(*where, error.reason, error.detail, batch.kept if value is None else value)

    def _read(self, value: bytes | None) -> PlainEvent:
        fields = read_event(value, self._max_bytes)
        if "sp" in fields:
            self._resolver.check_space(fields["sp"])
        if self.queries:
            fields["q"] = self._in_this_space(fields["q"])
        rows, parts = zip(*(self._resolver.locate(fields[name], name) for name in ROLES), strict=True)
        return PlainEvent(fields, rows, parts)

    def _in_this_space(self, raw: Any) -> Any:
        """A query as unpacked, its vectors those of the space's views; the same where they are."""
        object_id, features = read_object(raw, "q")
        found = None if features is None else in_views(features, self._resolver.space, self.queries, "q")
        if found is None or found is features:
            return raw
        named = () if object_id is None else (("id", object_id),)
        return (*named, ("views", tuple(found.items())))


def far_ahead(max_future_ms: int) -> str:
    """The detail of a refusal; it holds no value of the event."""
    return (
        f"ts is more than {max_future_ms / 1000:,.0f} s past the record's arrival: "
        "microseconds for milliseconds, or a clock that is wrong"
    )


def _sources(events: Sequence[PlainEvent]) -> UInt64Array:
    """Hashes of where events came from, 0 where they do not say."""
    named = [place for place, one in enumerate(events) if "src" in one.fields]
    sources = np.zeros(len(events), np.uint64)
    sources[named] = hash_ids([events[place].fields["src"] for place in named])
    return sources


def _keys(events: Sequence[PlainEvent]) -> npt.NDArray[np.bytes_]:
    return np.array([one.fields.get("key", "").encode() for one in events], f"S{MAX_KEY_BYTES}")


def _as_maps(raw: Any) -> Any:
    """Maps as dicts again: `wire.unpack` gives them as tuples of pairs."""
    return {key: _as_maps(value) for key, value in raw} if type(raw) is tuple else raw


__all__ = ["BatchDecoder", "DecodedBatch"]

NO_LIMIT = np.iinfo(np.int64).max


class BatchDecoder(PlainDecoder):
    """Decodes batches of one topic into one space; keeps nothing from batch to batch.

    Structure, sizes, space and ids are checked here and refused as poison; that the numbers inside
    vectors are finite and sparse indices ascend and lie within the view is left to the learner, which
    reads every number anyway. keyed: whether the events' keys are wanted. max_future_ms: how far an event's
    time may lie past its record's arrival; None: as far as the format goes. Making one imports numba.
    """

    def __init__(
        self,
        space: SpaceSpec,
        catalog: Catalog | None,
        topic: str,
        max_record_bytes: int = MAX_VALUE_BYTES,
        keyed: bool = False,
        *,
        max_future_ms: int | None = None,
    ) -> None:
        from streams.compiled.reading import RecordScanner  # brings numba in: only where a decoder is made

        super().__init__(space, catalog, topic, max_record_bytes, keyed, max_future_ms=max_future_ms)
        self._reading = RecordScanner(space, catalog, keyed)

    def warm_up(self) -> None:
        """Do now what the first batch would otherwise wait for: the compiled code is loaded, or made."""
        self._reading.roles(self._reading.find([b""], self._max_bytes))

    def decode(self, batch: RecordBatch) -> DecodedBatch:
        """Decode every record of a batch that has at least one."""
        count, refused = len(batch.values), list[DeadLetter]()
        values = _present(batch.values)
        found = self._reading.find(values, self._max_bytes)
        if len(found) < count:
            values, refused = self._judge_others(batch, found.records)
            if len(found) + len(refused) < count:
                found = self._reading.find(values, NO_LIMIT)
            assert len(found) + len(refused) == count, "a re-encoded event is an ordinary one"
        times = found.timestamps
        if self.max_future_ms is not None:
            arrivals = Arrivals(batch)
            late = found.records[arrivals.too_late(found.records, times, self.max_future_ms)]
            if len(late):
                refused += (cast(DeadLetter, self.judge(batch, place)) for place in late.tolist())
                refused.sort(key=lambda letter: letter.offset)
                too_late = set(late.tolist())
                values = [b"" if place in too_late else value for place, value in enumerate(values)]
                found = self._reading.find(values, NO_LIMIT)
            times = arrivals.believed(found.records, found.timestamps)
        offsets = np.array(batch.offsets, np.int64)
        return DecodedBatch(
            batch.partition,
            offsets[found.records] if refused else offsets,
            times,
            found.weights,
            found.ids,
            found.sources,
            found.pairs,
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
            judged = self.judge(batch, place)
            if isinstance(judged, DeadLetter):
                refused.append(judged)
                values[place] = b""
            else:
                values[place] = judged.repacked()
        return values, refused


def _present(values: Sequence[bytes | None]) -> Sequence[bytes]:
    """No value and no bytes are alike to the compiled code: neither is an event."""
    return [value or b"" for value in values] if None in values else cast(Sequence[bytes], values)
