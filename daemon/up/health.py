"""What `up` shows of its roles from outside: its own metrics, health and status, on a port of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from checkpoints.store import CheckpointError
from daemon.config.schema import Config, HttpConfig
from daemon.exits import UserError
from daemon.look.live import is_of, role_status
from daemon.telemetry import Health, serve_http
from daemon.telemetry.metrics import add_build_info, add_place
from daemon.up.restarts import RoleReport, how_it_ended, not_ready
from daemon.versions.storage import open_for_reading

_LABELS = ("of_role", "state", "exit", "reason")
"""Not `role`: that is what Prometheus is told of the whole process."""


class UpMetrics(Collector):
    """How each role stands; `registry` goes to the HTTP server. Written by one thread, read by any."""

    def __init__(self, checkpoints: str) -> None:
        self._reports: Sequence[RoleReport] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        add_build_info(self.registry, "up")
        add_place(self.registry, checkpoints)

    def told(self, reports: Sequence[RoleReport]) -> None:
        """From now on the roles stand like this."""
        self._reports = tuple(reports)

    def describe(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """The families without samples."""
        yield GaugeMetricFamily("tripletd_role_state", "1 for how a role stands", labels=_LABELS)
        yield CounterMetricFamily("tripletd_role_failures", "Times that a role failed", labels=_LABELS[:1])

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One series per role: its state, and its exit code and reason where it failed."""
        reports = self._reports
        states, failures = self.describe()
        for one in reports:
            ended = "" if one.exit is None else how_it_ended(one.exit).removeprefix("exit ")
            states.add_metric([one.name, one.state, ended, one.reason], 1)
            failures.add_metric([one.name], one.failures)
        yield states
        yield failures


def anything_to_answer_with(config: Config) -> bool:
    """Whether serve may have something to answer with: it says so, or there is a version. True in doubt."""
    serve = role_status(config.http.host, config.http.serve_port)
    if serve is not None and is_of(serve, "serve", config.checkpoints.path) and serve.not_ready is None:
        return True
    try:
        versions, _ = open_for_reading(config)
        return bool(versions.versions())
    except UserError:  # there is no such folder
        return False
    except CheckpointError:
        return True


class UpHealth:
    """Serves metrics, readiness and status of `up` until `stack` ends.

    A port that is taken is refused only where the configuration names it: with the usual one, two of them
    on one host must go on as before there was any.
    """

    def __init__(
        self, stack: ExitStack, http: HttpConfig, checkpoints: str, log: FilteringBoundLogger
    ) -> None:
        self._metrics, self._health = UpMetrics(checkpoints), Health()
        try:
            server = serve_http(self._metrics.registry, self._health, http.host, http.up_port)
        except UserError as error:
            if "up_port" in http.model_fields_set:
                raise
            log.warning("no metrics and health of up itself: set http.up_port", reason=error.message)
        else:
            stack.callback(server.close)
            log.info("metrics and health of up", url=f"http://{server.host}:{server.port}")
        self._health.started()
        self._health.set_ready("no role is started yet")

    def told(self, reports: Sequence[RoleReport]) -> None:
        """From now on the roles stand like this."""
        self._metrics.told(reports)
        self._health.set_ready(not_ready(reports, os.getpid()))
