"""Who reads along while brokers fail: a source as a thread."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Protocol

from streams.errors import StreamUnavailable
from streams.open import open_source
from streams.source import Address, Source

_POLL_S = 0.2


class Onlooker(Protocol):
    """Somebody who must read every record of a topic once. Times are monotonic seconds."""

    name: str

    def start(self) -> None:
        """Begin at the start of the topic."""
        ...

    def reached(self) -> int:
        """The offset below which it has read everything."""
        ...

    def silence(self, begin: float, end: float) -> float:
        """The longest time without any new record between these two."""
        ...

    def check(self) -> None:
        """Raise what went wrong with it."""
        ...

    def stop(self) -> None:
        """End it."""
        ...

    def account(self, ids: list[str]) -> tuple[int, int]:
        """(lost, repeated), once it has stopped; `ids` of the events that the topic holds, by offset."""
        ...


class Reader:
    """A thread on the real source. StreamUnavailable is what it may raise: polling again must go on."""

    def __init__(self, address: Address, name: str) -> None:
        self.name = name
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._offsets: list[int] = []
        self._arrivals: list[float] = []
        self.unavailable = 0
        self.failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def reached(self) -> int:
        return self._offsets[-1] + 1 if self._offsets else 0

    def silence(self, begin: float, end: float) -> float:
        return longest_gap(self._arrivals, begin, end)

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def account(self, ids: list[str]) -> tuple[int, int]:
        return len(set(range(len(ids))) - set(self._offsets)), len(self._offsets) - len(set(self._offsets))

    def _run(self) -> None:
        source: Source | None = None
        try:
            source = open_source(self._address)
            source.assign({0: 0})
            while not self._stop.is_set():
                try:
                    batch = source.poll(500, _POLL_S)
                except StreamUnavailable:
                    self.unavailable += 1
                    continue
                if batch is not None:
                    assert batch.damaged is None, batch.damaged
                    self._offsets += batch.offsets
                    self._arrivals.append(time.monotonic())
        except BaseException as problem:
            self.failed = problem
        finally:
            if source is not None:
                source.close()


def longest_gap(arrivals: list[float], begin: float, end: float) -> float:
    """The longest stretch of begin..end without an arrival."""
    inside = [begin, *(at for at in list(arrivals) if begin < at < end), end]
    return max(after - before for before, after in pairwise(inside))
