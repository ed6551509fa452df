"""Roles that are slow to say how they are."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from daemon.look.live import LearnStatus, role_status
from daemon.telemetry import Health, LearnMetrics, serve_http
from tests.harness.waiting import until

HOST = "127.0.0.1"


class Slow:
    """Takes a second to be collected, as a role on a machine that is busy."""

    def collect(self) -> Iterator[Metric]:
        time.sleep(1.0)
        yield from ()

    def describe(self) -> Iterator[Metric]:
        yield from ()


def test_a_role_that_takes_a_second_is_running() -> None:
    metrics = LearnMetrics()
    metrics.registry.register(Slow())  # type: ignore[arg-type]
    server = serve_http(metrics.registry, Health(), HOST, 0)
    try:
        found = until(lambda: role_status(HOST, server.port), "the role's status")
    finally:
        server.close()
    assert isinstance(found, LearnStatus)
