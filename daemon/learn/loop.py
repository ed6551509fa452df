"""The learning loop: one batch after another, in a commit order that keeps every version consistent with its
position; and what halts it.

A STOP of the validator halts learning, or its own pause because of poison. Both are ledger entries, so they
outlast a restart, and another process lifts them. A pause is lifted only by a RESUME for it. Records before
the place of the pause then no longer count, so that the same ones do not cause another pause, now or after a
restart; the records of another topic do count.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import structlog

from checkpoints import PAUSE, Ledger, LedgerEntry, VersionStore, is_pause, new_line, stop_in_force
from checkpoints.store import CheckpointError, Unreachable
from daemon.config.learners import LearnerConfig
from daemon.dead_letters import DeadLetterWriter
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, UserError
from daemon.learn.adopting import MergeWatch
from daemon.learn.compatible import Gap, records_gone
from daemon.learn.housekeeping import Housekeeper
from daemon.learn.merges import take_over
from daemon.learn.observe import Observer
from daemon.learn.publishing import PlaceWatch, Publishing
from daemon.learn.reader import Growth, Reader
from daemon.learn.resume.origin import RunOrigin
from daemon.learn.state import line, partitions
from daemon.learn.step import ReadyBatch, StepResult, step
from daemon.learn.steplog.publisher import StepPublisher
from daemon.runtime.in_hand import STEP, InHand
from daemon.runtime.runtime import RoleRuntime
from daemon.runtime.watchdog import BackgroundThread, end_all
from daemon.versions.contents import DROPPED, POISON, REJECTED, counted, records_of
from daemon.versions.race import dropping, race_entry
from daemon.versions.shards import ShardRecord
from streams.errors import OffsetExpired
from streams.partitions import end_of_transaction
from streams.poison import DeadLetter
from streams.source import Quiet

WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 0.25
"""How soon an idle loop sees verdicts, and after a long pause; batches and signals wake it at once."""
STOP_SECONDS = 0.4  # what the threads get to end after a stop: one of them may wait for a broker that is dead
END_SECONDS = 10.0  # and after the end of the stream, when nobody is in a hurry
STEPS_SECONDS = 2.0  # but no longer for the step log alone: replicas can do without its end

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class LearnLoop:
    """Events in, versions out. Only the thread in `run` touches the state, the progress and the publishing.

    steps: writes the step log, None where there is none. topic: what is learned, as dead letters name it.
    exits_on_stop: whether a STOP of the validator ends the run; otherwise it waits for a RESUME. merges: of a
    shard, brings the merged versions. config: the learner's settings. in_hand: notes what is learned now,
    for the start after a death.
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
    merges: MergeWatch | None
    config: LearnerConfig
    in_hand: InHand

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
                asked = signals.take_checkpoint_request() or is_new_line
                self.publishing.tick(asked, self._wait_for_disk)  # 5, 6, 7
            self._adopt()
            self._drop_arms()
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

    def _wait_for_disk(self, seconds: float) -> bool:
        """A version that is due by its count has waited so long for the one before; False at a stop."""
        if self.housekeeper.error is not None:
            raise self.housekeeper.error
        self.observer.waits_for_disk(seconds)
        return not self.runtime.signals.stopping

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
        progress, describe = self.origin.progress, self.origin.describe
        had, describe.partitions = describe.partitions, growth.partitions
        shard = ShardRecord.read(progress.shard, "what is learned").shard if progress.shard else None
        progress.control(partitions(had, growth.partitions, shard))
        log.warning("partitions were added; they are learned from offset 0", had=had, has=growth.partitions)

    def _adopt(self) -> None:
        """Go on from a merged version where one has come, with what was learned since on top of it."""
        adoption = None if self.merges is None else self.merges.take()
        if adoption is None:
            return
        with self.runtime.pulse.patient("taking over a merged version"):
            take_over(self.origin.state, adoption.merged, adoption.held, self.config)
        self.origin.progress.control(adoption.entry)
        log.info("a merged version is taken over", merged=adoption.merged.manifest.name)

    def _drop_arms(self) -> None:
        """Go on without the arms that a judgment gave up."""
        describe, names = self.origin.describe, self.halts.dropped
        race = dropping(describe.run.learner_config, names) if names else None
        if race is not None:
            entry = race_entry(race)
            self.origin.state.obey(entry)
            self.origin.progress.control(entry)
            describe.change(race)
            arms = [one["name"] for one in race[DROPPED]]
            log.info("arms that others surely surpass are dropped", arms=arms)

    def _deliver(self, letters: list[DeadLetter]) -> bool:
        """Make dead letters durable, if there are any; False when they are not although a stop came.

        Raises UserError when another learner has taken over.
        """
        return self.letters.deliver(
            letters, lambda why: self.observer.beat(trouble=why), lambda: self.runtime.signals.stopping
        )

    def _apply(self, ready: ReadyBatch) -> StepResult:
        """Run the step over a batch, however long it takes; the reader adapts the size of the next ones."""
        began = time.perf_counter()
        held = self.in_hand.hold(STEP, ready.polled, ready.alone)
        with self.runtime.pulse.patient("the learner's step"), held:
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
        message = f"{state}, the position is kept; `tripletd resume` continues now"
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


