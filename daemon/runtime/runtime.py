"""The process of a role towards the outside: signals, health, readiness, reload."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger
from threadpoolctl import threadpool_limits

from daemon.config.schema import SECTIONS, Config
from daemon.exits import UserError
from daemon.runtime.doors import Doors, open_doors
from daemon.runtime.leaving import leave_at_once
from daemon.runtime.logs import get_logger, set_level
from daemon.runtime.watchdog import Notifier, Pulse, Watchdog
from daemon.telemetry import Health, serve_http

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2


class Signals:
    """Flags a loop looks at between batches; a context manager that restores the old handlers.

    First SIGTERM or SIGINT: `stopping` becomes true (finish the batch, checkpoint, exit 0).
    Second: the process exits at once with 128 + the signal's number.
    SIGUSR1: `take_checkpoint_request` answers true once; SIGHUP: so does `take_reload_request`, unless the
    terminal was closed, which is a stop. SIGUSR2: every thread's stack to stderr.
    Must be entered in the main thread; elsewhere it only keeps the flags (`request_stop`).

    A handler may interrupt the very call that waits for it, so nothing here takes a lock that is not free for
    handlers: an Event would hang the process, were the signal to come while its own lock is held.

    Args:
        leave_at_once: until `finish_first` there is nothing to finish, and much that may wait for a network:
            a stop ends the process at once, with 0 (SIGINT: 130).
    """

    def __init__(self, leave_at_once: bool = False) -> None:
        self._at_once = leave_at_once
        self._stop = self._checkpoint = self._reload = False
        self._news = threading.Lock()  # free when something came that `wait` has not seen
        self._news.acquire()
        self._listeners: list[Callable[[], object]] = []
        self._terminal = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._terminal = os.isatty(_STDERR)
            for number in _STOPPING:
                self._previous[number] = signal.signal(number, self._on_stop)
            self._previous[signal.SIGUSR1] = signal.signal(
                signal.SIGUSR1, lambda _number, _frame: self.request_checkpoint()
            )
            self._previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._on_hangup)
            with suppress(RuntimeError, ValueError, AttributeError):  # standard error has no descriptor
                faulthandler.register(signal.SIGUSR2, all_threads=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            faulthandler.unregister(signal.SIGUSR2)
        self._previous.clear()

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end after this batch."""
        return self._stop

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to `timeout_s`, less when anything arrives; whether the loop is to end."""
        if not self._stop:
            self._news.acquire(timeout=max(0.0, timeout_s))
        return self._stop

    def listen(self, listener: Callable[[], object]) -> None:
        """Have `listener` called whenever something arrives, also in the midst of a signal's handler: it may
        take no lock.
        """
        self._listeners.append(listener)

    def finish_first(self) -> None:
        """From now on there is something to finish before the process ends."""
        self._at_once = False

    def request_stop(self) -> None:
        """What a first SIGTERM does to a loop."""
        self._stop = True
        self._tell()

    def request_reload(self) -> None:
        """Ask for a reload, as SIGHUP does."""
        self._reload = True
        self._tell()

    def request_checkpoint(self) -> None:
        """Ask for a version, as SIGUSR1 does."""
        self._checkpoint = True
        self._tell()

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        if not self._checkpoint:
            return False
        self._checkpoint = False
        return True

    def take_reload_request(self) -> bool:
        """Whether a reload was asked for since the last call."""
        if not self._reload:
            return False
        self._reload = False
        return True

    def _tell(self) -> None:
        with suppress(RuntimeError):  # free already
            self._news.release()
        for listener in self._listeners:
            listener()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._at_once:
            leave_at_once(number, frame)
        if self._stop:
            os._exit(128 + number)
        self.request_stop()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._terminal and not os.isatty(_STDERR):
            self._on_stop(signal.SIGTERM, frame)
        else:
            self.request_reload()


LIVE = ("log.level",)
"""Keys that a running role takes over. Whatever else may change W, or what is open, needs a restart."""


def differing(running: Config, fresh: Config) -> list[str]:
    """Keys ("section.key") whose value is another one; the values themselves may be secrets. Pure."""
    before, now = dict(_flat(running)), dict(_flat(fresh))
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


class ConfigReloader:
    """Reads the configuration again when asked; `load` is how it was read, None where there is no way."""

    def __init__(self, running: Config, load: Callable[[], Config] | None, notifier: Notifier) -> None:
        self._running, self._load, self._notifier = running, load, notifier
        self._level = running.log.level
        self._also: list[Callable[[], None]] = []

    def also(self, reload: Callable[[], None]) -> None:
        """Have this called, too, when a reload is asked for."""
        self._also.append(reload)

    def when(self, asked: bool) -> None:
        """Reload if `asked`. A file that cannot be read changes nothing, and the role continues."""
        if not asked:
            return
        for reload in self._also:
            reload()
        if self._load is None:
            return
        self._notifier.reloading()
        log = get_logger()
        try:
            fresh = self._load()
        except UserError as error:
            log.error("not reloaded: the configuration is not valid, the old one stays", reason=str(error))
        else:
            self._take(fresh)
        self._notifier.ready()

    def _take(self, fresh: Config) -> None:
        log = get_logger()
        refused = [key for key in differing(self._running, fresh) if key not in LIVE]
        if refused:
            log.error("not taken over while running: stop and start again for these keys", keys=refused)
        changed = fresh.log.level != self._level
        log.info("reloaded", changed=["log.level"] if changed else [])  # in the words of the level before
        if changed:
            self._level = fresh.log.level
            set_level(self._level)


def _flat(config: Config) -> Iterator[tuple[str, Any]]:
    for name in SECTIONS:
        yield from _flatten(name, getattr(config, name).model_dump())


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flatten(f"{prefix}.{name}", inner)
    else:
        yield prefix, value


@dataclass(frozen=True, slots=True)
class RoleRuntime:
    """A role's process towards the outside. `pulse` is the main thread's."""

    signals: Signals
    health: Health
    watchdog: Watchdog
    notifier: Notifier
    reloading: ConfigReloader
    pulse: Pulse
    doors: Doors = field(default_factory=Doors)

    def starting(self, phase: str) -> None:
        """Report in the log and in the health answers what the start is doing, and how far it is."""
        get_logger().info(phase)
        self.health.starting(phase)

    def started(self) -> None:
        """Report the start as done: nothing is left that could be refused."""
        if self.health.startup() is not None:
            self.health.started()
            self.notifier.ready()


def open_runtime(
    stack: ExitStack,
    config: Config,
    registry: CollectorRegistry,
    port: int,
    load: Callable[[], Config] | None,
) -> RoleRuntime:
    """Signals, watchdog, metrics and health of a role, until `stack` ends. UserError: the port is taken.

    `load` reads the configuration again, for SIGHUP.
    """
    runtime = open_runtime_without_server(stack, config, load)
    doors = runtime.doors
    server = serve_http(
        registry, runtime.health, config.http.host, port, context=doors.context, gate=doors.gate
    )
    stack.callback(server.close)
    get_logger().info("metrics and health", url=f"{doors.scheme}://{server.host}:{server.port}")
    return runtime


def open_runtime_without_server(
    stack: ExitStack, config: Config, load: Callable[[], Config] | None
) -> RoleRuntime:
    """Like `open_runtime`, for a role that serves its own metrics and health."""
    doors = open_doors(config)
    # Two BLAS threads on two shared cores make small products many times slower, and their bits vary.
    stack.enter_context(threadpool_limits(limits=1))
    signals, notifier = stack.enter_context(Signals(leave_at_once=True)), Notifier.of_this_process()
    watchdog = stack.enter_context(Watchdog(config.stream.stuck_after, notifier.alive))
    reloading = ConfigReloader(config, load, notifier)
    reloading.also(doors.reload)
    health = Health(watchdog.silent)
    return RoleRuntime(signals, health, watchdog, notifier, reloading, watchdog.watch("the loop"), doors)


_COUNT = re.compile(r"\d+")


class ReadinessReporter:
    """Reports a role's readiness to health checks, to systemd and, when it changes, to the log.

    `working`: one word for what the role does while it is ready.
    """

    def __init__(self, health: Health, notifier: Notifier, log: FilteringBoundLogger, working: str) -> None:
        self._health, self._notifier, self._log, self._working = health, notifier, log, working
        self._kind: str | None = None

    def now(self, reason: str | None, *, loading: bool = False) -> None:
        """Ready when `reason` is None, otherwise why not. Another count in the reason, or other words after
        its colon, make no new line in the log.

        loading: the role is getting ready, which is no trouble; the log gets the result.
        """
        self._health.set_ready(reason)
        if loading:
            self._kind = ""
            return
        kind = reason and _COUNT.sub("", reason.partition(":")[0])
        if kind == self._kind:
            return
        self._kind = kind
        self._log.warning("not ready", reason=reason) if reason else self._log.info("ready")
        self._notifier.status(f"not ready: {reason}" if reason else self._working)
