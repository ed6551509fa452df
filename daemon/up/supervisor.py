"""Several roles on one host: ports checked, roles started, watched, restarted, stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_OK, EX_SOFTWARE, EX_TEMPFAIL, EX_USAGE
from daemon.runtime.signals import Signals
from daemon.runtime.watchdog import Notifier
from daemon.telemetry.server import listen
from daemon.up.role_process import RoleProcess

FATAL = frozenset({EX_USAGE, EX_DATAERR, EX_CONFIG})
"""Exit codes that another start cannot cure: wrong usage, data or configuration."""

LEAVES = frozenset({EX_CANTCREAT})
"""Exit codes of a role that must not or cannot write: another learner has its place, or there is no room."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """At most `max_failures` within `window_s`; the wait doubles from `first_delay_s` up to `max_delay_s`."""

    max_failures: int = 5
    window_s: float = 300.0
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The role ended as it should."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Do not start it again, and let the others go on: answers need nobody who writes. `code`: of the end."""

    code: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop everything and exit with `code`; `reason` is for the log."""

    code: int
    reason: str


Action = Finished | Restart | Leave | GiveUp


def decide(returncode: int, failures: Sequence[float], now: float, policy: RestartPolicy) -> Action:
    """What to do about a role that ended.

    Args:
        returncode: as of subprocess: the exit code, or minus the signal that killed it.
        failures: monotonic times of its earlier failures, ascending, this one not among them.
        now: monotonic time of this failure.
        policy: the bounds.
    """
    if returncode == EX_OK:
        return Finished()
    if returncode in LEAVES:
        return Leave(returncode)
    if returncode in FATAL:
        return GiveUp(returncode, "another start would end the same way")
    recent = sum(1 for moment in failures if now - moment <= policy.window_s)
    if recent + 1 > policy.max_failures:
        code = returncode if returncode > 0 else EX_SOFTWARE
        return GiveUp(code, f"{recent + 1} failures within {policy.window_s:.0f} s")
    return Restart(min(policy.first_delay_s * 2.0**recent, policy.max_delay_s))


_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A role to run: its name in the logs and its arguments after `tripletd`.

    When a role with `ends_all` finishes by itself, the others are asked to stop too. `finished` is called
    when it ends by itself for good, and others go on.
    """

    name: str
    arguments: tuple[str, ...]
    ends_all: bool = False
    finished: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Watched:
    """A role: running (process), waiting for its start (start_at), or finished (neither)."""

    spec: RoleSpec
    process: RoleProcess | None = None
    start_at: float | None = 0.0
    failures: list[float] = field(default_factory=list)


class Supervisor:
    """Runs roles until all have finished, one is beyond help, or a stop is asked for.

    Args:
        specs: the roles.
        start: starts one; RoleProcess in earnest.
        signals: entered by the caller; a stop is handed to every role as one SIGTERM.
        log: where starts, restarts and ends are told.
        policy: bounds of the restarts.
        grace_s: how long a role may take to stop before it is killed.
        notifier: systemd, where it has started us.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        start: Callable[[RoleSpec], RoleProcess],
        signals: Signals,
        log: Any,
        *,
        policy: RestartPolicy | None = None,
        grace_s: float = 30.0,
        notifier: Notifier | None = None,
    ) -> None:
        self._notifier = notifier or Notifier({})
        self._roles = [_Watched(spec) for spec in specs]
        self._start, self._signals, self._log = start, signals, log
        self._policy = policy or RestartPolicy()
        self._grace_s = grace_s
        self._given_up: int | None = None
        self._left = EX_OK
        self._told_ready = False
        self._ending = False

    def run(self) -> int:
        """Exit code: 0 when every role finished or stopped as asked, else that of one given up or gone."""
        try:
            while not self._signals.stopping and not self._ending and self._given_up is None:
                for role in self._roles:
                    self._look_after(role, time.monotonic())
                if all(role.process is None and role.start_at is None for role in self._roles):
                    break
                self._tell_and_hand_on()
                self._signals.wait(_POLL_S)
        finally:
            self._notifier.stopping()
            stopped = self._stop_all()
        return self._given_up or stopped or self._left

    def _tell_and_hand_on(self) -> None:
        """The service manager hears that all were started and that this moves; the roles hear of a reload."""
        if not self._told_ready:
            self._told_ready = True
            self._notifier.ready()
        self._notifier.alive()
        if self._signals.take_reload_request():
            self._notifier.reloading()
            for role in self._roles:
                if role.process is not None:
                    role.process.reload()
            self._notifier.ready()

    def _look_after(self, role: _Watched, now: float) -> None:
        if role.process is not None:
            returncode = role.process.poll()
            if returncode is not None:
                role.process.finish(0.0)
                role.process = None
                self._ended(role, returncode, now)
        elif role.start_at is not None and role.start_at <= now:
            role.start_at = None
            role.process = self._start(role.spec)
            self._log.info("started", role=role.spec.name, pid=role.process.pid)

    def _ended(self, role: _Watched, returncode: int, now: float) -> None:
        name = role.spec.name
        match decide(returncode, role.failures, now, self._policy):
            case Finished():
                self._log.info("finished", role=name)
                role.spec.finished()
                self._ending = self._ending or role.spec.ends_all
            case Restart(delay_s):
                role.failures = [*role.failures[-self._policy.max_failures :], now]
                role.start_at = now + delay_s
                self._log.warning("failed, starting it again", role=name, exit=returncode, in_s=delay_s)
            case Leave(code):
                self._left = self._left or code
                told = "failed; it is not started again, the others go on"
                self._log.error(told, role=name, exit=returncode)
                role.spec.finished()
            case GiveUp(code, reason):
                self._given_up = code
                self._log.error("failed, giving up", role=name, exit=returncode, reason=reason)

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

    A role refuses a taken port too; it would be started again and again, beside others that work.
    """
    for port in filter(None, ports):
        listen(host, port).close()
