"""The `validate` role: the holdout stream and the newest version in, verdicts out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from daemon.config.schema import Config
from daemon.exits import EX_OK
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime
from daemon.telemetry import ValidateMetrics
from daemon.telemetry.build import add_place
from daemon.validate.ending import WaitLimit, learner_is_running
from daemon.validate.inputs import open_inputs
from daemon.validate.validator import Validator
from streams.errors import StreamUnavailable


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    """One run: leave when the holdout is read, the newest version judged and nothing more will come.

    `beside_learn`: the learner was started along with it, and is at work for as long as stdin is open.
    """

    exit_when_caught_up: bool = False
    beside_learn: bool = False


WAIT_SECONDS = 0.2

log = structlog.get_logger("tripletd.validate")


def run(
    config: Config,
    options: ValidateOptions,
    clock: Callable[[], float] = time.monotonic,
    load: Callable[[], Config] | None = None,
) -> int:
    """Judge until told to stop; the exit code. Raises UserError and the errors of the islands.

    Its memory is the ledger, so a stop ends it at once, whatever it judges or waits for.

    `clock` is monotonic, in seconds: how long a run that is to leave waits for a learner. `load` reads the
    configuration again.
    """
    metrics = ValidateMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        outside = open_runtime(stack, config, metrics.registry, config.http.validate_port, load)
        bench = open_inputs(stack, config, metrics)
        validator = Validator(bench, config.validate, bench.rule)
        patience = WaitLimit(clock, learner_is_running if options.beside_learn else lambda: False)
        outside.started()
        return _loop(validator, outside, patience if options.exit_when_caught_up else None)


def _loop(validator: Validator, outside: RoleRuntime, patience: WaitLimit | None) -> int:
    """Read what is there, watch it for drift, judge the newest version, rest when there was nothing to do."""

    signals, pulse = outside.signals, outside.pulse
    standing = ReadinessReporter(outside.health, outside.notifier, log, "judging")

    def give_up(seconds: float, error: Exception) -> bool:
        pulse.beat("dead letters")
        missing = f"holdout or dead letters are not available: {error}"
        standing.now(missing)
        if patience is not None:
            patience.wait_for(missing, validator.state(), remedy="")
        return signals.wait(seconds)

    while not signals.stopping:
        outside.reloading.when(signals.take_reload_request())
        fresh = validator.read(0.0, give_up, lambda: pulse.beat("reading the holdout stream"))
        with pulse.patient("judging"):
            validator.watch_drift(fresh)
            judged = validator.judge_next()
        standing.now(validator.waiting_for())
        if patience is not None:
            missing = _unfinished(validator)
            if missing is None:
                log.info("caught up", waiting_for=validator.waiting_for())
                break
            if not fresh and judged is None:
                patience.wait_for(missing, validator.state())
        if not fresh and judged is None:
            signals.wait(WAIT_SECONDS)
    return EX_OK


def _unfinished(validator: Validator) -> str | None:
    """What is still to come; None when nothing is."""
    try:
        return validator.unfinished()
    except StreamUnavailable as error:
        return f"the stream is not available: {error}"
