"""What the learning loop works with: the threads beside it, and what they hand to each other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from checkpoints.ledger import LedgerEntry
from daemon.learn.applying.apply import Step, step
from daemon.learn.applying.ready import Ready
from daemon.learn.halts import Halts
from daemon.learn.observe import Observer
from daemon.learn.readiness import STALL_SECONDS
from daemon.learn.starting.origin import Origin
from daemon.learn.steps.handover import Handover
from daemon.learn.threads.group import Threads
from daemon.learn.threads.reader import Reader
from daemon.learn.writing.publishing import Publishing
from daemon.process.outside import Outside
from streams.poison import DeadLetter

LETTER_SECONDS = 0.3  # what dead letters get to become durable after a stop


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The topic that is learned, and what a STOP means: "park" or "exit"."""

    topic: str
    on_stop: str


@dataclass(frozen=True, slots=True)
class LoopParts:
    """One learning loop's parts. Only this thread touches the state, the progress and the publishing."""

    outside: Outside
    settings: LoopSettings
    origin: Origin
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

    def next_batch(self, timeout_s: float) -> Ready | None:
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

    def apply(self, ready: Ready) -> Step:
        """Run the step over a batch: as long as it takes, but the next batch is made to take less."""
        began = time.perf_counter()
        with self.outside.pulse.patient("the learner's step"):
            done = step(self.origin.state, ready, self.settings.topic)
        seconds = time.perf_counter() - began
        self.threads.reader.learned(ready, seconds)
        self.observer.stepped(done, seconds)
        return done

    def learned(self, ready: Ready, done: Step) -> None:
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


def stands(origin: Origin, reader: Reader) -> dict[int, int]:
    """Per partition, the offset below which nothing is left to learn, gaps without records included."""
    applied = origin.progress.next_offsets()
    reached = reader.reached() or {}
    return {partition: max(at, reached.get(partition, at)) for partition, at in applied.items()}
