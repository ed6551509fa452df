"""Events that crash tests feed, poison among them, and a feeder that no broker's death stops."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np

from streams.codec import encode_event
from streams.errors import StreamUnavailable
from streams.event import Event, ObjectRef, SparseVector
from streams.open import open_sink
from streams.source import OutRecord, Sink
from tests.harness.kill.site import DIM, Site

POISON_EVERY = 23
NOT_AN_EVENT = b"\xc1 not an event"
MARK = np.float32(0.7654321)
NAN = np.uint32(0x7FC0DEAD).view(np.float32)


def event_bytes(
    rng: np.random.Generator, number: int, sparse: bool, poison: bool = True, key: str | None = None
) -> bytes:
    """One event; every `POISON_EVERY`-th is refused, by the decoder or by the learner's step in turn."""
    if poison and number % (2 * POISON_EVERY) == 1:
        return NOT_AN_EVENT
    vectors = [_vector(rng, sparse) for _ in range(3)]
    clicked = vectors[1]
    (clicked.values if isinstance(clicked, SparseVector) else clicked)[0] = MARK
    q, c, s = (ObjectRef(x=vector) for vector in vectors)
    encoded = encode_event(Event(f"e{number}", 1_700_000_000_000 + number, q, c, s, key=key))
    if poison and number % (2 * POISON_EVERY) == 1 + POISON_EVERY:  # the encoder itself refuses to write this
        return encoded.replace(MARK.tobytes(), NAN.tobytes())
    return encoded


@cache
def numbered_event(seed: int, number: int, sparse: bool, key: str | None) -> bytes:
    """The event of that number, the same wherever it is written: many lives are fed with it."""
    return event_bytes(np.random.default_rng([seed, number]), number, sparse, key=key)


def is_poison(value: bytes | None) -> bool:
    """Whether a record of `event_bytes` must become a dead letter."""
    return value is None or value == NOT_AN_EVENT or NAN.tobytes() in value


def _vector(rng: np.random.Generator, sparse: bool) -> np.ndarray | SparseVector:
    if not sparse:
        return rng.standard_normal(DIM).astype(np.float32)
    indices = np.sort(rng.choice(DIM, 8, replace=False)).astype(np.int32)
    return SparseVector(indices, rng.random(8).astype(np.float32))


@dataclass(frozen=True)
class Pace:
    """How a feeder writes: up to `most` events at once, `pause_s` between writes, some written twice."""

    pause_s: float = 0.004
    most: int = 24
    again: float = 0.0  # share of writes that repeat the one before, as a producer in doubt does
    poison: bool = True


class Feeder:
    """Writes events in small durable batches from a thread, until stopped or `limit` are written.

    While the stream is unavailable it sends the same events again: it cannot know which of them arrived.
    """

    def __init__(self, site: Site, seed: int, pace: Pace | None = None, limit: int = 1 << 60) -> None:
        self._site, self._pace, self._limit = site, pace or Pace(), limit
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._last: Sequence[OutRecord] = ()
        self.written = 0  # distinct events
        self.in_doubt = 0  # sends that were repeated: some of their events may be there twice
        self.failed: BaseException | None = None

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failed is None, self.failed

    def join(self) -> None:
        """Wait until the limit is written."""
        self._thread.join()

    def _run(self) -> None:
        sink: Sink | None = None
        try:
            while not self._stop.wait(self._pace.pause_s) and self.written < self._limit:
                sink = sink or open_sink(self._site.address)
                self.write(sink, int(self._rng.integers(1, self._pace.most + 1)))
        except BaseException as error:
            self.failed = error
        finally:
            if sink is not None:
                sink.close()

    def write(self, sink: Sink, count: int) -> None:
        """The next `count` events, durable when it returns."""
        if self._last and self._rng.random() < self._pace.again:
            self._send(sink, self._last)
        numbers, case = range(self.written, self.written + count), self._site.case
        self._last = [
            OutRecord(
                event_bytes(self._rng, number, case.sparse, self._pace.poison, case.key(number)),
                partition=int(self._rng.integers(self._site.partitions)),
            )
            for number in numbers
        ]
        if self._send(sink, self._last):
            self.written += count

    def _send(self, sink: Sink, records: Sequence[OutRecord]) -> bool:
        """Whether they are durable: not, when told to stop while the stream was unavailable."""
        while True:
            with suppress(StreamUnavailable):
                sink.send(records)
                return True
            self.in_doubt += 1
            if self._stop.is_set():
                return False
