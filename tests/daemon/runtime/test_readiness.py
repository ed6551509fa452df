"""Readiness as it is told: always to those who ask, to the log only when it changed."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from daemon.runtime.runtime import ReadinessReporter
from daemon.runtime.watchdog import Notifier
from daemon.telemetry import Health


def test_what_is_on_its_way_is_no_news_but_what_comes_of_it_is():
    health = Health()
    health.started()
    with capture_logs() as said:
        readiness = ReadinessReporter(health, Notifier({}), structlog.get_logger(), "answering")
        readiness.now("stable: being loaded", loading=True)
        assert health.readiness() == "stable: being loaded"
        readiness.now(None)
        readiness.now("stable: being loaded", loading=True)
        readiness.now("stable: no version yet")
    assert [(line["event"], line["log_level"]) for line in said] == [
        ("ready", "info"),
        ("not ready", "warning"),
    ]


def test_only_changes_are_logged():
    health = Health()
    health.started()
    with capture_logs() as said:
        readiness = ReadinessReporter(health, Notifier({}), structlog.get_logger(), "learning")
        readiness.now(None)
        assert health.readiness() is None
        for reason in ("stream: refused", "stream: no answer", "3 of 40 impressions", "4 of 40 impressions"):
            readiness.now(reason)
            assert health.readiness() == reason
        readiness.now(None)
        assert health.readiness() is None
    assert [(line["event"], line.get("reason")) for line in said] == [
        ("not ready", "stream: refused"),
        ("not ready", "3 of 40 impressions"),
        ("ready", None),
    ]
