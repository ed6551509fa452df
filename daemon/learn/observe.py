"""What the learner shows of itself: metrics, health, log lines, retention of old versions."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np
import structlog
from prometheus_client import Counter

from checkpoints.errors import CheckpointError
from checkpoints.ledger import LedgerEntry
from checkpoints.publisher import Published
from daemon.learn.apply import Step
from daemon.learn.pipeline import Reader, Ready
from daemon.telemetry import Health, LearnMetrics
from daemon.versions.arrays import Arrays
from streams.deadletter import DeadLetter
from streams.errors import StreamUnavailable

STUCK_SECONDS = 30.0  # a poll returns within a fraction of a second, whatever the broker does
LAG_EVERY_S = 1.0
DEAD_LINE_EVERY_S = 5.0
NORM_EVERY_S = 30.0  # reading 400 MB takes about 0.1 s
POISON_WINDOW = 10_000  # records
POISON_SHARE = 0.5

log = structlog.get_logger("tripletd.learn")


class PoisonShare:
    """The share of dead letters among the last `POISON_WINDOW` records."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._records = 0
        self._dead = 0

    def add(self, records: int, dead: int) -> None:
        """Count one batch."""
        self._batches.append((records, dead))
        self._records += records
        self._dead += dead
        while self._records - self._batches[0][0] >= POISON_WINDOW:
            old_records, old_dead = self._batches.popleft()
            self._records -= old_records
            self._dead -= old_dead

    @property
    def too_high(self) -> bool:
        """Whether more than `POISON_SHARE` of a full window is poison."""
        return self._records >= POISON_WINDOW and self._dead > POISON_SHARE * self._records


class Observer:
    """Hears of every batch and version and keeps metrics and health true."""

    def __init__(
        self,
        metrics: LearnMetrics,
        health: Health,
        reader: Reader,
        arrays: Callable[[], Arrays],
        clock: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._reader = reader
        self._arrays = arrays
        self._clock = clock
        self._poison = PoisonShare()
        self._newest: dict[int, int] = {}
        self._lag_at = self._norm_at = self._dead_at = float("-inf")
        self._dead_unsaid = 0
        self._unready: str | None = None
        self._skipped = Counter(
            "tripletd_checkpoint_skipped",
            "Versions due while the one before was still being written",
            registry=metrics.registry,
        )

    def beat(self, halted: str | None = None) -> None:
        """Once per turn: the loop moves; ready unless halted, without its stream, or fed mostly poison."""
        if self._reader.silent_seconds() < STUCK_SECONDS:
            self._health.beat()
        reason = halted or self._trouble()
        self._health.set_ready(reason)
        if reason != self._unready:
            log.warning("not ready", reason=reason) if reason else log.info("ready")
            self._unready = reason

    def parked(self, by: LedgerEntry | None) -> None:
        """Parked by a STOP, or (None) no longer."""
        self._metrics.parked.set(by is not None)
        if by is not None:
            self.beat(f"parked: stopped by {by.by or 'the ledger'}: {by.reason or 'no reason given'}")

    def idle(self) -> AbstractContextManager[None]:
        """Around the wait for a batch: its time is the loop's idle time."""
        return self._metrics.phase("idle")

    def applied(self, ready: Ready, step: Step, seconds: float) -> None:
        """One batch is applied and its dead letters are durable."""
        metrics = self._metrics
        metrics.add_phase("poll", ready.poll_seconds)
        metrics.add_phase("decode", ready.decode_seconds)
        metrics.add_phase("step", seconds)
        if len(step.info):
            metrics.record_batch(step.info.outcome, step.info.loss, step.info.tau, seconds)
        metrics.record_duplicates(step.duplicates)
        if step.dead:
            metrics.record_dead_letters(Tally(letter.reason for letter in step.dead))
            self._say_dead(step.dead)
        self._poison.add(ready.records, len(step.dead))
        if step.applied.newest_ts is not None:
            self._newest[step.applied.partition] = step.applied.newest_ts
            metrics.watermark.set(max(self._newest.values()) / 1000)
        self._weight_norm()

    def keep_trying(self, wait: Callable[[float], bool]) -> Callable[[float, Exception], bool]:
        """A `wait` for dead letters that are refused: says why nothing moves; True when told to end."""

        def waiting(seconds: float, error: Exception) -> bool:
            self.beat(f"dead letters cannot be written: {error}")
            return wait(seconds)

        return waiting

    def lag(self, bounds: Callable[[], Mapping[int, tuple[int, int]]], offsets: Mapping[int, int]) -> None:
        """At most once a second: records and seconds behind, per partition."""
        if self._clock() - self._lag_at < LAG_EVERY_S:
            return
        self._lag_at = self._clock()
        now_ms = time.time() * 1000
        try:
            ends = bounds()
        except StreamUnavailable:
            return
        for partition, (_, end) in ends.items():
            waiting = max(0, end - offsets[partition])
            newest = self._newest.get(partition)
            behind = max(0.0, (now_ms - newest) / 1000) if waiting and newest is not None else 0.0
            self._metrics.record_lag(partition, waiting, behind)

    def published(self, result: Published) -> None:
        """A version is durable."""
        number = result.manifest.number
        self._metrics.record_checkpoint(number, result.seconds, result.bytes)
        self._metrics.add_phase("checkpoint", result.stall_seconds)
        log.info(
            "version written",
            version=number,
            records=result.manifest.counters.get("records", 0),
            updated=result.manifest.counters.get("updated", 0),
            seconds=round(result.seconds, 3),
            bytes=result.bytes,
        )

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written; learning goes on."""
        self._metrics.checkpoint_failed()
        log.error("version could not be written; learning goes on", error=str(error))

    def skipped(self) -> None:
        """A version was due too soon."""
        self._skipped.inc()
        log.info("version skipped: the one before is still being written")

    def _say_dead(self, letters: list[DeadLetter]) -> None:
        """A line for the first and then at most one per `DEAD_LINE_EVERY_S`: each letter is in its topic."""
        self._dead_unsaid += len(letters)
        if self._clock() - self._dead_at < DEAD_LINE_EVERY_S:
            return
        newest = letters[-1]
        log.warning(
            "dead letters",
            count=self._dead_unsaid,
            partition=newest.partition,
            offset=newest.offset,
            reason=newest.reason,
            detail=newest.detail,
        )
        self._dead_at, self._dead_unsaid = self._clock(), 0

    def _weight_norm(self) -> None:
        if self._clock() - self._norm_at >= NORM_EVERY_S:
            self._norm_at = self._clock()
            W = self._arrays().get("W")
            if W is not None:
                self._metrics.weight_norm.set(float(np.linalg.norm(W)))

    def _trouble(self) -> str | None:
        if self._reader.trouble is not None:
            return f"the stream is unavailable: {self._reader.trouble}"
        if self._poison.too_high:
            return f"more than {POISON_SHARE:.0%} of the last {POISON_WINDOW} records are dead letters"
        return None
