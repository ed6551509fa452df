"""The `learn` role: events in, versions out. The commit order is in `_loop`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import structlog

from checkpoints.ledger import LedgerEntry
from daemon.config.model import Config
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, UserError
from daemon.learn.build import build
from daemon.learn.halts import is_pause
from daemon.learn.parts import LoopParts
from daemon.learn.starting.options import LearnOptions
from daemon.process.outside import open_outside
from daemon.telemetry import LearnMetrics
from daemon.telemetry.build import add_place

WAIT_SECONDS = 0.1  # how soon an idle loop hears signals and verdicts

log = structlog.get_logger("tripletd.learn")


def run(config: Config, options: LearnOptions, load: Callable[[], Config] | None = None) -> int:
    """Learn until told to stop; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP.
    """
    metrics = LearnMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        outside = open_outside(stack, config, metrics.registry, config.http.learn_port, load)
        parts = build(stack, config, options, outside, metrics)
        if parts is None:
            return EX_OK
        outside.signals.finish_first()
        return _loop(parts, options)


def _loop(parts: LoopParts, options: LearnOptions) -> int:
    """One batch after another. The order keeps every version consistent with its position:

    1 what cannot be decoded is durable as dead letters; 2 the rest is applied, up to an event boundary;
    3 what the step refused is durable as dead letters; 4 the position advances; 5 a version is captured when
    one is due; 6 it is written off the loop; 7 what has become durable is acknowledged.

    Told to stop while 1 cannot be done, the batch is left out, and the last version stands before it. While 3
    cannot be done there is no event boundary to write a last version at: the one before stands.
    """
    signals, all_learned = parts.outside.signals, False
    while not signals.stopping:
        parts.look_around()
        halt = parts.halts.in_force()
        if halt is not None:
            parts.write_last_version()
            if _leaves(halt, options, parts.settings.on_stop) or not _halted(parts, halt):
                break
        ready = parts.next_batch(WAIT_SECONDS)
        if ready is not None:
            if not parts.deliver(ready.decoded.poison):  # 1
                break
            done = parts.apply(ready)  # 2
            if not parts.deliver(done.letters):  # 3
                log.error("no last version: dead letters cannot be written, so the one before stands")
                return EX_TEMPFAIL
            parts.learned(ready, done)  # 4
        parts.write_version_when_due(asked=signals.take_checkpoint_request())  # 5, 6, 7
        all_learned = ready is None and options.exit_when_caught_up and parts.caught_up()
        if all_learned:
            break
    parts.outside.notifier.stopping()
    parts.write_last_version()
    if all_learned:
        records, version = parts.origin.progress.records, parts.publishing.parent
        log.info("everything is learned", records=records, version=version)
    return EX_OK


def _leaves(halt: LedgerEntry, options: LearnOptions, on_stop: str) -> bool:
    """Whether a halt ends the run: a batch run for which nobody waits, or a STOP that is to end the learner.

    Raises UserError where a batch run must not look finished.
    """
    if is_pause(halt) and options.exit_when_caught_up:
        raise UserError(
            f"paused, the position is kept: {halt.reason}",
            "`tripletd deadletters` shows the newest; `tripletd resume` lets the next run go on",
            EX_DATAERR,
        )
    return not is_pause(halt) and (options.exit_when_caught_up or on_stop == "exit")


def _halted(parts: LoopParts, halt: LedgerEntry) -> bool:
    """Hold the position while a halt is in force. True when a RESUME lifted it, False when told to end."""
    parts.look_around(halt)
    what = "paused" if is_pause(halt) else "parked"
    positions = parts.origin.progress.next_offsets()
    told = f"{what}, the position is kept; `tripletd resume` lets it go on"
    log.warning(told, reason=halt.reason, positions=positions)
    while not parts.outside.signals.wait(WAIT_SECONDS):
        standing = parts.halts.in_force()
        parts.look_around(standing)
        if standing is None:
            log.info("resumed")
            return True
    return False
