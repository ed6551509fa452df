"""How the learning process hears of the world and shows itself to it."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.process.notify import Notifier
from daemon.process.reloading import Reloading
from daemon.process.signals import Signals
from daemon.process.watchdog import Pulse, Watchdog
from daemon.telemetry import Health, LearnMetrics


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
