"""Versions on a cadence: capture at an event boundary, write off the loop, then let go of what is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from checkpoints.errors import CheckpointError
from checkpoints.manifest import VersionMeta
from checkpoints.publisher import AsyncPublisher, Failed, Published
from daemon.exits import EX_CANTCREAT, UserError
from daemon.learn.applying.progress import Progress, Snapshot
from daemon.learn.writing.cadence import Cadence
from daemon.learn.writing.fence import taken_over
from daemon.versions.arrays import Arrays

FINAL_ATTEMPTS = 3

log = structlog.get_logger("tripletd.learn")


class Describe(Protocol):
    """What a version records beside its arrays, for a snapshot and its parent's number."""

    def __call__(self, snapshot: Snapshot, parent: int | None) -> VersionMeta: ...


class Listener(Protocol):
    """Who hears of versions: metrics, retention, lag dashboards."""

    def captured(self, snapshot: Snapshot) -> None:
        """The state of a version is taken; it may still fail to become durable."""
        ...

    def published(self, result: Published) -> None:
        """A version is durable."""
        ...

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written."""
        ...

    def skipped(self) -> None:
        """A version was due while the one before was still being written."""
        ...


class Publishing:
    """Decides when versions are due and follows each until it is durable. `parent`: the newest durable."""

    def __init__(
        self,
        publisher: AsyncPublisher,
        progress: Progress,
        *,
        arrays: Callable[[], Arrays],
        describe: Describe,
        cadence: Cadence,
        listener: Listener,
        parent: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._progress = progress
        self._arrays = arrays
        self._describe = describe
        self._cadence = cadence
        self._listener = listener
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
                self._listener.skipped()
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
            f"make room or mend the disk, then start again; nothing is lost: version {self.parent} stands, "
            "what came later is learned then",
            EX_CANTCREAT,
        )

    def _begin(self) -> bool:
        if self._in_flight is not None:
            return False
        snapshot = self._progress.snapshot()
        if not self._publisher.begin(self._arrays(), self._describe(snapshot, self.parent)):
            return False
        self._in_flight = snapshot
        self._listener.captured(snapshot)
        return True

    def _take(self, result: Published | Failed | None) -> CheckpointError | None:
        if result is None:
            return None
        assert self._in_flight is not None
        snapshot, self._in_flight = self._in_flight, None
        if isinstance(result, Published):
            self._progress.published(snapshot)
            self.parent = result.manifest.number
            self._listener.published(result)
            return None
        if result.superseded:
            raise taken_over(result.error)
        self._listener.failed(result.error)
        return result.error
