"""The learning loop: one batch after another, in a commit order that keeps every version consistent with its
position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import structlog

from checkpoints import new_line
from checkpoints.ledger import LedgerEntry
from daemon.dead_letters import DeadLetterWriter
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, UserError
from daemon.learn.compatible import Gap, records_gone
from daemon.learn.halts import Halts, is_pause
from daemon.learn.housekeeping import Housekeeper
from daemon.learn.observe import Observer
from daemon.learn.place import PlaceWatch
from daemon.learn.publishing import Publishing
from daemon.learn.reader import Growth, Reader
from daemon.learn.resume.origin import RunOrigin
from daemon.learn.state import line, partitions
from daemon.learn.step import ReadyBatch, StepResult, step
from daemon.learn.steplog.publisher import StepPublisher
from daemon.runtime.runtime import RoleRuntime
from daemon.runtime.watchdog import BackgroundThread, end_all
from streams.errors import OffsetExpired
from streams.partitions import end_of_transaction
from streams.poison import DeadLetter
from streams.source import Quiet

WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 0.25
"""How soon an idle loop hears verdicts, and after long silence; of batches and signals it hears at once."""
STOP_SECONDS = 0.4  # what the threads get to end after a stop: one of them may wait for a broker that is dead
END_SECONDS = 10.0  # and after the end of the stream, when nobody is in a hurry
STEPS_SECONDS = 2.0  # but no longer for the step log alone: replicas can do without its end

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class LearnLoop:
    """Events in, versions out. Only the thread in `run` touches the state, the progress and the publishing.

    steps: writes the step log, None where there is none. topic: what is learned, as dead letters name it.
    exits_on_stop: whether a STOP of the validator ends the run; otherwise it waits for a RESUME.
    """

    runtime: RoleRuntime
    origin: RunOrigin
    reader: Reader
    housekeeper: Housekeeper
    letters: DeadLetterWriter
    steps: StepPublisher | None
    publishing: Publishing
    halts: Halts
    observer: Observer
    place: PlaceWatch
    topic: str
    exits_on_stop: bool

    def start(self) -> None:
        """Start the threads that read, ask, and write dead letters and steps."""
        self.runtime.signals.listen(self.reader.wake)
        for thread in (self.letters, self.steps, self.housekeeper, self.reader):
            if thread is not None:
                thread.start()
        self.runtime.started()

    def run(self, until_caught_up: bool) -> int:
        """One batch after another; the exit code. The order keeps every version consistent with its position:

        1 what cannot be decoded is durable as dead letters; 2 the rest is applied, up to an event boundary;
        3 what the step refused is durable as dead letters; 4 the position advances; 5 a version is captured
        when one is due; 6 it is written off the loop; 7 what has become durable is acknowledged.

        If a stop comes while 1 cannot be done, the batch is left out, and the last version stands before it.
        While 3 cannot be done there is no event boundary to write a last version at: the one before stands.
        """
        signals, all_learned = self.runtime.signals, False
        quiet = Quiet(WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        while not signals.stopping:
            self._look_around()
            is_new_line = self._begin_new_line()
            halt = self.halts.in_force()
            if halt is not None:
                self._write_last_version()
                if self._should_exit(halt, until_caught_up) or not self._hold(halt):
                    break
            ready = self._next_batch(WAIT_SECONDS if self.publishing.busy else quiet.rest_s())
            if ready is not None:
                quiet.broken()
            if isinstance(ready, Growth):
                self._grow(ready)
            elif ready is not None:
                if not self._deliver(ready.decoded.poison):  # 1
                    break
                done = self._apply(ready)  # 2
                if not self._deliver(done.letters):  # 3
                    log.error("no last version: dead letters cannot be written, so the one before stands")
                    return EX_TEMPFAIL
                self._advance(ready, done)  # 4
            with self.runtime.pulse.patient("capturing a version"):
                self.publishing.tick(asked=signals.take_checkpoint_request() or is_new_line)  # 5, 6, 7
            all_learned = ready is None and until_caught_up and self.observer.readiness.caught_up()
            if all_learned:
                break
        self.runtime.notifier.stopping()
        self._write_last_version()
        if all_learned:
            records, version = self.origin.progress.records, self.publishing.parent
            log.info("everything is learned", records=records, version=version)
            for partition, held, _ in self.observer.readiness.held_back():
                log.warning(
                    "but for what an open transaction holds back",
                    records=held.end - held.first,
                    partition=partition,
                    offset=held.first,
                    remedy=end_of_transaction(self.topic, partition, held.first),
                )
        return EX_OK

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads; the way out of an ExitStack."""
        threads = [thread for thread in (self.reader, self.housekeeper, self.letters, self.steps) if thread]
        end_threads(threads, self.steps, lambda: kind is not None or self.runtime.signals.stopping)

    def _look_around(self, halt: LedgerEntry | None = None) -> None:
        """Once per turn, `halt` in force. Raises what ended the housekeeper."""
        self.observer.beat(halt, trouble=self.place.trouble())
        self.observer.folder(self.place.how, self.place.losses)
        self.runtime.reloading.when(self.runtime.signals.take_reload_request())
        if self.housekeeper.error is not None:
            raise self.housekeeper.error
        self.observer.lag()

    def _next_batch(self, timeout_s: float) -> ReadyBatch | Growth | None:
        """What was read ahead, or None when nothing came in time.

        Raises UserError for records that expired unread; what was learned before them is a version then, and
        the next start says the same.
        """
        with self.observer.idle():
            try:
                ready = self.reader.get(timeout_s)
            except OffsetExpired as error:
                self._write_last_version()
                raise records_gone([Gap(error.partition, error.wanted, error.earliest)]) from error
        self.observer.readiness.turned(ready is not None)
        return ready

    def _begin_new_line(self) -> bool:
        """Where the folder lost what was written to it: have the next version begin a line of its own."""
        lost = self.place.lost
        if lost is None or self.publishing.busy:
            return False
        epoch = self.origin.epoch
        epoch.line = new_line()
        self.origin.progress.control(line(lost.name, epoch.line, "replaced"))
        self.place.begun()
        log.warning("the next version begins a new line", line=epoch.line, after=lost.name)
        return True

    def _grow(self, growth: Growth) -> None:
        """Partitions were added to the topic: their first records come next."""
        progress = self.origin.progress
        had = len(progress.positions)
        progress.control(partitions(had, growth.partitions))
        log.warning("partitions were added; they are learned from offset 0", had=had, has=growth.partitions)

    def _deliver(self, letters: list[DeadLetter]) -> bool:
        """Make dead letters durable, if there are any; False when they are not although a stop came.

        Raises UserError when another learner has taken over.
        """
        signals, report = self.runtime.signals, self.observer.in_trouble
        return not letters or self.letters.deliver(letters, report, lambda: signals.stopping)

    def _apply(self, ready: ReadyBatch) -> StepResult:
        """Run the step over a batch, however long it takes; the reader adapts the size of the next ones."""
        began = time.perf_counter()
        with self.runtime.pulse.patient("the learner's step"):
            done = step(self.origin.state, ready, self.topic)
        seconds = time.perf_counter() - began
        self.reader.learned(ready, seconds)
        self.observer.stepped(done, seconds)
        return done

    def _advance(self, ready: ReadyBatch, done: StepResult) -> None:
        """A batch is applied and its dead letters are durable: the position moves."""
        progress = self.origin.progress
        first = progress.records
        progress.advance(done.applied)
        if self.steps is not None:
            self.steps.applied(first, progress.records, progress.watermark, done)
        self.halts.passed(ready, len(ready.decoded.poison) + done.damaged)
        self.observer.applied(ready, done, self.halts.poison_share)

    def _write_last_version(self) -> None:
        with self.runtime.pulse.patient("writing a version"):
            self.publishing.finish()

    def _should_exit(self, halt: LedgerEntry, until_caught_up: bool) -> bool:
        """Whether a halt ends the run: a batch run does not wait, and a STOP may be set to end any learner.

        Raises UserError for a paused batch run, which must not look finished.
        """
        if is_pause(halt) and until_caught_up:
            raise UserError(
                f"paused, the position is kept: {halt.reason}",
                "`tripletd deadletters` shows the newest; `tripletd resume` lets the next run continue",
                EX_DATAERR,
            )
        return not is_pause(halt) and (until_caught_up or self.exits_on_stop)

    def _hold(self, halt: LedgerEntry) -> bool:
        """Keep the position while a halt is in force. True when a RESUME lifted it, False at a stop."""
        self._look_around(halt)
        state = "paused" if is_pause(halt) else "parked"
        positions = self.origin.progress.next_offsets()
        message = f"{state}, the position is kept; `tripletd resume` resumes it"
        log.warning(message, reason=halt.reason, positions=positions)
        quiet = Quiet(WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        while not self.runtime.signals.wait(quiet.rest_s()):
            now = self.halts.in_force()
            self._look_around(now)
            if now is None:
                log.info("resumed")
                return True
        return False


def end_threads(
    threads: Sequence[BackgroundThread], steps: BackgroundThread | None, in_a_hurry: Callable[[], bool]
) -> None:
    """End the threads, but wait for none for long: what matters is durable, nothing of theirs is needed.

    `steps`: the one that is not worth a long wait, however slow it is.
    """

    def limit_s(running: list[BackgroundThread]) -> float:
        if in_a_hurry():
            return STOP_SECONDS
        return STEPS_SECONDS if running == [steps] else END_SECONDS

    left = end_all(threads, limit_s)
    if left:
        log.info("left behind: the stream did not answer", threads=[thread.name for thread in left])
