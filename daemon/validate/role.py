"""The `validate` role: the holdout stream and the newest version in, verdicts out.

A run that is to leave once caught up leaves when all is done, or when nothing more comes from the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from checkpoints.store import Unreachable
from daemon.config.schema import Config
from daemon.exits import EX_OK, EX_TEMPFAIL, UserError
from daemon.memory.watch import watch_memory
from daemon.runtime.in_hand import ALARM_TIMES, InHand
from daemon.runtime.leaving import learner_is_running
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime
from daemon.telemetry import ValidateMetrics
from daemon.telemetry.metrics import add_place
from daemon.validate.inputs import open_inputs
from daemon.validate.validator import Validator
from streams.errors import StreamUnavailable
from streams.source import Quiet

TELL_SECONDS = 2.0
AWAY_SECONDS = 1.0
"""Between two tries to reach versions that do not answer."""
WAIT_LIMIT_SECONDS = 30.0
START_LEARN = "is learn running? run `tripletd learn` first, or both with `tripletd up`"

log = structlog.get_logger("tripletd.validate")


class WaitLimit:
    """Counts the time in which nothing moved, while no learner is known to be at work.

    clock: monotonic, in seconds. learning: whether a learner is known to be at work.
    """

    def __init__(self, clock: Callable[[], float], learning: Callable[[], bool]) -> None:
        self._clock, self._learning = clock, learning
        self._state: object = None
        self._since, self._logged = clock(), False

    def wait_for(self, missing: str, state: object, remedy: str = START_LEARN) -> None:
        """Nothing is left to do but `missing`, at this `state` of versions and holdout.

        Logs it after TELL_SECONDS. Raises UserError (75) when the state has not changed for
        WAIT_LIMIT_SECONDS.
        """
        if state != self._state:
            self._state, self._since, self._logged = state, self._clock(), False
        waited = self._clock() - self._since
        if waited >= TELL_SECONDS and not self._logged:
            self._logged = True
            log.info("waiting", reason=missing)
        if self._learning():
            self._since = max(self._since, self._clock() - TELL_SECONDS)
        elif waited >= WAIT_LIMIT_SECONDS:
            raise UserError(
                f"{missing}; nothing new came within {WAIT_LIMIT_SECONDS:.0f} s", remedy, EX_TEMPFAIL
            )


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    """One run: leave when the holdout is read, the newest version judged and nothing more will come.

    `beside_learn`: the learner was started along with it, and is at work for as long as stdin is open.
    """

    exit_when_caught_up: bool = False
    beside_learn: bool = False


WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.2, 0.5
"""Between two looks for a version or a held-out impression: after one came, and after long silence."""


def run(
    config: Config,
    options: ValidateOptions,
    clock: Callable[[], float] = time.monotonic,
    load: Callable[[], Config] | None = None,
) -> int:
    """Judge until stopped; returns the exit code. Raises UserError and the errors of the islands.

    Its memory is the ledger, so a stop ends it at once, whatever it judges or waits for.

    `clock` is monotonic, in seconds: how long a run that is to leave waits for a learner. `load` reads the
    configuration again.
    """
    metrics = ValidateMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime(stack, config, metrics.registry, config.http.validate_port, load)
        watch_memory(stack, metrics.registry, config, "validate")
        runtime.health.starting("reading objects and opening the log")
        in_hand = InHand.of(config.checkpoints.path, "validate", ALARM_TIMES * config.stream.stuck_after)
        stack.callback(in_hand.close)
        validator = Validator(open_inputs(stack, config, metrics, runtime.starting, in_hand))
        limit = WaitLimit(clock, learner_is_running if options.beside_learn else lambda: False)
        runtime.started()
        return _loop(validator, runtime, limit if options.exit_when_caught_up else None)


def _loop(validator: Validator, runtime: RoleRuntime, limit: WaitLimit | None) -> int:
    """Read what is there, watch it for drift, judge the newest version, rest when there was nothing to do."""
    signals, pulse = runtime.signals, runtime.pulse
    readiness = ReadinessReporter(runtime.health, runtime.notifier, log, "judging")
    quiet = Quiet(WAIT_SECONDS, LONGEST_WAIT_SECONDS)

    def give_up(seconds: float, error: Exception) -> bool:
        pulse.beat("dead letters")
        missing = f"holdout or dead letters are not available: {error}"
        readiness.now(missing)
        if limit is not None:
            limit.wait_for(missing, validator.state(), remedy="")
        return signals.wait(seconds)

    while not signals.stopping:
        runtime.reloading.when(signals.take_reload_request())
        try:
            fresh = validator.read(0.0, give_up, lambda: pulse.beat("reading the holdout stream"))
            with pulse.patient("judging"):
                validator.watch_drift(fresh)
                validator.try_again()
                judged = validator.judge_next()
            validator.look_at_folder()
        except Unreachable as error:
            away = f"the versions cannot be reached: {error}"
            readiness.now(away)
            if limit is not None:
                limit.wait_for(away, None, remedy=error.remedy)
            signals.wait(AWAY_SECONDS)
            continue
        readiness.now(validator.not_ready())
        if limit is not None:
            try:
                missing = validator.unfinished()
            except StreamUnavailable as error:
                missing = f"the stream is not available: {error}"
            if missing is None:
                log.info("caught up", waiting_for=validator.waiting_for())
                for line in validator.held_back():
                    log.warning("but for what an open transaction holds back", remedy=line)
                break
            if not fresh and judged is None:
                limit.wait_for(missing, validator.state())
        if not fresh and judged is None:
            signals.wait(quiet.rest_s())
        else:
            quiet.broken()
    return EX_OK
