"""Versions on a cadence: captured at an event boundary, written off the loop, by the one learner that may
write.

There is one learner per checkpoint folder: asked for at the start, and looked after while it runs. On one
host a second learner is refused at its start, with a message that names the first; `--take-over` starts it
all the same, for a first one that is frozen or unknown. Across hosts the claim of the newer one stops the
older. Either way both log it at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import structlog

from checkpoints import BlobStore, Epoch, LocalStore, Manifest, VersionStore
from checkpoints.commit import WriterLock, check_next, check_writer
from checkpoints.manifest import TRAILER_BYTES, VersionMeta
from checkpoints.publisher import AsyncPublisher, Failed, Published
from checkpoints.store import CheckpointError, KeyMissing, Superseded, is_away, manifest_key
from checkpoints.versions import GONE, LACKS, LOSS_MESSAGES
from daemon.exits import EX_CANTCREAT, EX_TEMPFAIL, UserError
from daemon.learn.state import Progress, Snapshot
from daemon.versions.contents import Arrays

FINAL_ATTEMPTS = 3
_LOOK_SECONDS = 0.1
"""Between two looks at what is waited for: a writer, a lock."""


FIRST = 4_000
"""Records that the first version is of where they double: a few hundred lists."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """`every_s`: seconds between versions (0: no clock). `every_events`: records between them (0: off,
    -1: after `FIRST`, twice as many, and so on).

    Versions in between bet on what comes after them: a log that is learned faster than by the clock of
    `every_s` would otherwise be one version, of which hardly a list could tell anything.
    """

    every_s: float
    every_events: int

    def due(self, seconds_since: float, records: int, records_at_last: int, moved: bool) -> bool:
        """Whether a version is due: `records` counts since version 0, `records_at_last` at the last capture.

        `moved`: something is applied that is in no version. One that failed is due again by the clock.
        """
        if self.due_by_count(records, records_at_last):
            return True
        return moved and bool(self.every_s) and seconds_since >= self.every_s

    def due_by_count(self, records: int, records_at_last: int) -> bool:
        """Whether a version is due after so many `records`, and the last capture was not there."""
        return self.left(records - 1) == 1 and records != records_at_last

    def poll_limit(self, most: int, records_polled: int) -> int:
        """The most records of the next poll, so that a batch ends wherever a version is due by count."""
        return min(most, self.left(records_polled) or most)

    def left(self, records: int) -> int:
        """How many more records the next version by count is of; 0: there is none."""
        if self.every_events >= 0:
            return self.every_events and self.every_events - records % self.every_events
        return (FIRST << (records // FIRST).bit_length()) - records


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
    was due by the clock while the one before was still being written. parent: number of the newest durable
    version, at first of the one that the run began from. clock: monotonic, in seconds.
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

    def tick(self, asked: bool, waits: Callable[[float], bool] = lambda _: True) -> None:
        """Once per turn of the loop, at an event boundary: take a result, capture when due or `asked`.

        A version that is due by its count waits for the one before, so that none is left out however slow the
        disk is. `waits(seconds)` is called again and again meanwhile; False, when learning is to end, ends
        the wait, and `finish` writes the version.
        """
        self._take(self.publisher.result())
        self._asked = (self._asked or asked) and self.progress.moved
        records, began = self.progress.records, self.clock()
        if self.cadence.due_by_count(records, self._last_records):
            while self.busy:
                if not waits(self.clock() - began):
                    return
                self._take(self.publisher.drain(_LOOK_SECONDS))
        since = self.clock() - self._last_at
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


WAIT_SECONDS = 3.0
"""A stopped learner ends within two seconds: its successor waits a little longer than that."""

log = structlog.get_logger("tripletd.learn")


def take_place(
    stack: ExitStack, store: BlobStore, place: str, take_over: bool, stopping: Callable[[float], bool]
) -> WriterLock | None:
    """The lock of the folder `place`, released by `stack`; None for a store elsewhere, which has none.

    With `take_over` it is taken once the other process is gone, and by no third one before.
    `stopping(seconds)` waits; True ends the attempt. Raises UserError (75: another start may succeed) while
    another learner on this host has it.
    """
    if not isinstance(store, LocalStore):
        return None
    lock = store.writer_lock()
    stack.callback(lock.release)
    deadline = time.monotonic() + WAIT_SECONDS
    while not lock.take():
        if take_over:
            log.warning("taking over from another learner on this host", process=lock.holder(), place=place)
            lock.be_next()
            break
        if time.monotonic() >= deadline:
            lock.tell_refused()
            holder = lock.holder()
            who = "another learner" if holder is None else f"another learner (process {holder})"
            raise UserError(
                f"{place}: {who} on this host writes to this checkpoint folder",
                "leave it running, or stop it and start this one again; if it hangs or nobody knows it, "
                "start this one with --take-over: the other one then stops without writing",
                EX_TEMPFAIL,
            )
        if stopping(_LOOK_SECONDS):
            break
    return lock


class PlaceWatch:
    """Looks, once a second, whether the folder is still this learner's, and holds what was written to it.

    The housekeeper calls it; the loop reads `lost`, and calls `published` and `begun`.
    """

    def __init__(self, fence: Fence, lock: WriterLock | None, base: Manifest) -> None:
        """lock: None where the store has none. base: the version that the run continues from."""
        self.fence = fence
        self._lock = lock
        seal = _seal_of(fence.versions.store, base.number)
        newest = next((number for number, _ in fence.versions.listing.newest_first()), None)
        is_newest = base.number == newest  # an older one may be pruned
        self._kept: tuple[tuple[Manifest, bytes], ...] = ((base, seal),) if seal and is_newest else ()
        """Versions that were written, and the last bytes of their manifests, which are those of no other."""
        self.lost: Manifest | None = None
        """The newest version, while the folder does not have all that was written to it last."""
        self.is_away = False
        self.losses: Counter[str] = Counter()
        """Times that the folder was lost, by how."""

    def __call__(self) -> None:
        """Raises UserError (73) once another learner has taken over; says who wanted to start here, and when
        what was written is gone.
        """
        self.fence.check_next()
        if self._lock is not None:
            self._lock.take()
            for process in self._lock.refused():
                message = "another learner wanted to start on this checkpoint folder, and was refused"
                log.warning(message, process=process)
        was, self.is_away = self.is_away, is_away(self.fence.versions.store)
        if self.is_away and not was:
            self.losses[GONE] += 1
            log.error(f"{LOSS_MESSAGES[GONE]}. Learning continues, and is written when the folder is back")
        elif was and not self.is_away:
            log.info("the checkpoint folder is back")
        if not self.is_away:  # else the writer gets an error and tries again: the folder may be restored
            self._look_for_newest()

    def published(self, version: Manifest) -> None:
        """A version is durable. The one before it is looked for, too: pruning spares the newest two."""
        before = (one for one in self._kept[-1:] if one[0].writer == version.writer)
        self._kept = (*before, (version, version.to_json()[-TRAILER_BYTES:]))

    def begun(self) -> None:
        """The next version begins a new line: nothing is looked for before it is durable."""
        self._kept, self.lost = (), None

    @property
    def how(self) -> str:
        """How the folder is lost now, one of `LOSS_MESSAGES`; "" where it is not."""
        if self.is_away:
            return GONE
        return LACKS if self.lost is not None else ""

    def trouble(self) -> str | None:
        """Why no version can be written, None where one can. An emptied folder does not stop writing."""
        return f"{LOSS_MESSAGES[GONE]}. What was learned since waits for it" if self.is_away else None

    def _look_for_newest(self) -> None:
        kept = self._kept
        found = [_seal_of(self.fence.versions.store, manifest.number) for manifest, _ in kept]
        if None in found:
            return
        if found == [seal for _, seal in kept]:
            if self.lost is not None:
                self.lost = None
                log.info("the checkpoint folder has all its versions again")
        elif self.lost is None and kept is self._kept:
            self.lost = kept[-1][0]
            self.losses[LACKS] += 1
            log.error(
                "the checkpoint folder was emptied, or an older copy was put in its place: it lacks "
                "what was written last. What was learned is kept and written there, on a new line; older "
                "versions and promotions can only be restored from a copy of the folder",
                version=self.lost.name,
            )


def _seal_of(store: BlobStore, number: int) -> bytes | None:
    """The last bytes of a version's manifest, b"" where there is no such version, None where that is unknown
    now.
    """
    try:
        return store.get(manifest_key(number))[-TRAILER_BYTES:]
    except KeyMissing:
        return b""
    except CheckpointError:
        return None
