"""The fast decoder: a batch of records to flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from streams.catalog import Catalog
from streams.columns import Parts, RoleColumns, build_role
from streams.deadletter import DeadLetter
from streams.poison import Poison
from streams.resolve import Resolver
from streams.source import RecordBatch
from streams.space import SpaceSpec
from streams.vectors import Float32Array, Int64Array
from streams.wire import MAX_VALUE_BYTES, read_event


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
        events: list[dict[str, Any]] = []
        rows: list[int] = []  # three per event: query, clicked, skipped
        parts: list[Parts | None] = []  # likewise
        refused: list[DeadLetter] = []
        locate = self._resolver.locate
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            try:
                fields = read_event(value, self._max_bytes)
                if "sp" in fields:
                    self._resolver.check_space(fields["sp"])
                query_row, query = locate(fields["q"], "q")
                clicked_row, clicked = locate(fields["c"], "c")
                skipped_row, skipped = locate(fields["s"], "s")
            except Poison as error:
                place = (self._topic, batch.partition, offset)
                refused.append(DeadLetter(*place, error.reason, error.detail, value))
                continue
            offsets.append(offset)
            events.append(fields)
            rows += (query_row, clicked_row, skipped_row)
            parts += (query, clicked, skipped)
        space = self._resolver.space
        return DecodedBatch(
            batch.partition,
            np.array(offsets, np.int64),
            np.array([fields["ts"] for fields in events], np.int64),
            np.array([fields.get("w", 1.0) for fields in events], np.float32),
            [fields["id"] for fields in events],
            build_role(space, rows[0::3], parts[0::3]),
            build_role(space, rows[1::3], parts[1::3]),
            build_role(space, rows[2::3], parts[2::3]),
            refused,
            batch.offsets[-1] + 1,
            sha256(batch.values[-1] or b"").digest(),
        )
