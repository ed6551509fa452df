"""What a learner shows: metrics, health and log lines, and why it is not ready."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import numpy as np
import structlog
from prometheus_client import Counter

from checkpoints.entries import LedgerEntry, is_pause
from checkpoints.publisher import Published
from checkpoints.store import CheckpointError
from daemon.learn.housekeeping import Housekeeper, LogBounds
from daemon.learn.reader import Reader
from daemon.learn.step import ReadyBatch, StepResult
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime
from daemon.telemetry import LearnMetrics
from daemon.versions.contents import Arrays, learner_arrays, records_of
from streams.poison import DeadLetter
from streams.source import HeldBack

STALL_SECONDS = 10.0
"""How long records may be seen to wait while the loop has nothing to do, or a question go unanswered."""


class StreamReadiness:
    """Whether the stream answers and learning keeps up with it. Called in every turn of the loop.

    Args:
        reader, housekeeper: the two threads that talk to the stream.
        learned_up_to: per partition, the offset below which nothing is left to learn.
        clock: monotonic, in seconds.
        topic: what is learned, as people name it.
    """

    def __init__(
        self,
        reader: Reader,
        housekeeper: Housekeeper,
        learned_up_to: Callable[[], Mapping[int, int]],
        clock: Callable[[], float],
        topic: str = "",
    ) -> None:
        self._topic, self._reader, self._housekeeper = topic, reader, housekeeper
        self.learned_up_to, self._clock, self._began = learned_up_to, clock, clock()
        self._idle_since: float | None = None  # since when the loop has had nothing to learn
        self._waiting_since: float | None = None  # since when, meanwhile, records have been seen to wait

    @property
    def seen(self) -> LogBounds | None:
        """What the log held when it was last asked."""
        return self._housekeeper.seen

    def turned(self, busy: bool) -> None:
        """The loop went round, with or without something to learn."""
        if busy:
            self._idle_since = self._waiting_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()

    def caught_up(self) -> bool:
        """Whether every record now in the log is applied. Asks the log again where its answer is too old."""
        reached, seen = self._reader.reached(), self.seen
        if reached is None or self._idle_since is None:
            return False
        if seen is None or seen.at < self._idle_since:
            self._housekeeper.hurry()
            return False
        return all(reached.get(partition, -1) >= end for partition, (_, end) in seen.bounds.items())

    def trouble(self) -> str | None:
        """Why not ready, None when ready; the part before the colon stays while the trouble lasts.

        To be called again and again: how long records wait is counted from the first time they are seen.
        """
        away = self._away() or self._transaction_open()
        waiting = 0 if away or self._idle_since is None else self._waiting()
        if not waiting:
            self._waiting_since = None
            return away
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since <= STALL_SECONDS:
            return None
        return f"stalled: {waiting:,} records wait and none came within {STALL_SECONDS:.0f} s"

    def _away(self) -> str | None:
        if self._reader.trouble is not None:
            return f"the stream is unavailable: {self._reader.trouble}"
        if self._housekeeper.trouble is not None:
            return f"the stream does not answer: {self._housekeeper.trouble}"
        asked = self._began if self.seen is None else self.seen.at
        if self._clock() - asked > STALL_SECONDS:
            return f"the stream does not answer: no reply for more than {STALL_SECONDS:.0f} s"
        return None

    def held_back(self) -> Iterator[tuple[int, HeldBack, float]]:
        """(partition, what is held, seconds for which it was seen) where nothing else is left to learn."""
        if self.seen is not None and self.seen.transactions.held:
            yield from self.seen.transactions.reached(self.learned_up_to(), self._clock())

    def _transaction_open(self) -> str | None:
        """Why nothing comes where somebody's transaction stays open; None before it has for a while."""
        if self.seen is None or not self.seen.transactions.held:
            return None
        now = self._clock()
        return self.seen.transactions.trouble(self._topic, self.learned_up_to(), now, STALL_SECONDS)

    def _waiting(self) -> int:
        seen, learned = self.seen, self.learned_up_to()
        if seen is None:
            return 0
        return sum(max(0, end - learned[p]) for p, (_, end) in seen.bounds.items() if p in learned)


