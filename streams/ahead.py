"""How far it really is from a position to the end: offsets that hold no record are not ahead of anybody."""

from __future__ import annotations

from collections.abc import Mapping

from streams.placing import Bounds
from streams.source import Source

LOOK_SECONDS = 0.3
MOST_WITHOUT_RECORDS = 10_000
"""A longer way to the end than this holds records: it is not looked at."""


def past_gaps(source: Source, positions: Mapping[int, int], bounds: Bounds) -> dict[int, int]:
    """The positions moved to the next record, or to the end where none is left.

    Transaction markers, aborted transactions and compaction leave offsets without a record, so that a reader
    that has read everything need not stand at the end. Assigns the source, which is nobody else's.
    Raises StreamUnavailable.
    """
    moved = {}
    for partition, (earliest, end) in bounds.items():
        position = max(earliest, positions.get(partition, earliest))
        moved[partition] = position
        if 0 < end - position <= MOST_WITHOUT_RECORDS:
            source.assign({partition: position})
            batch = source.poll(1, LOOK_SECONDS)
            moved[partition] = batch.offsets[0] if batch is not None else source.reached()[partition]
    return moved
