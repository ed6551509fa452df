"""Metrics and health of every role."""

from daemon.telemetry.metrics import LearnMetrics, ValidateMetrics, version
from daemon.telemetry.server import Health, TelemetryServer, serve_http

__all__ = ["Health", "LearnMetrics", "TelemetryServer", "ValidateMetrics", "serve_http", "version"]
