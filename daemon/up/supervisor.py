"""Several roles on one host: ports checked, roles started, watched, restarted, stopped; and what is shown of
them from outside, as metrics, health and status on a port of its own.

What is decided about a role that ended is in `restarts`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from checkpoints.store import CheckpointError
from daemon.config.schema import Config, HttpConfig
from daemon.exits import EX_OK, EX_TEMPFAIL, UserError
from daemon.look.live import is_of, status_at
from daemon.runtime.doors import Doors
from daemon.runtime.runtime import Signals
from daemon.runtime.watchdog import Notifier
from daemon.telemetry import Health, serve_http
from daemon.telemetry.metrics import add_build_info, add_place
from daemon.telemetry.server import listen
from daemon.up import restarts
from daemon.up.role_process import RoleProcess
from daemon.versions.storage import open_for_reading
from streams.source import Quiet

GRACE_S = 30.0
"""How long a role may take to stop, besides serve.drain."""
HANDLER_S = 2.0
"""After so long a process has a handler for what is handed on to it, on a busy machine too."""
_POLL_S, _IDLE_POLL_S = 0.05, 0.25
"""Between two looks at the roles: after one of them changed, and after long silence."""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A role to run: its name in the logs and its arguments after `tripletd`.

    When a role with `ends_all` finishes by itself, the others are asked to stop too. `finished` is called
    when it ends by itself for good while the others keep running.
    """

    name: str
    arguments: tuple[str, ...]
    ends_all: bool = False
    finished: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Watched:
    """A role: running (process), waiting for its start (start_at), or neither: down or finished."""

    spec: RoleSpec
    report: restarts.RoleReport
    process: RoleProcess | None = None
    start_at: float | None = 0.0
    started_at: float = 0.0
    failures: list[float] = field(default_factory=list)
    is_renewed: bool = False

    def runs(self) -> None:
        """From now on nothing is wrong with it."""
        self.report = replace(self.report, state="running", exit=None, reason="")

    def failed(self, state: restarts.State, exit: int, reason: str) -> None:
        """It has failed, and now stands like this."""
        failures = self.report.failures + 1
        self.report = replace(self.report, state=state, exit=exit, reason=reason, failures=failures)


