"""The learning loop: one batch after another, in a commit order that keeps every version consistent with its
position; and the threads that work for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import structlog

from checkpoints.errors import CheckpointError
from checkpoints.ledger import LedgerEntry
from checkpoints.publisher import Published
from daemon.dead_letters import DeadLetterWriter
from daemon.learn.halts import Halts
from daemon.learn.housekeeping import Housekeeper
from daemon.learn.observe import STALL_SECONDS, Observer
from daemon.learn.publishing import Publishing
from daemon.learn.reader import Reader
from daemon.learn.resume.origin import RunOrigin
from daemon.learn.state import Snapshot
from daemon.learn.step import ReadyBatch, StepResult, step
from daemon.learn.steplog.publisher import Handover
from daemon.runtime.background import BackgroundThread
from daemon.runtime.runtime import RoleRuntime
from daemon.versions.contents import RECORDS, counted
from streams.poison import DeadLetter

STOP_SECONDS = 0.4  # what they get to end after a stop: one of them may wait for a broker that is dead
END_SECONDS = 10.0  # and after the end of the stream, when nobody is in a hurry
STEPS_SECONDS = 2.0  # but no longer for the step log alone: replicas can do without its end
SLICE_SECONDS = 0.02

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Threads:
    """Each owns what it talks to, and closes it. `steps`: what nobody waits for, however slow it is."""

    reader: Reader
    errands: Housekeeper
    letters: DeadLetterWriter
    steps: BackgroundThread | None = None

    def start(self) -> None:
        """Begin to read, to ask, to write dead letters and steps."""
        for part in (self.letters, self.steps, self.errands, self.reader):
            if part is not None:
                part.start()

    def leave(self, in_a_hurry: Callable[[], bool]) -> None:
        """Let them end, but wait for none for long: what matters is durable, nothing of theirs is needed."""
        began = time.monotonic()
        left: list[BackgroundThread] = [
            part for part in (self.reader, self.errands, self.letters, self.steps) if part
        ]
        for part in left:
            part.stop()
        while left := [part for part in left if not part.ended(SLICE_SECONDS)]:
            waited = time.monotonic() - began
            patience = STEPS_SECONDS if left == [self.steps] else END_SECONDS
            if waited > (STOP_SECONDS if in_a_hurry() else patience):
                log.info("left behind: the stream did not answer", threads=[part.name for part in left])
                return


LETTER_SECONDS = 0.3  # what dead letters get to become durable after a stop


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The topic that is learned, and what a STOP means: "park" or "exit"."""

    topic: str
    on_stop: str


@dataclass(frozen=True, slots=True)
class LearnLoop:
    """One learning loop's parts. Only this thread touches the state, the progress and the publishing."""

    outside: RoleRuntime
    settings: LoopSettings
    origin: RunOrigin
    threads: Threads
    publishing: Publishing
    halts: Halts
    observer: Observer
    handover: Handover

    def start(self) -> None:
        """Begin to read, to ask and to write dead letters."""
        self.threads.start()
        self.outside.started()

    def look_around(self, halt: LedgerEntry | None = None) -> None:
        """Once per turn, `halt` in force. Raises what the errands thread found to be the end: another topic,
        another learner.
        """
        self.observer.beat(halt)
        self.outside.reloading.when(self.outside.signals.take_reload_request())
        self.threads.errands.check()
        self.observer.lag(self.threads.errands.seen, stands(self.origin, self.threads.reader))

    def next_batch(self, timeout_s: float) -> ReadyBatch | None:
        """What was read ahead, or None when nothing came within `timeout_s`."""
        with self.observer.idle():
            ready = self.threads.reader.get(timeout_s)
        self.observer.readiness.turned(ready is not None)
        return ready

    def deliver(self, letters: list[DeadLetter]) -> bool:
        """Make dead letters durable; False when told to end before they were.

        Raises UserError when another learner has taken over.
        """
        stop_at = float("inf")

        def give_up(trouble: Exception | None, waited_s: float) -> bool:
            nonlocal stop_at
            late = f"no answer within {STALL_SECONDS:.0f} s" if waited_s > STALL_SECONDS else None
            why = trouble or late
            self.observer.beat(trouble=f"dead letters cannot be written: {why}" if why else None)
            if self.outside.signals.stopping:
                stop_at = min(stop_at, waited_s + LETTER_SECONDS)
            return waited_s >= stop_at

        return self.threads.letters.deliver(letters, give_up)

    def apply(self, ready: ReadyBatch) -> StepResult:
        """Run the step over a batch: as long as it takes, but the next batch is made to take less."""
        began = time.perf_counter()
        with self.outside.pulse.patient("the learner's step"):
            done = step(self.origin.state, ready, self.settings.topic)
        seconds = time.perf_counter() - began
        self.threads.reader.learned(ready, seconds)
        self.observer.stepped(done, seconds)
        return done

    def learned(self, ready: ReadyBatch, done: StepResult) -> None:
        """A batch is applied and its dead letters are durable: the position moves."""
        progress = self.origin.progress
        first = progress.records
        progress.advance(done.applied)
        self.handover.applied(first, progress.records, progress.watermark, done)
        self.halts.passed(ready, len(ready.decoded.poison) + done.damaged)
        self.observer.applied(ready, done, self.halts.poison_share)

    def write_version_when_due(self, asked: bool) -> None:
        """Once per turn, at an event boundary; see `Publishing.tick`."""
        with self.outside.pulse.patient("capturing a version"):
            self.publishing.tick(asked)

    def write_last_version(self) -> None:
        """Make everything applied so far durable; see `Publishing.finish`."""
        with self.outside.pulse.patient("writing a version"):
            self.publishing.finish()

    def caught_up(self) -> bool:
        """Whether every record now in the log is applied, asked when there was nothing more to learn."""
        reached, seen, idle_since = (
            self.threads.reader.reached(),
            self.threads.errands.seen,
            self.observer.readiness.idle_since,
        )
        if reached is None or idle_since is None:
            return False
        if seen is None or seen.at < idle_since:
            self.threads.errands.hurry()
            return False
        return all(reached[partition] >= end for partition, (_, end) in seen.bounds.items())

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the threads end; the way out of an ExitStack."""
        self.threads.leave(lambda: kind is not None or self.outside.signals.stopping)


def stands(origin: RunOrigin, reader: Reader) -> dict[int, int]:
    """Per partition, the offset below which nothing is left to learn, gaps without records included."""
    applied = origin.progress.next_offsets()
    reached = reader.reached() or {}
    return {partition: max(at, reached.get(partition, at)) for partition, at in applied.items()}


@dataclass(frozen=True, slots=True)
class Acknowledger:
    """A version is durable before it is acknowledged, and stands whatever happens then."""

    observer: Observer
    errands: Housekeeper
    handover: Handover

    def captured(self, snapshot: Snapshot) -> None:
        """The step log is cut here, so that replicas of the version go on from it."""
        self.handover.captured(counted(snapshot.counters, RECORDS), snapshot.watermark)

    def published(self, result: Published) -> None:
        """Show it; have its position noted, old versions pruned, learned records retained."""
        self.observer.published(result)
        self.errands.published(result.manifest)
        self.handover.published(result.manifest)

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written."""
        self.observer.failed(error)

    def skipped(self) -> None:
        """A version was due too soon."""
        self.observer.skipped()
