"""Questions and chores that need the stream or the disk, in a thread of their own: the loop never waits for
them.

The log's bounds for the lag once a second, which the source refuses when the topic was re-created; and
after a version is durable, pruning, retention and a note of the position for lag dashboards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from checkpoints import Ledger, VersionStore, fold, fold_history, protected, prune
from checkpoints.manifest import Manifest
from checkpoints.store import CheckpointError
from daemon.config.services import StreamConfig
from daemon.learn.publishing import Fence
from daemon.runtime.watchdog import BackgroundThread, Pulse
from daemon.topics.retention import learned_twice, retain_topics
from streams.errors import StreamError, StreamUnavailable
from streams.partitions import OpenTransactions
from streams.source import Address, HeldBack, Source

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class VersionCleanup:
    """What is done after a version is durable, by the housekeeper, with a store and a ledger of its own.

    The version stands whatever happens here: what fails is a warning, and the next version makes up for it.
    also_kept: versions that others still need. retains: whether records may go; of a topic that several
    learn from, one alone decides that.
    """

    versions: VersionStore
    ledger: Ledger
    fence: Fence
    address: Address
    keep: int
    stream: StreamConfig
    retain_steps: Callable[[], None]
    pulse: Pulse
    also_kept: Callable[[], set[int]] = set
    retains: bool = True

    def __call__(self, version: Manifest, source: Source) -> None:
        """Prune versions, retain records, commit the position (nothing ever resumes from it).

        Raises UserError when another learner has taken over meanwhile.
        """
        self.fold()
        with self.pulse.patient("pruning"):
            learned = self._prune(version)
            if self.retains:
                retain_topics(self.address, self.stream, learned, log.warning)
                self.retain_steps()
        self.pulse.beat("noting the position")
        try:
            # The note tells a later start what this folder must have: see "Lines of history" in FORMAT.md.
            source.commit({p: at.next_offset for p, at in version.positions.items()}, version.name)
        except StreamError as error:
            log.warning("after a version", error=str(error))

    def fold(self) -> None:
        """Fold the ledger where that is due: at the start, and as it grows with the versions."""
        with self.pulse.patient("folding the ledger"):
            try:
                through = fold(self.versions.store, self.ledger, self.versions.versions)
            except CheckpointError as error:
                log.warning("the ledger is not folded", error=str(error))
                return
        if through is not None:
            log.info("the ledger is folded", through=through)

    def _prune(self, version: Manifest) -> dict[int, int]:
        """Remove old versions; the positions below which records may go."""
        learned: dict[int, int] = {}
        try:
            learned = learned_twice(self.versions, version)
            prune(self.versions, self._protected, self.keep, self.fence.check)
            fold_history(self.versions.store, self._referred, self.fence.check)
        except CheckpointError as error:
            log.warning("after a version", error=str(error))
        return learned

    def _referred(self) -> set[int]:
        """Versions whose lines of history stay: kept ones continued from them, or the ledger names them."""
        found = {entry.version for entry in self.ledger.entries()}
        for number in self.versions.versions():
            with suppress(CheckpointError):
                found.add(self.versions.manifest(number).parent)
        return {number for number in found if number is not None}

    def _protected(self) -> set[int]:
        """What aliases point at, one step back included. Damaged while an entry cannot be read: it may point
        at any.
        """
        return protected(self.ledger.whole()) | self.also_kept()


BOUNDS_EVERY_S = 1.0

Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What the log held: (earliest, end) per partition, asked for at `at` (monotonic, seconds).

    transactions: what open ones hold back, and since when the same ones have been seen (monotonic).
    """

    bounds: Bounds
    at: float
    transactions: OpenTransactions = field(default_factory=OpenTransactions)

    def newest(self, partition: int) -> int:
        """One past the newest record of a partition, whether it can be read yet or not."""
        end = self.bounds[partition][1]
        held = self.transactions.held.get(partition)
        return end if held is None else max(end, held.end)

    @staticmethod
    def after(before: LogBounds | None, bounds: Bounds, held: Mapping[int, HeldBack], at: float) -> LogBounds:
        """An answer after another one: what was held back then already is held since then."""
        known = OpenTransactions() if before is None else before.transactions
        return LogBounds(bounds, at, known.next(held, at))


class Housekeeper(BackgroundThread):
    """Asks the stream for its bounds and cleans up after versions, in a thread of its own.

    Args:
        source: owned and closed by the thread.
        tidy: what is done after a version is durable.
        pulse: of this thread.
        clock: monotonic, in seconds.
        watch: called once a second; what it raises ends the thread.
        first: done once, before anything else is tidied.
    """

    name = "housekeeping"

    def __init__(
        self,
        source: Source,
        tidy: Callable[[Manifest, Source], None],
        pulse: Pulse,
        clock: Callable[[], float],
        *,
        watch: Callable[[], None] = lambda: None,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._watch, self._first = watch, first
        self._source, self._tidy, self._pulse, self._clock = source, tidy, pulse, clock
        self._lock = threading.Condition()
        self._version: Manifest | None = None
        self._tidying = self._hurried = self._closing = False
        self._bounds_at = clock()
        self.error: BaseException | None = None  # what ended the thread: another topic, another learner
        self.seen: LogBounds | None = None
        self.trouble: StreamUnavailable | None = None  # why there is no newer answer

    def published(self, version: Manifest) -> None:
        """A version is durable. Only the newest is tidied up after, when the thread comes to it."""
        with self._lock:
            self._version = version
            self._lock.notify_all()

    def hurry(self) -> None:
        """Have the bounds asked for now."""
        with self._lock:
            self._hurried = True
            self._lock.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until what was handed over is done, or an error has ended the thread; whether it is done."""
        with self._lock:
            self._lock.wait_for(lambda: self.error is not None or self._settled(), timeout_s)
            return self._settled()

    def _settled(self) -> bool:
        return self._version is None and not self._tidying

    def stop(self) -> None:
        """Tidy up after the last version, then end; returns at once."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()

    def _run(self) -> None:
        try:
            self._ask()
            self._first()
            while self._wait_for_work():
                self._tidy_up()
                if not self._closing:
                    self._ask()
        except BaseException as error:  # noqa: BLE001 - raised in the main loop
            self.error = error
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
        """Ask for the bounds; a source refuses to give those of another topic than it opened."""
        with self._lock:
            self._hurried = False
        self._bounds_at = self._clock()
        self._pulse.beat("looking at the checkpoint folder")
        self._watch()
        self._pulse.beat("asking for the bounds")
        try:
            bounds, held = self._source.bounds(), self._source.held_back()
            self.seen = LogBounds.after(self.seen, bounds, held, self._bounds_at)
            self.trouble = None
        except StreamUnavailable as error:
            self.trouble = error