class PoisonGate:
    """The share of dead letters among the newest `window` records, and whether it is above `share`.

    Records before `forgive`'s positions do not count: somebody has looked at them and resumed learning.
    """

    def __init__(self, share: float, window: int) -> None:
        self._limit, self.window = share, window
        self._batches: deque[tuple[int, float]] = deque()
        self._records, self._dead = 0, 0.0
        self._forgiven: dict[int, int] = {}

    @property
    def share(self) -> float:
        """Dead letters among the records that count; 0 without any."""
        return self._dead / self._records if self._records else 0.0

    def forgive(self, positions: Mapping[int, int]) -> None:
        """Start counting again: nothing counts below these next offsets per partition."""
        self._batches.clear()
        self._records, self._dead = 0, 0.0
        self._forgiven = dict(positions)

    def forgives(self, positions: Mapping[int, int]) -> bool:
        """Whether records at these positions come before those that count."""
        return any(at < self._forgiven.get(partition, 0) for partition, at in positions.items())

    def passed(self, partition: int, first_offset: int, records: int, dead: int) -> None:
        """Count one batch of a partition, learned just now."""
        if not self.forgives({partition: first_offset}):
            self.count(records, dead)

    def count(self, records: int, dead: int) -> None:
        """Count a batch, which is newer than all before. Of the oldest that no longer fits in the window as a
        whole, a part counts, as if its dead letters were spread evenly.
        """
        self._batches.append((records, dead))
        self._records += records
        self._dead += dead
        while (excess := self._records - self.window) > 0:
            old_records, old_dead = self._batches.popleft()
            kept = max(0, old_records - excess)
            dead_kept = old_dead * kept / old_records
            self._records -= old_records - kept
            self._dead -= old_dead - dead_kept
            if kept:
                self._batches.appendleft((kept, dead_kept))

    def too_much(self) -> str | None:
        """Why to pause, in words; None while there is no reason or too few records to tell."""
        if self._records < self.window or self.share <= self._limit:
            return None
        return f"{self._dead:,.0f} of the last {self._records:,} records are dead letters"


LOOK_EVERY_S = 0.3
MOST_LOOKING = 20.0
"""A look is followed by a rest of at least so many times its length."""
LEARN = "learn"
POSITIONS = "positions"
TOPIC_ID = "topic_id"
NOT_WRITTEN = 0  # entries are numbered from 1


