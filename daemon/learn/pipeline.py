"""The reader thread: poll, decode and assemble ahead of the kernel, into a bounded queue.

The kernel releases the interpreter lock, so that this work overlaps it. Nothing here changes the state or the
position: a batch that was read ahead and never applied is read again after a restart.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from daemon.learn.cadence import Cadence
from learners.batch import TripletBatch
from streams.decode import DecodedBatch
from streams.errors import StreamUnavailable
from streams.source import RecordBatch, Source

QUEUED_BATCHES = 3
POLL_SECONDS = 0.2
POLL_BYTES = 16 << 20  # read-ahead memory stays near QUEUED_BATCHES times this, however long the records are
RETRY_SECONDS = 0.5
FIRST_POLL = 64  # records; the lengths of the first records are not known, so begin small


@dataclass(frozen=True, slots=True)
class Ready:
    """One decoded batch of one partition; `triplets` is None when every record of it is poison."""

    polled: RecordBatch
    decoded: DecodedBatch
    triplets: TripletBatch | None
    poll_seconds: float
    decode_seconds: float

    @property
    def records(self) -> int:
        """Records of the batch, poison included."""
        return len(self.polled.offsets)


class Prepare(Protocol):
    """Decode and assemble one polled batch."""

    def __call__(self, batch: RecordBatch) -> tuple[DecodedBatch, TripletBatch | None]: ...


class PollSize:
    """How many records to ask for: bounded by the setting, by bytes, and by the next exact event count."""

    def __init__(self, most: int, cadence: Cadence, records: int) -> None:
        self._most = most
        self._cadence = cadence
        self._polled = records
        self._by_bytes = min(most, FIRST_POLL)

    def next(self) -> int:
        """Records the next poll may return."""
        return self._cadence.poll_limit(min(self._most, self._by_bytes), self._polled)

    def polled(self, batch: RecordBatch) -> None:
        """Learn from what a poll returned."""
        count = len(batch.values)
        self._polled += count
        mean_bytes = max(1, sum(len(value) for value in batch.values if value is not None) // max(1, count))
        self._by_bytes = max(1, min(self._by_bytes * 4, POLL_BYTES // mean_bytes, self._most))


class Reader:
    """Reads ahead in a thread of its own. `get` hands over batches in the order they must be applied."""

    def __init__(
        self,
        open_source: Callable[[], Source],
        positions: Mapping[int, int],
        prepare: Prepare,
        size: PollSize,
        clock: Callable[[], float],
    ) -> None:
        self._open_source = open_source
        self._positions = dict(positions)
        self._prepare = prepare
        self._size = size
        self._clock = clock
        self._queue: queue.Queue[Ready] = queue.Queue(QUEUED_BATCHES)
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self.trouble: StreamUnavailable | None = None  # why nothing comes; the reader keeps trying
        self._beat = clock()
        self._thread = threading.Thread(target=self._run, name="tripletd-reader", daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get(self, timeout_s: float) -> Ready | None:
        """The next batch, or None when nothing came within `timeout_s`. Raises what stopped the thread."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
            return None

    def silent_seconds(self) -> float:
        """Seconds since the thread last moved; a slow broker keeps it moving, a stuck poll does not."""
        return self._clock() - self._beat

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop reading and drop what was read ahead. A thread stuck in a poll is left behind."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            source = self._open_source()
            try:
                source.assign(self._positions)
                while not self._closing.is_set():
                    self._read_one(source)
            finally:
                source.close()
        except BaseException as error:  # noqa: BLE001 - carried to the main loop, which raises it
            self._error = error

    def _read_one(self, source: Source) -> None:
        began = self._beat = self._clock()
        try:
            batch = source.poll(self._size.next(), POLL_SECONDS)
        except StreamUnavailable as error:
            self.trouble = error
            self._closing.wait(RETRY_SECONDS)
            return
        self.trouble = None
        if batch is None:
            return
        polled = self._beat = self._clock()
        self._size.polled(batch)
        decoded, triplets = self._prepare(batch)
        self._offer(Ready(batch, decoded, triplets, polled - began, self._clock() - polled))

    def _offer(self, ready: Ready) -> None:
        while not self._closing.is_set():
            self._beat = self._clock()
            try:
                self._queue.put(ready, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return
