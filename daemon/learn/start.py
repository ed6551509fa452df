"""The `learn` role: opens and joins everything, finds where to begin, and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import structlog

from checkpoints.ledger import LedgerEntry
from checkpoints.publisher import AsyncPublisher
from daemon.config.schema import Config
from daemon.dead_letters import DeadLetterWriter
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, UserError
from daemon.learn.halts import Halts, PoisonGate, is_pause, remember_poison
from daemon.learn.housekeeping import Housekeeper, VersionCleanup
from daemon.learn.loop import Acknowledger, LearnLoop, LoopSettings, Threads, stands
from daemon.learn.observe import Observer, StreamReadiness
from daemon.learn.publishing import Cadence, Fence, Publishing
from daemon.learn.reader import RETRY_SECONDS, PollSize, Reader
from daemon.learn.resume.fitting import Fitted, fit_map
from daemon.learn.resume.inputs import Inputs, open_inputs
from daemon.learn.resume.options import LearnOptions
from daemon.learn.resume.origin import RunOrigin, find_origin
from daemon.learn.step import Assembler
from daemon.learn.steplog.publisher import StepLog, step_log
from daemon.runtime.runtime import RoleRuntime, open_runtime
from daemon.runtime.watchdog import Pulse
from daemon.telemetry import LearnMetrics
from daemon.telemetry.build import add_place
from daemon.versions.storage import open_store
from learners.block import TripletBatch
from learners.keyed import Keyed
from streams.decode import DecodedBatch
from streams.source import RecordBatch


def build(
    stack: ExitStack, config: Config, options: LearnOptions, outside: RoleRuntime, metrics: LearnMetrics
) -> LearnLoop | None:
    """Open everything, find where to begin, start the threads; None when told to stop meanwhile.

    What was opened is closed by `stack` when anything fails, and by the threads that own it afterwards.
    """
    with ExitStack() as opened:
        inputs = open_inputs(opened, config)

        def fit(offsets: Mapping[int, int]) -> Fitted | None:
            try:
                waiting = partial(_warming_up, outside)
                return fit_map(
                    config, inputs, offsets, options.exit_when_caught_up, waiting, pulse=outside.pulse
                )
            finally:
                outside.pulse.rest()

        origin = find_origin(config, options, inputs, fit)
        if origin is None:
            return None
        learner = origin.state.learner
        learner.warm_up()
        if isinstance(learner, Keyed):
            metrics.keys.follow(learner.config.slots, learner.directory.__len__)
        parts = _parts(stack, config, outside, metrics, inputs=inputs, origin=origin)
        opened.pop_all()
    stack.push(parts.leave)
    parts.start()
    return parts


def _parts(
    stack: ExitStack,
    config: Config,
    outside: RoleRuntime,
    metrics: LearnMetrics,
    *,
    inputs: Inputs,
    origin: RunOrigin,
) -> LearnLoop:
    clock, watch = time.monotonic, outside.watchdog.watch
    cadence = Cadence(config.checkpoints.every, config.checkpoints.every_events)
    size = PollSize(config.stream.poll_records, cadence, origin.progress.records)
    reader = _reader(inputs, origin, size, outside)
    fence, pulse = Fence(inputs.versions, origin.epoch), watch("the errands thread")
    steps = step_log(config, inputs.address, origin, metrics, clock)
    errands = Housekeeper(inputs.control, _housekeeping(config, inputs, fence, steps, pulse), pulse, clock)
    readiness = StreamReadiness(reader, errands, partial(stands, origin, reader), clock)
    observer = Observer(outside, metrics, readiness, origin.state.arrays, clock)
    observer.resumed(origin.parent, origin.progress.watermark)
    publisher = AsyncPublisher(inputs.versions, origin.epoch)
    stack.callback(publisher.close)
    publisher.prepare(origin.state.arrays())
    publishing = Publishing(
        publisher,
        origin.progress,
        arrays=origin.state.arrays,
        describe=origin.describe,
        cadence=cadence,
        listener=Acknowledger(observer, errands, steps.handover),
        parent=origin.parent,
        clock=clock,
    )
    letters = DeadLetterWriter(inputs.dead, fence.check_if_readable, watch("the dead-letter thread"))
    threads = Threads(reader, errands, letters, steps.publisher)
    settings = LoopSettings(inputs.address.topic, config.validate.on_stop)
    halts = _halts(config, inputs, origin)
    return LearnLoop(outside, settings, origin, threads, publishing, halts, observer, steps.handover)


def _housekeeping(
    config: Config, inputs: Inputs, fence: Fence, steps: StepLog, pulse: Pulse
) -> VersionCleanup:
    own, keep = open_store(config.checkpoints.path), config.checkpoints.keep  # of the thread that cleans up
    return VersionCleanup(
        own.versions, own.ledger, fence, inputs.address, keep, config.stream, steps.retain, pulse
    )


def _halts(config: Config, inputs: Inputs, origin: RunOrigin) -> Halts:
    gate = PoisonGate(config.stream.pause_poison_share, config.stream.pause_poison_window)
    stands, topic_id = origin.progress.next_offsets, inputs.identity.topic_id
    halts = Halts(inputs.ledger, gate, stands, time.monotonic, topic_id)
    halts.in_force()  # what was told to go on no longer counts
    remember_poison(gate, inputs.versions, origin.parent, topic_id)
    return halts


def _reader(inputs: Inputs, origin: RunOrigin, size: PollSize, outside: RoleRuntime) -> Reader:
    assembler = Assembler(origin.state.fitted, inputs.catalog)

    def prepare(batch: RecordBatch) -> tuple[DecodedBatch, TripletBatch | None]:
        decoded = inputs.decoder.decode(batch)
        return decoded, assembler.triplets(decoded)

    positions, known = origin.progress.next_offsets(), origin.progress.last_digests()
    pulse = outside.watchdog.watch("the reader thread")
    return Reader(
        inputs.open_reader, positions, prepare, size, pulse=pulse, clock=time.monotonic, known=known
    )


def _warming_up(outside: RoleRuntime, waiting_for: str, in_vain: bool) -> bool:
    """While the sample for the maps is read: show what is waited for; whether to go on waiting."""
    outside.started()
    outside.pulse.beat("reading the first objects")
    outside.health.set_ready(waiting_for)
    return not outside.signals.wait(RETRY_SECONDS if in_vain else 0.0)


WAIT_SECONDS = 0.1  # how soon an idle loop hears signals and verdicts

log = structlog.get_logger("tripletd.learn")


def run(config: Config, options: LearnOptions, load: Callable[[], Config] | None = None) -> int:
    """Learn until told to stop; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP.
    """
    metrics = LearnMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        outside = open_runtime(stack, config, metrics.registry, config.http.learn_port, load)
        parts = build(stack, config, options, outside, metrics)
        if parts is None:
            return EX_OK
        outside.signals.finish_first()
        return _loop(parts, options)


def _loop(parts: LearnLoop, options: LearnOptions) -> int:
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
            if _should_exit(halt, options, parts.settings.on_stop) or not _halted(parts, halt):
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


def _should_exit(halt: LedgerEntry, options: LearnOptions, on_stop: str) -> bool:
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


def _halted(parts: LearnLoop, halt: LedgerEntry) -> bool:
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
