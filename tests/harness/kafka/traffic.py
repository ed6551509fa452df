"""Numbered events written through the real sink by a thread that no broker's death stops."""

from __future__ import annotations

import threading

import numpy as np

from streams.codec import encode_event
from streams.errors import StreamUnavailable
from streams.event import Event, ObjectRef, SparseVector
from streams.open import open_sink
from streams.source import Address, OutRecord, Sink
from tests.harness.kill.site import DIM

_PAUSE_S = 0.05
_NON_ZERO = 8


class Writer:
    """Writes a few events at a time; what was in doubt is sent again, as `feed` does.

    `written` events are known to be durable, the last at offset `end` - 1; those `in_doubt` were sent more
    than once.
    """

    def __init__(self, address: Address, seed: int) -> None:
        self._address = address
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.written = self.end = 0
        self.in_doubt: set[int] = set()
        self.failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is begun to its end, and no more."""
        self._stop.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what ended it too soon."""
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        sink: Sink | None = None
        try:
            while not self._stop.wait(_PAUSE_S):
                numbers = range(self.written, self.written + int(self._rng.integers(1, 6)))
                records = [OutRecord(event(self._rng, number)) for number in numbers]
                while True:
                    try:
                        sink = sink or open_sink(self._address)
                        self.end = sink.send(records)[-1][1] + 1
                        break
                    except StreamUnavailable:
                        self.in_doubt.update(numbers)
                self.written += len(numbers)
        except BaseException as problem:
            self.failed = problem
        finally:
            if sink is not None:
                sink.close()


def event(rng: np.random.Generator, number: int) -> bytes:
    """An event whose id is its number."""
    query, clicked, skipped = (ObjectRef(x=_vector(rng)) for _ in range(3))
    return encode_event(Event(str(number), 1_700_000_000_000 + number, query, clicked, skipped))


def _vector(rng: np.random.Generator) -> SparseVector:
    indices = np.sort(rng.choice(DIM, _NON_ZERO, replace=False)).astype(np.int32)
    return SparseVector(indices, rng.random(_NON_ZERO).astype(np.float32))