class Halts:
    """Looks at the ledger at most every `LOOK_EVERY_S` seconds and remembers what it has read."""

    def __init__(
        self,
        ledger: Ledger,
        gate: PoisonGate,
        positions: Callable[[], Mapping[int, int]],
        clock: Callable[[], float],
        topic_id: str,
        *,
        first: int | None = None,
    ) -> None:
        """first: number of the first version of this run; what is said of the arms of older ones, which may
        have been others, is passed over. None where no arm is to be dropped."""
        self._ledger, self._gate, self._positions = ledger, gate, positions
        self._clock, self._topic_id, self._first = clock, topic_id, first
        self.dropped: set[str] = set()
        """Names of arms that judgments of this run's versions gave up."""
        self._seen = 0
        self._checked_at = float("-inf")
        self._stop: LedgerEntry | None = None
        self._pause: LedgerEntry | None = None
        self._away = False

    def in_force(self) -> LedgerEntry | None:
        """The STOP or pause that the learner must obey now, or None."""
        if self._clock() - self._checked_at >= LOOK_EVERY_S:
            began = self._clock()
            self._look()
            # A ledger that is far away takes no more than a twentieth of the loop's time.
            self._checked_at = self._clock() + MOST_LOOKING * (self._clock() - began)
            if self._pause is not None and self._pause.n == NOT_WRITTEN:
                self._write_pause(self._pause.reason)
        why = self._gate.too_much()
        if why is not None and self._pause is None:
            self._write_pause(why)
        return self._pause or self._stop

    def passed(self, ready: ReadyBatch, dead: int) -> None:
        """A batch is learned, `dead` of its records became dead letters."""
        self._gate.passed(ready.polled.partition, ready.polled.offsets[0], ready.records, dead)

    @property
    def poison_share(self) -> float:
        """Dead letters among the newest records."""
        return self._gate.share

    def _look(self) -> None:
        try:
            entries = self._ledger.poll(
                after=self._seen, report=lambda error: log.warning("verdict passed over", error=str(error))
            )
        except Unreachable as error:
            if not self._away:
                log.warning("the ledger cannot be reached: what it said last holds", error=str(error))
            self._away = True
            return
        self._away = False
        if not entries:
            return
        self._seen = entries[-1].n
        self._stop = stop_in_force(entries, self._stop)
        for entry in entries:
            if self._first is not None and entry.version is not None and entry.version >= self._first:
                self.dropped |= dropped_arms(entry)
        for entry in filter(is_pause, entries):
            if entry.kind == "STOP":
                self._pause = entry
            elif entry.kind == "RESUME" and self._pause is not None:
                self._gate.forgive(_positions_of(self._pause, self._topic_id))
                self._pause = None

    def _write_pause(self, why: str) -> None:
        """Pause, and make it outlast a restart; tried again at every look while the disk refuses."""
        at = {str(partition): offset for partition, offset in sorted(self._positions().items())}
        measures = {PAUSE: POISON, POSITIONS: at, TOPIC_ID: self._topic_id}
        entry: dict[str, Any] = {"kind": "STOP", "by": LEARN, "reason": why, "measures": measures}
        try:
            self._pause = self._ledger.append(entry)
        except CheckpointError as error:
            if self._pause is None:
                log.error("the pause could not be written to the ledger", error=str(error))
            self._pause = LedgerEntry(n=NOT_WRITTEN, **entry)


def remember_poison(gate: PoisonGate, versions: VersionStore, newest: int, topic_id: str) -> None:
    """Count what the newest versions say of the records before them: no restart walks on through poison.

    Goes back from `newest`, parent by parent, until the window is full, a version cannot be read, or learned
    from another topic.
    """
    spans: list[tuple[int, int]] = []
    with suppress(CheckpointError):  # pruned or damaged: what is known counts
        version = versions.manifest(newest)
        while version.parent is not None and sum(records for records, _ in spans) < gate.window:
            parent = versions.manifest(version.parent)
            offsets = {p: at.next_offset for p, at in parent.positions.items()}
            if parent.stream.get(TOPIC_ID) != topic_id or gate.forgives(offsets):
                break
            dead = counted(version.counters, POISON, REJECTED) - counted(parent.counters, POISON, REJECTED)
            spans.append((records_of(version) - records_of(parent), dead))
            version = parent
    for records, dead in reversed(spans):
        gate.count(records, dead)


def dropped_arms(entry: LedgerEntry) -> set[str]:
    """The arms that a judgment gave up, by name."""
    names = entry.measures.get(DROPPED)
    return set(map(str, names)) if isinstance(names, list | tuple) else set()


def _positions_of(pause: LedgerEntry, topic_id: str) -> dict[int, int]:
    """Where it was made; nothing when that was in another topic, or somebody else wrote the entry."""
    found = pause.measures.get(POSITIONS)
    if not isinstance(found, Mapping) or pause.measures.get(TOPIC_ID, topic_id) != topic_id:
        return {}
    return {int(p): at for p, at in found.items() if str(p).isdecimal() and isinstance(at, int)}
