"""The records of recorded runs, in any interleaving of partitions, without a seek per run.

A schedule over several partitions may hold thousands of runs of a few records. Each partition has a bounded
buffer of records read ahead, so the source seeks once per buffer.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from daemon.exits import EX_DATAERR, UserError
from streams.errors import OffsetAhead, OffsetExpired, StreamUnavailable
from streams.source import RecordBatch, Source

READ_RECORDS = 4096
READ_SECONDS = 10.0
FIRST_READ = 64  # records; how long they are is not known, so begin small
BUFFER_BYTES = 128 << 20  # of all partitions together
ATTEMPTS = 5
PAUSE_SECONDS = 2.0


@dataclass(slots=True)
class _Ahead:
    """Records of one partition that were read but not asked for yet, and the offset to ask for next."""

    batch: RecordBatch | None
    at: int
    next_offset: int


class Runs:
    """Reads runs of partitions from one source, whose assignment it owns."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._share = BUFFER_BYTES // max(1, len(source.bounds()))
        self._ahead: dict[int, _Ahead] = {}
        self._chunk: dict[int, int] = {}
        self._stands: tuple[int, int] | None = None  # (partition, offset) the source would read next

    def read(self, partition: int, start: int, stop: int) -> Iterator[RecordBatch]:
        """The records with offsets in [start, stop), in order, in batches.

        Raises UserError when the log has expired, ends before `stop`, or cannot be read there.
        """
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.next_offset != start:
            ahead = self._ahead[partition] = _Ahead(None, 0, start)
        while True:
            if ahead.batch is not None:
                end = bisect_left(ahead.batch.offsets, stop)
                if end > ahead.at:
                    taken = cut(ahead.batch, ahead.at, end)
                    ahead.at, ahead.next_offset = end, taken.offsets[-1] + 1
                    yield taken
                if end < len(ahead.batch):
                    break  # what is left lies behind the run
            if ahead.next_offset >= stop:
                break
            ahead.batch, ahead.at = self._more(partition, ahead.next_offset, stop), 0
            if ahead.batch is None:
                break
        ahead.next_offset = stop

    def _more(self, partition: int, offset: int, stop: int) -> RecordBatch | None:
        """The next records from an offset on; None when the log has none below `stop`."""
        for attempt in range(ATTEMPTS):
            try:
                return self._poll(partition, offset, stop)
            except StreamUnavailable:
                self._stands = None
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(PAUSE_SECONDS)
            except (OffsetExpired, OffsetAhead) as error:
                raise _lost(partition, offset, stop, str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    def _poll(self, partition: int, offset: int, stop: int) -> RecordBatch | None:
        if self._stands != (partition, offset):
            self._source.assign({partition: offset})
        self._stands = None
        batch = self._source.poll(self._chunk.get(partition, FIRST_READ), READ_SECONDS)
        if batch is None:
            if self._source.reached()[partition] >= stop:
                return None
            raise _lost(partition, offset, stop, "it ends before that")
        if batch.damaged is not None:
            raise _lost(partition, offset, stop, batch.damaged)
        self._stands = partition, batch.offsets[-1] + 1
        size = sum(len(value) for value in batch.values if value is not None) // len(batch) + 1
        self._chunk[partition] = max(1, min(READ_RECORDS, self._share // size))
        return batch


def cut(batch: RecordBatch, start: int, stop: int) -> RecordBatch:
    """Entries start..stop-1 of a batch; the batch itself when that is all of it."""
    if start == 0 and stop == len(batch):
        return batch
    fields = ("offsets", "timestamps", "values", "keys", "headers")
    return replace(batch, **{name: getattr(batch, name)[start:stop] for name in fields})


def _lost(partition: int, offset: int, stop: int, why: str) -> UserError:
    return UserError(
        f"the log no longer holds offsets {offset:,} up to {stop:,} of partition {partition}: {why}",
        "replay from a later version; or this is not the log the version was learned from",
        EX_DATAERR,
    )
