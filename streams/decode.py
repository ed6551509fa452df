"""The fast decoder: a batch of records to flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from streams.catalog import Catalog
from streams.columns import Parts, RoleColumns, build_role
from streams.deadletter import DeadLetter
from streams.poison import Poison
from streams.resolve import Resolver
from streams.source import RecordBatch
from streams.space import SpaceSpec
from streams.vectors import Float32Array, Int64Array
from streams.wire import MAX_VALUE_BYTES, read_event, read_object

_Role = tuple[int, Parts | None]


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The events of one polled batch as columns of length n, and what was refused.

    `offsets` int64 [n]; `timestamps` int64 [n], the events' own `ts` in ms; `weights` float32 [n].
    `poison` holds the refused records, in order; `next_offset` is one past the last record polled,
    refused ones included; `last_digest` is the SHA-256 of that record's value (of nothing for null).
    """

    partition: int
    offsets: Int64Array
    timestamps: Int64Array
    weights: Float32Array
    event_ids: list[str]
    query: RoleColumns
    clicked: RoleColumns
    skipped: RoleColumns
    poison: list[DeadLetter]
    next_offset: int
    last_digest: bytes

    def __len__(self) -> int:
        return len(self.event_ids)


class BatchDecoder:
    """Decodes batches of one topic into one space; keeps nothing from batch to batch.

    Structure, sizes, space and ids are checked here and refused as poison; that the numbers inside
    vectors are finite and sparse indices ascend and lie within the view is left to the learner, which
    reads every number anyway.
    """

    def __init__(
        self, space: SpaceSpec, catalog: Catalog | None, topic: str, max_record_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        self._resolver = Resolver(space, catalog)
        self._topic = topic
        self._max_bytes = max_record_bytes

    def decode(self, batch: RecordBatch) -> DecodedBatch:
        """Decode every record of a batch that has at least one."""
        offsets: list[int] = []
        heads: list[tuple[str, int, float]] = []
        roles: list[tuple[_Role, _Role, _Role]] = []
        refused: list[DeadLetter] = []
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            try:
                head, objects = self._decode_one(value)
            except Poison as error:
                place = (self._topic, batch.partition, offset)
                refused.append(DeadLetter(*place, error.reason, error.detail, value))
                continue
            offsets.append(offset)
            heads.append(head)
            roles.append(objects)
        return DecodedBatch(
            batch.partition,
            np.array(offsets, np.int64),
            np.array([head[1] for head in heads], np.int64),
            np.array([head[2] for head in heads], np.float32),
            [head[0] for head in heads],
            self._columns([one[0] for one in roles]),
            self._columns([one[1] for one in roles]),
            self._columns([one[2] for one in roles]),
            refused,
            batch.offsets[-1] + 1,
            sha256(batch.values[-1] or b"").digest(),
        )

    def _decode_one(self, value: bytes | None) -> tuple[tuple[str, int, float], tuple[_Role, _Role, _Role]]:
        """One event's (id, ts, weight) and its three objects; raises Poison."""
        fields = read_event(value, self._max_bytes)
        resolve = self._resolver.resolve
        if "sp" in fields:
            self._resolver.check_space(fields["sp"])
        objects = (
            resolve(*read_object(fields["q"], "q"), "q"),
            resolve(*read_object(fields["c"], "c"), "c"),
            resolve(*read_object(fields["s"], "s"), "s"),
        )
        return (fields["id"], fields["ts"], fields.get("w", 1.0)), objects

    def _columns(self, role: list[_Role]) -> RoleColumns:
        return build_role(self._resolver.space, [row for row, _ in role], [parts for _, parts in role])
