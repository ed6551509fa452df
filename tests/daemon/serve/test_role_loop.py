"""The loop of serve: what it says before anybody hears that it has started."""

from __future__ import annotations

from typing import Any, cast

from daemon.runtime.runtime import ConfigReloader, RoleRuntime, Signals
from daemon.runtime.watchdog import Notifier, Pulse, Watchdog
from daemon.serve.start import ServeParts, _loop
from daemon.telemetry.server import Health


class Unopened:
    """Nothing to answer with yet."""

    opened = None

    def not_ready(self) -> str:
        return "no version yet"


class Manager(Notifier):
    """Asks for readiness in the very moment in which it is told that the role is up."""

    def __init__(self, health: Health) -> None:
        super().__init__({})
        self._health = health
        self.found: list[str | None] = []

    def ready(self) -> None:
        self.found.append(self._health.readiness())


def test_it_is_not_ready_before_it_has_looked() -> None:
    health = Health()
    manager, signals = Manager(health), Signals()
    signals.request_stop()
    reloading = ConfigReloader(cast(Any, _Config()), None, manager)
    runtime = RoleRuntime(signals, health, Watchdog(60.0), manager, reloading, Pulse("the loop"))
    _loop(cast(ServeParts, _Parts()), runtime)
    assert manager.found == ["being loaded"]


class _Parts:
    live = Unopened()
    shared = None


class _Config:
    class log:
        level = "info"
