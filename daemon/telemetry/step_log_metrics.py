"""The numbers of the step log that `learn` exports."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
