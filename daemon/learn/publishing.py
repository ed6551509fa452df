"""Versions on a cadence: captured at an event boundary, written off the loop, by the one learner that may
write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from checkpoints import Epoch, VersionStore
from checkpoints.commit import check_writer
from checkpoints.manifest import VersionMeta
from checkpoints.publisher import AsyncPublisher, Failed, Published
from checkpoints.store import CheckpointError, Superseded
from daemon.exits import EX_CANTCREAT, UserError
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


class Publishing:
    """Decides when versions are due and follows each until it is durable. `parent`: the newest durable one.

    Args:
        publisher: writes a version in a thread of its own.
        progress: what a version is a snapshot of.
        arrays: the state's arrays now.
        describe: what a version records besides its arrays, for a snapshot and its parent's number.
        cadence: when versions are due.
        on_captured: the state of a version is taken; it may still fail to become durable.
        on_published: a version is durable.
        on_failed: a version could not be written.
        on_skipped: a version was due while the one before was still being written.
        parent: number of the version that the run began from.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        publisher: AsyncPublisher,
        progress: Progress,
        *,
        arrays: Callable[[], Arrays],
        describe: Callable[[Snapshot, int | None], VersionMeta],
        cadence: Cadence,
        on_captured: Callable[[Snapshot], None],
        on_published: Callable[[Published], None],
        on_failed: Callable[[CheckpointError], None],
        on_skipped: Callable[[], None],
        parent: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._progress = progress
        self._arrays = arrays
        self._describe = describe
        self._cadence = cadence
        self._on_captured = on_captured
        self._on_published = on_published
        self._on_failed = on_failed
        self._on_skipped = on_skipped
        self.parent = parent
        self._clock = clock
        self._in_flight: Snapshot | None = None
        self._asked = False
        self._last_at = clock()
        self._last_records = progress.records

    def tick(self, asked: bool) -> None:
        """Once per turn of the loop, at an event boundary: take a result, capture when due or `asked`."""
        self._take(self._publisher.result())
        self._asked = (self._asked or asked) and self._progress.moved
        records, since = self._progress.records, self._clock() - self._last_at
        if self._cadence.due(since, records, self._last_records, self._progress.moved):
            self._last_at, self._last_records = self._clock(), records
            if not self._begin():
                self._on_skipped()
        elif self._asked and self._begin():
            self._asked = False

    def finish(self) -> None:
        """Make everything applied so far durable; returns when it is. Nothing to do when nothing moved.

        Raises UserError (73, never restarted): another writer took over, or the disk keeps refusing.
        """
        error = self._take(self._publisher.drain())
        attempts = 0
        while self._progress.moved and attempts < FINAL_ATTEMPTS:
            attempts += 1
            self._begin()
            error = self._take(self._publisher.drain())
        if not self._progress.moved:
            self._last_at, self._last_records = self._clock(), self._progress.records
            return
        raise UserError(
            f"the last version could not be written: {error}",
            f"make room or repair the disk, then start again; nothing is lost: version {self.parent} is "
            "whole, and what came later is learned again",
            EX_CANTCREAT,
        )

    def _begin(self) -> bool:
        if self._in_flight is not None:
            return False
        snapshot = self._progress.snapshot()
        if not self._publisher.begin(self._arrays(), self._describe(snapshot, self.parent)):
            return False
        self._in_flight = snapshot
        self._on_captured(snapshot)
        return True

    def _take(self, result: Published | Failed | None) -> CheckpointError | None:
        if result is None:
            return None
        assert self._in_flight is not None
        snapshot, self._in_flight = self._in_flight, None
        if isinstance(result, Published):
            self._progress.published(snapshot)
            self.parent = result.manifest.number
            self._on_published(result)
            return None
        if result.superseded:
            raise taken_over(result.error)
        self._on_failed(result.error)
        return result.error
