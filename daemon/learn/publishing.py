"""Versions on a cadence: captured at an event boundary, written off the loop, by the one learner that may
write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from checkpoints import Epoch, VersionStore
from checkpoints.commit import check_next, check_writer
from checkpoints.manifest import VersionMeta
from checkpoints.publisher import AsyncPublisher, Failed, Published
from checkpoints.store import CheckpointError, Superseded
from daemon.exits import EX_CANTCREAT, EX_TEMPFAIL, UserError
from daemon.learn.state import Progress, Snapshot
from daemon.versions.contents import Arrays

FINAL_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Cadence:
    """`every_s`: seconds between versions (0: no clock). `every_events`: records between them (0: off)."""

    every_s: float
    every_events: int

    def due(self, seconds_since: float, records: int, records_at_last: int, moved: bool) -> bool:
        """Whether a version is due: `records` counts since version 0, `records_at_last` at the last capture.

        `moved`: something is applied that is in no version. By count, a version is due only exactly on a
        multiple: one that was missed waits for the next. One that failed is due again by the clock.
        """
        if self.every_events and records % self.every_events == 0 and records != records_at_last:
            return True
        return moved and bool(self.every_s) and seconds_since >= self.every_s

    def poll_limit(self, most: int, records_polled: int) -> int:
        """The most records of the next poll, so that a batch ends on every multiple of `every_events`."""
        if not self.every_events:
            return most
        return min(most, self.every_events - records_polled % self.every_events)


@dataclass(frozen=True, slots=True)
class Fence:
    """Whether this learner is still the one that writes. Asked before what no create-only put guards, pruning
    and sending: the learner may have been frozen for long.
    """

    versions: VersionStore
    epoch: Epoch

    def check(self) -> None:
        """Raise UserError (73, never restarted) once another learner has claimed the folder.

        Raises CheckpointError when the folder cannot be read.
        """
        try:
            check_writer(self.versions.store, self.epoch)
        except Superseded as error:
            raise taken_over(error) from error

    def check_next(self) -> None:
        """Like `check`, at little cost and not so thorough: passes while the folder cannot be read."""
        try:
            check_next(self.versions.store, self.epoch)
        except Superseded as error:
            raise taken_over(error) from error

    def check_if_readable(self) -> None:
        """Like `check`, but passes while the folder cannot be read: for what is harmless when repeated."""
        with suppress(CheckpointError):
            self.check()


def taken_over(error: CheckpointError) -> UserError:
    """The error that ends a learner after another one has taken over."""
    return UserError(
        f"another learner has taken over these checkpoints: {error.place}: {error.problem}",
        "this one stops without writing and is not restarted; run one learner per checkpoint folder: "
        "stop the other one, then start this one again",
        EX_CANTCREAT,
    )


@dataclass(slots=True)
class Publishing:
    """Decides when versions are due and follows each until it is durable.

    publisher: writes a version in a thread of its own. progress: what a version is a snapshot of. arrays: the
    state's arrays now. describe: what a version records besides its arrays, for a snapshot and its parent's
    number. cadence: when versions are due. on_captured: the state of a version is taken; it may still fail to
    become durable. on_published: a version is durable. on_failed: one could not be written. on_skipped: one
    was due while the one before was still being written. parent: number of the newest durable version, at
    first of the one that the run began from. clock: monotonic, in seconds.
    """

    publisher: AsyncPublisher
    progress: Progress
    arrays: Callable[[], Arrays]
    describe: Callable[[Snapshot, int | None], VersionMeta]
    cadence: Cadence
    on_captured: Callable[[Snapshot], None]
    on_published: Callable[[Published], None]
    on_failed: Callable[[CheckpointError], None]
    on_skipped: Callable[[], None]
    parent: int | None
    clock: Callable[[], float]
    _in_flight: Snapshot | None = field(default=None, init=False)
    _asked: bool = field(default=False, init=False)
    _last_at: float = field(init=False)
    _last_records: int = field(init=False)

    def __post_init__(self) -> None:
        self._last_at, self._last_records = self.clock(), self.progress.records

    @property
    def busy(self) -> bool:
        """Whether a version is being written."""
        return self._in_flight is not None

    def tick(self, asked: bool) -> None:
        """Once per turn of the loop, at an event boundary: take a result, capture when due or `asked`."""
        self._take(self.publisher.result())
        self._asked = (self._asked or asked) and self.progress.moved
        records, since = self.progress.records, self.clock() - self._last_at
        if self.cadence.due(since, records, self._last_records, self.progress.moved):
            self._last_at, self._last_records = self.clock(), records
            if not self._begin():
                self.on_skipped()
        elif self._asked and self._begin():
            self._asked = False

    def finish(self) -> None:
        """Make everything applied so far durable; returns when it is. Nothing to do when nothing moved.

        Raises UserError: another writer took over (73, never restarted), or the disk keeps refusing (75).
        """
        error = self._take(self.publisher.drain())
        attempts = 0
        while self.progress.moved and attempts < FINAL_ATTEMPTS:
            attempts += 1
            self._begin()
            error = self._take(self.publisher.drain())
        if not self.progress.moved:
            self._last_at, self._last_records = self.clock(), self.progress.records
            return
        raise UserError(
            f"the last version could not be written: {error}",
            f"make room or repair the disk, then start again; nothing is lost: version {self.parent} is "
            "whole, and what came later is learned again",
            EX_TEMPFAIL,
        )

    def _begin(self) -> bool:
        if self._in_flight is not None:
            return False
        snapshot = self.progress.snapshot()
        if not self.publisher.begin(self.arrays(), self.describe(snapshot, self.parent)):
            return False
        self._in_flight = snapshot
        self.on_captured(snapshot)
        return True

    def _take(self, result: Published | Failed | None) -> CheckpointError | None:
        if result is None:
            return None
        assert self._in_flight is not None
        snapshot, self._in_flight = self._in_flight, None
        if isinstance(result, Published):
            self.progress.published(snapshot)
            self.parent = result.manifest.number
            self.on_published(result)
            return None
        if result.superseded:
            raise taken_over(result.error)
        self.on_failed(result.error)
        return result.error
