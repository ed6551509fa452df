"""The `learn` role: events in, versions out. The commit order is in `_loop`."""

from __future__ import annotations

import time
from contextlib import ExitStack

import structlog
from threadpoolctl import threadpool_limits

from checkpoints.ledger import LedgerEntry
from daemon.config.model import Config
from daemon.deadletters import send_durably
from daemon.exits import EX_OK, EX_TEMPFAIL
from daemon.learn.apply import step
from daemon.learn.crew import Crew, Outside, assemble_crew
from daemon.learn.options import LearnOptions
from daemon.signals import Signals
from daemon.telemetry import Health, LearnMetrics, serve_http

WAIT_SECONDS = 0.1  # how soon an idle loop hears signals and verdicts

log = structlog.get_logger("tripletd.learn")


def run(config: Config, options: LearnOptions) -> int:
    """Learn until told to stop; the exit code. Raises UserError and the errors of the islands."""
    with ExitStack() as stack:
        # Two BLAS threads on two shared cores make small products many times slower, and their bits vary.
        stack.enter_context(threadpool_limits(limits=1))
        outside = Outside(stack.enter_context(Signals()), LearnMetrics(), Health())
        server = serve_http(
            outside.metrics.registry, outside.health, config.http.host, config.http.learn_port
        )
        stack.callback(server.close)
        log.info("metrics and health", url=f"http://{server.host}:{server.port}")
        crew = assemble_crew(stack, config, options, outside)
        leave_on_stop = options.exit_when_caught_up or config.validate.on_stop == "exit"
        return EX_OK if crew is None else _loop(crew, outside.signals, options, leave_on_stop)


def _loop(crew: Crew, signals: Signals, options: LearnOptions, leave_on_stop: bool) -> int:
    """One batch after another. The order keeps every version consistent with its position:

    1 apply the batch, up to an event boundary; 2 its dead letters are durable; 3 the position advances;
    4 capture a version when one is due; 5 write it off the loop; 6 acknowledge what has become durable.
    """
    progress, publishing, observer = crew.origin.progress, crew.publishing, crew.observer
    while not signals.stopping:
        observer.beat()
        observer.lag(crew.inputs.control.bounds, progress.next_offsets())
        stop = crew.verdicts.stop_in_force()
        if stop is not None:
            publishing.finish()
            if leave_on_stop or not _parked(crew, signals, stop):
                break
        with observer.idle():
            ready = crew.reader.get(WAIT_SECONDS)
        if ready is not None:
            began = time.perf_counter()
            done = step(crew.origin.state, ready, crew.inputs.address.topic)  # 1
            seconds = time.perf_counter() - began
            if done.dead:
                crew.fence.check_if_readable()
            if not send_durably(crew.inputs.dead, done.dead, observer.keep_trying(signals.wait)):  # 2
                return EX_TEMPFAIL
            progress.advance(done.applied)  # 3
            observer.applied(ready, done, seconds)
        publishing.tick(asked=signals.take_checkpoint_request())  # 4, 5, 6
        if ready is None and options.exit_when_caught_up and crew.caught_up():
            break
    publishing.finish()
    return EX_OK


def _parked(crew: Crew, signals: Signals, by: LedgerEntry) -> bool:
    """Hold the position while a STOP is in force. True when a RESUME lifted it, False when told to end."""
    crew.observer.parked(by)
    log.warning("parked: position kept, waiting for RESUME", positions=crew.origin.progress.next_offsets())
    while not signals.wait(WAIT_SECONDS):
        stop = crew.verdicts.stop_in_force()
        crew.observer.parked(stop)
        if stop is None:
            log.info("resumed")
            return True
        crew.observer.lag(crew.inputs.control.bounds, crew.origin.progress.next_offsets())
    return False
