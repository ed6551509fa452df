"""Metrics and health of every role."""

from daemon.telemetry.build import version
from daemon.telemetry.health import Health
from daemon.telemetry.judging import ValidateMetrics
from daemon.telemetry.metrics import LearnMetrics
from daemon.telemetry.server import TelemetryServer, serve_http

__all__ = ["Health", "LearnMetrics", "TelemetryServer", "ValidateMetrics", "serve_http", "version"]
