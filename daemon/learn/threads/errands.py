"""The errands thread: what the stream is asked and told beside the learning; the loop never waits for it.

Bounds for the lag once a second, which a topic that was re-created refuses to tell, and after a version what
`Housekeeping` does. The loop reads the last answers and hands over the last version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from checkpoints.manifest import Manifest
from daemon.learn.threads.part import Part
from daemon.process.watchdog import Pulse
from streams.errors import StreamUnavailable
from streams.source import Source

BOUNDS_EVERY_S = 1.0

Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the log held: (earliest, end) per partition, asked for at `at` (monotonic, seconds)."""

    bounds: Bounds
    at: float


class Errands(Part):
    """Runs in a thread of its own and owns its source.

    Args:
        source: handed over for good; closed by the thread.
        tidy: what is done after a version is durable.
        pulse: of this thread.
        clock: monotonic, in seconds.
    """

    name = "errands"

    def __init__(
        self,
        source: Source,
        tidy: Callable[[Manifest, Source], None],
        pulse: Pulse,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self._source = source
        self._tidy = tidy
        self._pulse = pulse
        self._clock = clock
        self._lock = threading.Condition()
        self._version: Manifest | None = None
        self._tidying = self._hurried = self._closing = False
        self._bounds_at = clock()
        self._error: BaseException | None = None
        self.seen: Seen | None = None
        self.trouble: StreamUnavailable | None = None  # why there is no newer answer

    def check(self) -> None:
        """Raise what ended the thread: the topic was re-created, another learner has taken over."""
        if self._error is not None:
            raise self._error

    def published(self, version: Manifest) -> None:
        """A version is durable. Only the newest is tidied up after, when the thread comes to it."""
        with self._lock:
            self._version = version
            self._lock.notify_all()

    def hurry(self) -> None:
        """Ask for the bounds now."""
        with self._lock:
            self._hurried = True
            self._lock.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until what was handed over is done; whether it is."""
        with self._lock:
            return self._lock.wait_for(lambda: self._version is None and not self._tidying, timeout_s)

    def stop(self) -> None:
        """Tidy up after the last version, then end; returns at once."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()

    def _run(self) -> None:
        try:
            self._ask()
            while self._wait_for_work():
                self._tidy_up()
                if not self._closing:
                    self._ask()
        except BaseException as error:  # noqa: BLE001 - carried to the main loop, which raises it
            self._error = error
        finally:
            with self._lock:
                self._tidying, self._version = False, None
                self._lock.notify_all()
            self._pulse.beat("closing the stream")
            self._source.close()
            self._pulse.rest()

    def _wait_for_work(self) -> bool:
        """Sleep until something is due; False when all is done and the thread is to end."""
        with self._lock:
            while not (self._closing or self._hurried or self._version):
                left = self._bounds_at + BOUNDS_EVERY_S - self._clock()
                if left <= 0:
                    break
                self._pulse.beat("waiting")
                self._lock.wait(left)
            return not self._closing or self._version is not None

    def _tidy_up(self) -> None:
        with self._lock:
            version, self._version = self._version, None
            self._tidying = version is not None
        if version is not None:
            self._tidy(version, self._source)
        with self._lock:
            self._tidying = False
            self._lock.notify_all()

    def _ask(self) -> None:
        """The bounds; a source refuses to give those of another topic than it opened."""
        with self._lock:
            self._hurried = False
        self._bounds_at = self._clock()
        self._pulse.beat("asking for the bounds")
        try:
            self.seen = Seen(self._source.bounds(), self._bounds_at)
            self.trouble = None
        except StreamUnavailable as error:
            self.trouble = error
