"""A name that stands still although something newer is there is told: as a metric, and in `status`."""

from __future__ import annotations

import time

from prometheus_client import generate_latest

from daemon.look.live import AliasStatus, ServeStatus
from daemon.replica.view import ModelId, ReplicaStatus
from daemon.serve.metrics import ServeMetrics
from daemon.telemetry.server import Health, status_of


def read(behind_since: float | None) -> tuple[str, AliasStatus]:
    metrics = ServeMetrics(["latest"])
    state = ReplicaStatus(
        "latest", ModelId(7, 0, None, 70), time.time(), "", "steps", behind_since=behind_since
    )
    metrics.follow(lambda: [state], lambda: None, dict)
    found = status_of(metrics.registry, Health())
    assert isinstance(found, ServeStatus)
    return generate_latest(metrics.registry).decode(), found.aliases["latest"]


def test_how_long_something_newer_has_been_there_is_a_metric_and_a_word_of_status() -> None:
    text, status = read(time.time() - 300)
    (line,) = [one for one in text.splitlines() if one.startswith("tripletd_served_behind_seconds{")]
    assert 299 < float(line.split()[-1]) < 360
    assert "stands still, though something newer has been there for 5 m" in status.line(time.time())


def test_what_is_the_newest_or_about_to_be_loaded_is_not_told() -> None:
    text, status = read(None)
    assert 'tripletd_served_behind_seconds{alias="latest"} 0.0' in text
    assert "stands still" not in status.line(time.time())
    assert "stands still" not in read(time.time() - 5)[1].line(time.time())
