"""The `serve` role: versions, steps and items in, answers out. All of it is done in threads of its parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import structlog

from daemon.config.model import Config
from daemon.exits import EX_OK
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime_without_server
from daemon.serve.build import ServeParts, build
from daemon.telemetry.build import add_place
from daemon.telemetry.serve_metrics import ServeMetrics

TURN_S = 0.1  # how soon the loop hears signals, and readiness what happened

log = structlog.get_logger("tripletd.serve")


def run(config: Config, load: Callable[[], Config] | None = None) -> int:
    """Answer until told to stop; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP.
    """
    metrics = ServeMetrics(config.serve.aliases)
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        outside = open_runtime_without_server(stack, config, load)
        parts = build(stack, config, outside, metrics)
        _loop(parts, outside)
        outside.notifier.stopping()
    return EX_OK


def _loop(parts: ServeParts, outside: RoleRuntime) -> None:
    """Look after the parts, and say whether they answer: before anybody hears that the role has started."""
    standing = ReadinessReporter(outside.health, outside.notifier, log, "answering")
    outside.health.set_ready("being loaded")
    outside.started()
    while not outside.signals.stopping:
        outside.pulse.beat("a turn of the loop")
        outside.reloading.when(outside.signals.take_reload_request())
        with outside.pulse.patient("opening versions and items"):
            parts.turn()
        if parts.live.opened is not None:  # until then a stop ends the process at once: nobody was answered
            outside.signals.finish_first()
        standing.now(parts.live.not_ready(), loading=parts.live.loading())
        outside.signals.wait(TURN_S)
