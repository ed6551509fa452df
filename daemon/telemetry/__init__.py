"""Metrics and health of every role."""

from daemon.telemetry.build import version
from daemon.telemetry.learn_metrics import LearnMetrics
from daemon.telemetry.serve_metrics import ServeMetrics
from daemon.telemetry.server import Health, TelemetryServer, serve_http
from daemon.telemetry.validate_metrics import ValidateMetrics

__all__ = [
    "Health",
    "LearnMetrics",
    "ServeMetrics",
    "TelemetryServer",
    "ValidateMetrics",
    "serve_http",
    "version",
]
