"""Who reads along while brokers fail: sources of both clients, and the learner as a process."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Protocol

from streams.address import Address
from streams.errors import StreamUnavailable
from streams.open import open_source
from streams.source import Source
from tests.kill.learners import Process, catch_up
from tests.kill.site import Site

_POLL_S = 0.2
_LOOK_S = 0.1


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


class Learning:
    """`tripletd learn` as a process; what it has applied is read from its metrics."""

    name = "learn"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._process: Process | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="onlooker", daemon=True)
        self._applied = 0
        self._arrivals: list[float] = []
        self.unready: list[str] = []
        self.failed: BaseException | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        self._process = Process(self._site)
        self._thread.start()

    def reached(self) -> int:
        return self._applied

    def silence(self, begin: float, end: float) -> float:
        return longest_gap(self._arrivals, begin, end)

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed
        assert self.process.running, self.process.said()

    def stop(self) -> None:
        """Ask it to leave in order."""
        self._stop.set()
        self._thread.join()
        self.process.signal(15)
        assert self.process.wait() == 0, self.process.said()

    def account(self, ids: list[str]) -> tuple[int, int]:
        """By its last version, which must also hold the very bits that an uninterrupted learner comes to."""
        newest, whole = self._site.newest(), catch_up(self._site.again("whole"))
        assert newest.state_hash == whole.state_hash, (newest.counters, whole.counters)
        counted = newest.counters
        events = counted["records"] - counted["duplicate"]
        return len(set(ids)) - events, events - len(set(ids))

    def _look(self) -> None:
        try:
            while not self._stop.wait(_LOOK_S):
                applied = int(self.process.metric("tripletd_events_total"))
                if applied > self._applied:
                    self._applied = applied
                    self._arrivals.append(time.monotonic())
        except BaseException as problem:
            self.failed = problem


def longest_gap(arrivals: list[float], begin: float, end: float) -> float:
    """The longest stretch of begin..end without an arrival."""
    inside = [begin, *(at for at in list(arrivals) if begin < at < end), end]
    return max(after - before for before, after in pairwise(inside))