WAITING_FOR_DISK = "waiting for the disk: the version before the one that is due is still being written"
DEAD_LINE_EVERY_S = 5.0
NORM_EVERY_S, NORM_SHARE = 30.0, 0.002
"""How often the norm is shown at most, and the share of the time that it may take: reading 400 MB takes about
.1 s, the entries of a sparse W are put in order for it."""

log = structlog.get_logger("tripletd.learn")


class Observer:
    """Called with every batch and version; keeps metrics, health and log lines up to date."""

    def __init__(
        self,
        runtime: RoleRuntime,
        metrics: LearnMetrics,
        readiness: StreamReadiness,
        arrays: Callable[[], Arrays],
        clock: Callable[[], float],
    ) -> None:
        self._metrics, self._runtime, self.readiness = metrics, runtime, readiness
        self._arrays, self._clock = arrays, clock
        self._newest: dict[int, int] = {}
        self._before = 0  # newest event time, ms, in the version that the run began from
        self._shown: LogBounds | None = None
        self._norm_due = self._dead_at = float("-inf")
        self._dead_unsaid = 0
        self._reporter = ReadinessReporter(runtime.health, runtime.notifier, log, "learning")
        self._skipped = Counter(
            "tripletd_checkpoint_skipped",
            "Versions due by the clock while the one before was still being written",
            registry=self._metrics.registry,
        )
        self._waited = Counter(
            "tripletd_checkpoint_wait_seconds",
            "Seconds learning waited for the disk, with a version due by checkpoints.every_events",
            registry=self._metrics.registry,
        )
        self._waited_s: float | None = None  # of the wait at hand; None before the first

    def resumed(self, version: int, watermark: int | None) -> None:
        """Show where the run begins: a version, and the newest event time (ms) in it."""
        self._metrics.version.set(version)
        if watermark is not None:
            self._before = watermark
            self._metrics.watermark.set(watermark / 1000)
        self._weight_norm()

    def beat(self, halt: LedgerEntry | None = None, *, trouble: str | None = None) -> None:
        """Once per turn: the loop moves; ready unless halted, in trouble, or without its stream."""
        self._runtime.pulse.beat("a turn of the loop")
        if halt is not None:
            self.readiness.turned(busy=True)  # nothing is learned on purpose: no stall begins here
        paused = halt is not None and is_pause(halt)
        self._metrics.parked.set(halt is not None and not paused)
        self._metrics.paused.set(paused)
        reason = halt_reason(halt) if halt is not None else trouble or self.readiness.trouble()
        self._reporter.now(reason)

    def folder(self, how: str, losses: Mapping[str, int]) -> None:
        """How the checkpoint folder is lost now, and how often it was so far."""
        self._metrics.folder.record(how, losses)

    def idle(self) -> AbstractContextManager[None]:
        """Around the wait for a batch: its time is the loop's idle time."""
        return self._metrics.phase("idle")

    def stepped(self, step: StepResult, seconds: float) -> None:
        """One batch went through the learner's step."""
        self._metrics.add_phase("step", seconds)
        if len(step.info):
            self._metrics.record_batch(step.info.outcome, step.info.loss, step.info.tau, seconds)

    def applied(self, ready: ReadyBatch, step: StepResult, poison_share: float) -> None:
        """One batch is applied and its dead letters are durable."""
        metrics = self._metrics
        metrics.add_phase("poll", ready.poll_seconds)
        metrics.add_phase("decode", ready.decode_seconds)
        metrics.record_stepless(step.duplicates, len(step.capped), step.aside)
        metrics.keys.evicted.inc(step.info.evicted)
        metrics.poison_share.set(poison_share)
        dead = [*ready.decoded.poison, *step.letters]
        if dead:
            metrics.record_dead_letters(Tally(letter.reason for letter in dead))
            self._say_dead(dead)
        if step.applied.newest_ts is not None:
            self._newest[step.applied.partition] = step.applied.newest_ts
            metrics.watermark.set(max(self._before, *self._newest.values()) / 1000)
        self._weight_norm()

    def lag(self) -> None:
        """Show records and seconds behind, per partition, once for every answer of the log."""
        seen = self.readiness.seen
        if seen is None or seen is self._shown:
            return
        self._shown = seen
        learned, now_ms = self.readiness.learned_up_to(), time.time() * 1000
        for partition in seen.bounds:
            waiting = max(0, seen.newest(partition) - learned.get(partition, 0))
            newest = self._newest.get(partition)
            behind = max(0.0, (now_ms - newest) / 1000) if waiting and newest is not None else 0.0
            self._metrics.record_lag(partition, waiting, behind)
        self._metrics.held_back.record(seen.transactions, seen.bounds, seen.at)

    def published(self, result: Published) -> None:
        """A version is durable."""
        number = result.manifest.number
        self._metrics.record_checkpoint(number, result.seconds, result.bytes)
        self._metrics.add_phase("checkpoint", result.stall_seconds)
        log.info(
            "version written",
            version=number,
            records=records_of(result.manifest),
            updated=result.manifest.counters.get("updated", 0),
            seconds=round(result.seconds, 3),
            bytes=result.bytes,
        )

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written; learning continues."""
        self._metrics.checkpoint_failures.inc()
        log.error("version could not be written; learning continues", error=str(error))

    def skipped(self) -> None:
        """A version was due too soon."""
        self._skipped.inc()
        log.info("version skipped: the one before is still being written")

    def waits_for_disk(self, seconds: float) -> None:
        """A version due by its count has waited so long for the one before: said once, and counted; not ready
        after `STALL_SECONDS`.
        """
        if self._waited_s is None:
            log.info(
                "waiting for the disk: versions come faster than they are written (checkpoints.every_events)"
            )
        before = self._waited_s if self._waited_s is not None and self._waited_s <= seconds else 0.0
        self._waited.inc(seconds - before)
        self._waited_s = seconds
        self.readiness.turned(busy=True)  # nothing is learned on purpose: no stall begins here
        is_long = seconds > STALL_SECONDS
        self._reporter.now(WAITING_FOR_DISK if is_long else self.readiness.trouble())

    def _say_dead(self, letters: list[DeadLetter]) -> None:
        """A line for the first and then at most one per `DEAD_LINE_EVERY_S`: each letter is in its topic."""
        self._dead_unsaid += len(letters)
        if self._clock() - self._dead_at < DEAD_LINE_EVERY_S:
            return
        newest = {name: getattr(letters[-1], name) for name in ("partition", "offset", "reason", "detail")}
        log.warning("dead letters", count=self._dead_unsaid, **newest)
        self._dead_at, self._dead_unsaid = self._clock(), 0

    def _weight_norm(self) -> None:
        began = self._clock()
        if began >= self._norm_due:
            self._metrics.weight_norm.set(weight_norm(self._arrays()))
            ended = self._clock()
            self._norm_due = ended + max(NORM_EVERY_S, (ended - began) / NORM_SHARE)


def weight_norm(arrays: Arrays) -> float:
    """The Frobenius norm of the learner's matrix W, or of all its arrays of fractions where it has none."""
    own = learner_arrays(arrays)
    weights = [own["W"]] if "W" in own else [array for array in own.values() if array.dtype.kind == "f"]
    return float(np.linalg.norm([np.linalg.norm(array) for array in weights]))


def halt_reason(halt: LedgerEntry) -> str:
    """Why a halted learner is not ready."""
    if is_pause(halt):
        return f"paused: {halt.reason}; `tripletd resume` continues now"
    why = f"parked: stopped by {halt.by or 'the ledger'}: {halt.reason or 'no reason given'}"
    return f"{why}; `tripletd resume` continues now"
