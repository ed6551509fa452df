"""How the learning process hears of the world and shows itself to it."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.notify import Notifier
from daemon.reloading import Reloading
from daemon.signals import Signals
from daemon.telemetry import Health, LearnMetrics
from daemon.watchdog import Pulse, Watchdog


@dataclass(frozen=True, slots=True)
class Outside:
    """`pulse` is the main thread's."""

    signals: Signals
    metrics: LearnMetrics
    health: Health
    watchdog: Watchdog
    notifier: Notifier
    reloading: Reloading
    pulse: Pulse

    def started(self) -> None:
        """The loop runs, or the learner waits for its first objects: all that can be refused is accepted."""
        if self.health.startup() is not None:
            self.health.started()
            self.notifier.ready()
