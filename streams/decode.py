"""The fast decoder: a batch of records to flat arrays, in compiled code.

The records are read once for what is where, then every vector is copied to its place in its column
(`streams.compiled`). A record that is not an ordinary event is judged by the plain decoder: it is poison, for
the reason given there, or legal in a form that nobody writes; then it is written anew in the ordinary form
and read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import numpy as np

from streams.catalog import Catalog
from streams.deadletter import DeadLetter
from streams.decoded import DecodedBatch
from streams.plain import PlainDecoder
from streams.source import RecordBatch
from streams.space import SpaceSpec
from streams.vectors import Int64Array
from streams.wire import MAX_VALUE_BYTES

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
        from streams.compiled.reading import Reading  # brings numba in: only where a decoder is made

        self._plain = PlainDecoder(space, catalog, topic, max_record_bytes)
        self._reading = Reading(space, catalog, keyed)
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
