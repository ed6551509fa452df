"""The learner as an onlooker: `tripletd learn` as a process, seen through its metrics and probes."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from itertools import pairwise

from tests.harness.kafka.onlookers import longest_gap
from tests.harness.kill.learners import Process, catch_up
from tests.harness.kill.site import Site

_LOOK_S = 0.5


@dataclass(frozen=True)
class Look:
    """What the learner told at one moment: records applied, and whether it says it is ready and alive."""

    at: float
    applied: int
    ready: bool
    alive: bool


class Learning:
    """`tripletd learn` on a site; by the end it must hold the bits that an uninterrupted learner comes to."""

    name = "learn"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._process: Process | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onlooker", daemon=True)
        self._looks: list[Look] = []
        self._failed: BaseException | None = None

    def start(self) -> None:
        self._process = Process(self._site)
        self._thread.start()

    def reached(self) -> int:
        return self._looks[-1].applied if self._looks else 0

    def silence(self, begin: float, end: float) -> float:
        return longest_gap([look.at for look in self._advances()], begin, end)

    def looks(self, begin: float, end: float) -> list[Look]:
        """What it told between these two times."""
        return [look for look in list(self._looks) if begin < look.at < end]

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed
        assert self.process.running, self.process.said()

    def stop(self) -> None:
        """Have it leave in order, having told of no error."""
        self._stop.set()
        self._thread.join()
        if not self.process.running:
            return
        self.process.signal(signal.SIGTERM)
        code, said = self.process.wait(), self.process.said()
        assert code == 0, said
        assert "Traceback" not in said, said

    def account(self, ids: list[str]) -> tuple[int, int]:
        """Its last version must also hold the very bits that an uninterrupted learner comes to.

        It was asked to leave while the last records came, and goes on for these first.
        """
        newest, whole = catch_up(self._site), catch_up(self._site.again("whole"))
        assert newest.state_hash == whole.state_hash, (newest.counters, whole.counters)
        counted = newest.counters
        events = counted["records"] - counted["duplicate"]
        return max(0, len(set(ids)) - events), max(0, events - len(set(ids)))

    @property
    def process(self) -> Process:
        assert self._process is not None, "not started"
        return self._process

    def _advances(self) -> list[Look]:
        looks = list(self._looks)
        return [now for before, now in pairwise(looks) if now.applied > before.applied]

    def _run(self) -> None:
        try:
            while not self._stop.wait(_LOOK_S):
                applied = int(self.process.metric("tripletd_events_total"))
                ready, alive = (self.process.get(page)[0] == 200 for page in ("readyz", "livez"))
                self._looks.append(Look(time.monotonic(), applied, ready, alive))
        except BaseException as problem:
            self._failed = problem
