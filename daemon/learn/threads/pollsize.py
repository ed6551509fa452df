"""How many records the next poll asks for. Batch sizes change speed and memory, never a bit of the result."""

from __future__ import annotations

from daemon.learn.writing.cadence import Cadence
from streams.source import RecordBatch

POLL_BYTES = 16 << 20  # read-ahead memory stays near the queued batches times this, however long the records
FIRST_POLL = 64  # records; neither their lengths nor the learner's speed are known, so begin small
BATCH_SECONDS = 0.25  # a stop waits for the batch in hand; larger batches are no faster


class PollSize:
    """Bounded by the setting, by bytes, by the time a batch takes to learn, by the next exact event count.

    Used by the reader, but for `learned`, which the loop calls: it writes one number.
    """

    def __init__(self, most: int, cadence: Cadence, records: int) -> None:
        self._most = most
        self._cadence = cadence
        self._polled = records
        self._by_bytes = self._by_time = min(most, FIRST_POLL)

    def next(self) -> int:
        """Records the next poll may return."""
        return self._cadence.poll_limit(min(self._most, self._by_bytes, self._by_time), self._polled)

    def polled(self, batch: RecordBatch) -> None:
        """Learn from what a poll returned."""
        count = len(batch.values)
        self._polled += count
        mean_bytes = max(1, sum(len(value) for value in batch.values if value is not None) // max(1, count))
        self._by_bytes = max(1, min(self._by_bytes * 4, POLL_BYTES // mean_bytes, self._most))

    def learned(self, records: int, seconds: float) -> None:
        """Learn from how long the loop took for a batch."""
        within = int(records * BATCH_SECONDS / max(seconds, 1e-9))
        self._by_time = max(1, min(within, self._by_time * 4, self._most))
