"""How the process of a role hears of the world and shows itself to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from threadpoolctl import threadpool_limits

from daemon.config.model import Config
from daemon.process.logs import get_logger
from daemon.process.notify import Notifier
from daemon.process.reloading import Reloading
from daemon.process.signals import Signals
from daemon.process.watchdog import Pulse, Watchdog
from daemon.telemetry import Health, serve_http


@dataclass(frozen=True, slots=True)
class Outside:
    """`pulse` is the main thread's."""

    signals: Signals
    health: Health
    watchdog: Watchdog
    notifier: Notifier
    reloading: Reloading
    pulse: Pulse

    def started(self) -> None:
        """All that can be refused is accepted: the loop runs, or waits for its first objects."""
        if self.health.startup() is not None:
            self.health.started()
            self.notifier.ready()


def open_outside(
    stack: ExitStack,
    config: Config,
    registry: CollectorRegistry,
    port: int,
    load: Callable[[], Config] | None,
) -> Outside:
    """Signals, watchdog, metrics and health of a role, until `stack` ends. UserError: the port is taken.

    `load` reads the configuration again, for SIGHUP.
    """
    outside = open_process(stack, config, load)
    server = serve_http(registry, outside.health, config.http.host, port)
    stack.callback(server.close)
    get_logger().info("metrics and health", url=f"http://{server.host}:{server.port}")
    return outside


def open_process(stack: ExitStack, config: Config, load: Callable[[], Config] | None) -> Outside:
    """The same of a role that shows metrics and health on a server of its own."""
    # Two BLAS threads on two shared cores make small products many times slower, and their bits vary.
    stack.enter_context(threadpool_limits(limits=1))
    signals, notifier = stack.enter_context(Signals(leave_at_once=True)), Notifier.of_this_process()
    watchdog = stack.enter_context(Watchdog(config.stream.stuck_after_s, notifier.alive))
    reloading = Reloading(config, load, notifier)
    health = Health(watchdog.silent)
    return Outside(signals, health, watchdog, notifier, reloading, watchdog.watch("the loop"))