class Supervisor:
    """Runs roles until a stop is asked for, or none of them runs or is to be started again.

    Args:
        specs: the roles.
        start: starts one; RoleProcess in earnest.
        signals: entered by the caller; a stop is handed to every role as one SIGTERM. A reload is handed on
            too, and starts what is down or waits; so is SIGUSR1.
        log: receives starts, restarts and ends.
        policy: how long to wait before a restart.
        grace_s: how long a role may take to stop before it is killed.
        notifier: systemd, where it has started us.
        on_change: called with the reports of all roles whenever one changes.
        reload: called when a reload is asked for, which the roles hear of too.
        checkpoint: called at SIGUSR1 in the place of handing it on; None hands it on.
        at_stake: whether there may be answers to keep; while there are none, a role that is refused ends all
            at once, as a mistake in a first configuration should.
        to_renew: the name of a role that is to be stopped and started again now, None for none; asked in
            every turn.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        start: Callable[[RoleSpec], RoleProcess],
        signals: Signals,
        log: Any,
        *,
        policy: restarts.RestartPolicy | None = None,
        grace_s: float = GRACE_S,
        notifier: Notifier | None = None,
        on_change: Callable[[Sequence[restarts.RoleReport]], None] = lambda reports: None,
        reload: Callable[[], None] = lambda: None,
        checkpoint: Callable[[], None] | None = None,
        at_stake: Callable[[], bool] = lambda: True,
        to_renew: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._notifier = notifier or Notifier({})
        self._roles = [_Watched(spec, restarts.RoleReport(spec.name)) for spec in specs]
        self._start, self._signals, self._log, self._on_change = start, signals, log, on_change
        self._at_stake, self._reload, self._to_renew = at_stake, reload, to_renew
        self._checkpoint = checkpoint or self._hand_on_checkpoint
        self._policy = policy or restarts.RestartPolicy()
        self._grace_s = grace_s
        self._known: list[restarts.RoleReport] = []
        self._quiet = Quiet(_POLL_S, _IDLE_POLL_S)
        self._down = dict[str, int]()
        self._announced_ready = False
        self._ending = False

    def run(self) -> int:
        """Exit code: 0 when every role finished or stopped as asked, else of the first that is down."""
        asked = False
        try:
            while not (asked := self._signals.stopping) and not self._ending:
                for role in self._roles:
                    self._look_after(role, time.monotonic())
                self._tell_and_hand_on()
                self._renew()
                if all(role.process is None and role.start_at is None for role in self._roles):
                    break
                self._signals.wait(self._quiet.rest_s())
        finally:
            self._notifier.stopping()
            stopped = self._stop_all()
        return stopped or (EX_OK if asked else next(iter(self._down.values()), EX_OK))

    def _tell_and_hand_on(self) -> None:
        """The service manager hears that all were started and that this moves; the roles hear of a reload."""
        self._tell_changes()
        if not self._announced_ready:
            self._announced_ready = True
            self._notifier.ready()
        self._notifier.alive()
        if self._signals.take_reload_request():
            self._notifier.reloading()
            self._reload()
            for role in self._roles:
                if role.process is not None:
                    role.process.reload()
                elif role.report.state in ("down", "waiting"):
                    role.start_at, role.failures = time.monotonic(), []
                    self._down.pop(role.spec.name, None)
            self._notifier.ready()
        if self._signals.take_checkpoint_request():
            self._checkpoint()

    def _hand_on_checkpoint(self) -> None:
        """One that was started just now has nothing to write or to renew, and perhaps no handler yet."""
        begun = time.monotonic() - HANDLER_S
        told = [role for role in self._roles if role.process is not None and role.started_at <= begun]
        for role in told:
            assert role.process is not None
            role.process.checkpoint()
        self._log.info("SIGUSR1 handed on", roles=[role.spec.name for role in told])

    def _renew(self) -> None:
        name = self._to_renew()
        for role in self._roles:
            if role.spec.name == name and role.process is not None:
                role.is_renewed = True
                role.process.terminate()
                self._quiet.broken()

    def _tell_changes(self) -> None:
        reports = [role.report for role in self._roles]
        if reports != self._known:
            self._quiet.broken()
            self._known = reports
            self._on_change(reports)
            self._notifier.status(restarts.not_ready(reports, os.getpid()) or "all roles run")

    def _look_after(self, role: _Watched, now: float) -> None:
        if role.process is not None:
            returncode = role.process.poll()
            if returncode is not None:
                role.process.finish(0.0)
                last_words, role.process = role.process.last_words, None
                self._ended(role, returncode, last_words, now)
            elif role.report.state == "starting" and now - role.started_at >= self._policy.settled_s:
                role.runs()
        elif role.start_at is not None and role.start_at <= now:
            role.start_at, role.started_at = None, now
            role.process = self._start(role.spec)
            if role.report.exit is None:
                role.runs()
            else:  # its last failure stays in the report until it has run for a while
                role.report = replace(role.report, state="starting")
            self._log.info("started", role=role.spec.name, pid=role.process.pid)

    def _ended(self, role: _Watched, returncode: int, last_words: str, now: float) -> None:
        name, reason = role.spec.name, restarts.reason_of(returncode, last_words)
        is_renewed, role.is_renewed = role.is_renewed, False
        if is_renewed and returncode in (EX_OK, -signal.SIGTERM):
            role.start_at = now
            self._log.info("stopped, to be started again", role=name)
            return
        match restarts.decide(returncode, role.failures, now, self._policy):
            case restarts.Finished():
                role.report = replace(role.report, state="finished", exit=None, reason="")
                self._log.info("finished", role=name)
                role.spec.finished()
                self._ending = self._ending or role.spec.ends_all
            case restarts.Restart(delay_s):
                role.failures = restarts.with_failure(role.failures, now)
                role.start_at = now + delay_s
                role.failed("waiting", returncode, reason)
                details = {"exit": returncode, "in_s": delay_s, "reason": reason}
                self._log.warning("failed, starting it again", role=name, **details)
            case restarts.StayDown(code):
                self._down[name] = code
                role.failed("down", returncode, reason)
                if not self._at_stake():
                    self._ending = True
                    self._log.error("failed, giving up", role=name, exit=returncode, reason=reason)
                    return
                details = {"exit": returncode, "reason": reason, "remedy": restarts.remedy(os.getpid())}
                self._log.error("failed; it stays down, the others keep running", role=name, **details)
                role.spec.finished()

    def _stop_all(self) -> int:
        """SIGTERM to all, then wait for each; the first exit code that is not 0."""
        running = [role for role in self._roles if role.process is not None]
        if running:
            self._log.info("stopping", roles=[role.spec.name for role in running])
        for role in running:
            if role.process is not None:
                role.process.terminate()
        deadline = time.monotonic() + self._grace_s
        worst = EX_OK
        for role in running:
            assert role.process is not None
            returncode = role.process.finish(max(0.0, deadline - time.monotonic()))
            role.process = None
            # One that was still starting had no handler yet: it ended by the very signal it was sent.
            if returncode not in (EX_OK, -signal.SIGTERM):
                self._log.error("did not stop cleanly", role=role.spec.name, exit=returncode)
                # A signal is no exit code; killed for overstaying is temporary: its last version stands.
                worst = worst or (returncode if returncode > 0 else EX_TEMPFAIL)
            else:
                self._log.info("stopped", role=role.spec.name)
        return worst


def check_ports(host: str, ports: Sequence[int]) -> None:
    """Raise UserError for the first of the ports that cannot be listened on; 0 is any free one.

    A role refuses a taken port, too; it would be started again and again while others work.
    """
    for port in filter(None, ports):
        listen(host, port).close()


class AtWork:
    """Tells a process, by its stdin, when `count` others have finished: it then comes to its end."""

    def __init__(self, stack: ExitStack, count: int = 1) -> None:
        reader, writer = os.pipe()
        self.stdin = stack.enter_context(open(reader, "rb"))  # noqa: SIM115  the stack closes it
        self._writer = stack.enter_context(open(writer, "wb"))  # noqa: SIM115
        self._left = count

    def one_less(self) -> None:
        """One of them has finished."""
        self._left -= 1
        if self._left <= 0:
            self._writer.close()


_LABELS = ("of_role", "state", "exit", "reason")
"""Not `role`: Prometheus attaches that label to the whole process."""


class UpMetrics(Collector):
    """How each role stands; `registry` goes to the HTTP server. Written by one thread, read by any."""

    def __init__(self, checkpoints: str) -> None:
        self._reports: Sequence[restarts.RoleReport] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        add_build_info(self.registry, "up")
        add_place(self.registry, checkpoints)

    def set_reports(self, reports: Sequence[restarts.RoleReport]) -> None:
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
            ended = "" if one.exit is None else restarts.how_it_ended(one.exit).removeprefix("exit ")
            states.add_metric([one.name, one.state, ended, one.reason], 1)
            failures.add_metric([one.name], one.failures)
        yield states
        yield failures


def anything_to_answer_with(config: Config) -> bool:
    """Whether serve may have something to answer with: it says so, or there is a version. True in doubt."""
    serve = status_at(config.http, config.http.serve_port)
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

    A port in use is an error only where the configuration names it: with the default port, a second `up` on
    one host must still run.
    """

    def __init__(
        self,
        stack: ExitStack,
        http: HttpConfig,
        checkpoints: str,
        log: FilteringBoundLogger,
        doors: Doors | None = None,
    ) -> None:
        doors = doors or Doors()
        self._metrics, self._health = UpMetrics(checkpoints), Health()
        try:
            server = serve_http(
                self._metrics.registry,
                self._health,
                http.host,
                http.up_port,
                context=doors.context,
                gate=doors.gate,
            )
        except UserError as error:
            if "up_port" in http.model_fields_set:
                raise
            log.warning("no metrics and health of up itself: set http.up_port", reason=error.message)
        else:
            stack.callback(server.close)
            log.info("metrics and health of up", url=f"{doors.scheme}://{server.host}:{server.port}")
        self._health.started()
        self._health.set_ready("no role is started yet")

    def set_reports(self, reports: Sequence[restarts.RoleReport]) -> None:
        """From now on the roles stand like this."""
        self._metrics.set_reports(reports)
        self._health.set_ready(restarts.not_ready(reports, os.getpid()))
