"""The metrics that `learn` exports: the loop, checkpoints, keys and the step log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from daemon.telemetry.build import add_build_info
from daemon.telemetry.histogram import ArrayHistogram


class KeyMetrics:
    """All 0 where one model learns all events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._used = Gauge("tripletd_keys_used", "Keys that have a model", registry=registry)
        self._slots = Gauge("tripletd_keys_slots", "Most keys that can have a model", registry=registry)
        self.evicted = Counter(
            "tripletd_keys_evicted", "Keys whose model was given up for another key's", registry=registry
        )

    def follow(self, slots: int, used: Callable[[], int]) -> None:
        """Ask `used` for the keys that have a model whenever it is read, in any thread."""
        self._slots.set(slots)
        self._used.set_function(used)


OUTCOMES = ("updated", "passive", "degenerate", "rejected", "duplicate", "capped")
PHASES = ("poll", "decode", "step", "checkpoint", "idle")

_LOSS_EDGES = (0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 10.0)
_TAU_EDGES = (1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
_STEP_EDGES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1, 1.0)
_CHECKPOINT_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_UPDATED, _REJECTED = 0, 3


class LearnMetrics:
    """Counters, gauges and histograms of one learner; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._events = _preset(
            Counter("tripletd_events", "Events by outcome of their step", ["outcome"], registry=registry),
            OUTCOMES,
        )
        self._dead_letters = Counter(
            "tripletd_dead_letters", "Dead letters by reason", ["reason"], registry=registry
        )
        self._lag_events = Gauge(
            "tripletd_lag_events", "Records not yet learned", ["partition"], registry=registry
        )
        self._lag_seconds = Gauge(
            "tripletd_lag_seconds",
            "Age of the last learned event while records wait",
            ["partition"],
            registry=registry,
        )
        self._phases = _preset(
            Counter("tripletd_loop_seconds", "Loop time by phase", ["phase"], registry=registry), PHASES
        )
        self._step = ArrayHistogram("tripletd_step_seconds", "Seconds of one step", _STEP_EDGES, registry)
        self._loss = ArrayHistogram("tripletd_loss", "Hinge loss before the step", _LOSS_EDGES, registry)
        self._tau = ArrayHistogram("tripletd_tau", "Step size tau of updates", _TAU_EDGES, registry)
        self.weight_norm = Gauge(
            "tripletd_weight_norm", "Norm of the matrix W, or of all that is learned", registry=registry
        )
        self.version = Gauge("tripletd_version", "Newest version written", registry=registry)
        self.watermark = Gauge(
            "tripletd_watermark_seconds", "Newest event time learned, Unix seconds", registry=registry
        )
        self.parked = Gauge("tripletd_parked", "1 while parked by a STOP verdict", registry=registry)
        self.paused = Gauge("tripletd_paused", "1 while paused for poison", registry=registry)
        self.poison_share = Gauge(
            "tripletd_poison_share", "Dead letters among the newest records", registry=registry
        )
        self.keys = KeyMetrics(registry)
        self._checkpoints = _CheckpointMetrics(registry)
        ProcessCollector(registry=registry)
        add_build_info(registry, "learn")

    def record_batch(
        self,
        outcome: npt.NDArray[np.uint8],
        loss: npt.NDArray[np.float32],
        tau: npt.NDArray[np.float32],
        seconds: float,
    ) -> None:
        """Add one kernel call: per-event outcome, loss and tau [n] and the call's seconds."""
        counts = np.bincount(outcome, minlength=len(OUTCOMES))
        for name, count in zip(OUTCOMES, counts.tolist(), strict=True):
            if count:
                self._events[name].inc(count)
        self._loss.observe_many(loss[outcome != _REJECTED])
        self._tau.observe_many(tau[outcome == _UPDATED])
        self._step.observe_mean(seconds, len(outcome))

    def record_duplicates(self, count: int) -> None:
        """Add events whose id was known: no step was made of them."""
        if count:
            self._events["duplicate"].inc(count)

    def record_capped(self, count: int) -> None:
        """Add events that a cap refused."""
        if count:
            self._events["capped"].inc(count)

    def record_dead_letters(self, by_reason: Mapping[str, int]) -> None:
        """Add dead letters; reasons are the closed list of the streams package."""
        for reason, count in by_reason.items():
            self._dead_letters.labels(reason).inc(count)

    def record_lag(self, partition: int, events: int, seconds: float) -> None:
        """Set what is still to be learned of a partition: records, and seconds behind."""
        self._lag_events.labels(str(partition)).set(events)
        self._lag_seconds.labels(str(partition)).set(seconds)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the enclosed part of the loop; `name` is one of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name].inc(time.perf_counter() - start)

    def add_phase(self, name: str, seconds: float) -> None:
        """Add seconds measured elsewhere (the reader thread's poll and decode)."""
        self._phases[name].inc(seconds)

    def record_checkpoint(self, number: int, seconds: float, size: int) -> None:
        """A version is durable: its number, seconds from capture to durable, bytes."""
        self.version.set(number)
        self._checkpoints.written(seconds, size)

    def checkpoint_failed(self) -> None:
        """A version could not be written; learning goes on and the alarm counter rises."""
        self._checkpoints.failures.inc()


class _CheckpointMetrics:
    """Seconds, bytes, age and failures of checkpoints; the age is taken when it is read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "tripletd_checkpoint_seconds",
            "From capture to durable",
            buckets=_CHECKPOINT_EDGES,
            registry=registry,
        )
        self._bytes = Gauge("tripletd_checkpoint_bytes", "Size of the newest version", registry=registry)
        self.failures = Counter(
            "tripletd_checkpoint_failures", "Versions that could not be written", registry=registry
        )
        self._written_at = time.monotonic()
        age = Gauge(
            "tripletd_checkpoint_age_seconds", "Since the newest version, or since start", registry=registry
        )
        age.set_function(lambda: time.monotonic() - self._written_at)

    def written(self, seconds: float, size: int) -> None:
        self._seconds.observe(seconds)
        self._bytes.set(size)
        self._written_at = time.monotonic()


def _preset(counter: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """One child per name, so that every series exists from the start at zero."""
    return {name: counter.labels(name) for name in names}


_SEND_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class StepLogMetrics:
    """Counters and gauges of one publishing thread."""

    def __init__(self, registry: CollectorRegistry, break_reasons: tuple[str, ...]) -> None:
        self.segments = Counter(
            "tripletd_step_log_segments", "Segments written to the step log", registry=registry
        )
        self.steps = Counter("tripletd_step_log_steps", "Applied steps in them", registry=registry)
        self.bytes = Counter("tripletd_step_log_bytes", "Bytes of their records", registry=registry)
        self.breaks = Counter(
            "tripletd_step_log_breaks",
            "Times that steps began to be left out, by reason",
            ["reason"],
            registry=registry,
        )
        for reason in break_reasons:
            self.breaks.labels(reason)
        self.broken = Gauge(
            "tripletd_step_log_broken",
            "1 while steps are left out, up to the next version",
            registry=registry,
        )
        self.unavailable = Gauge(
            "tripletd_step_log_unavailable", "1 while the step log cannot be written", registry=registry
        )
        self.send_seconds = Histogram(
            "tripletd_step_log_send_seconds", "Seconds of one write", buckets=_SEND_EDGES, registry=registry
        )
        self.busy_seconds = Counter(
            "tripletd_step_log_cpu_seconds", "Processor time of the publishing thread", registry=registry
        )
