"""Puts a learning loop's parts together: opens everything and finds where to begin."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from checkpoints import Ledger, VersionStore
from checkpoints.publisher import AsyncPublisher
from daemon.config.model import Config
from daemon.learn.acknowledge import Acknowledger
from daemon.learn.applying.assemble import Assembler
from daemon.learn.halts import Halts, remember_poison
from daemon.learn.observe import Observer
from daemon.learn.parts import LoopParts, LoopSettings, stands
from daemon.learn.poisongate import PoisonGate
from daemon.learn.readiness import Readiness
from daemon.learn.starting.fitting import Fitted, fit_map
from daemon.learn.starting.inputs import Inputs, open_inputs
from daemon.learn.starting.options import LearnOptions
from daemon.learn.starting.origin import Origin, find_origin
from daemon.learn.steplog import StepLog, step_log
from daemon.learn.threads.errands import Errands
from daemon.learn.threads.group import Threads
from daemon.learn.threads.letters import Letters
from daemon.learn.threads.pollsize import PollSize
from daemon.learn.threads.reader import RETRY_SECONDS, Reader
from daemon.learn.writing.cadence import Cadence
from daemon.learn.writing.fence import Fence
from daemon.learn.writing.housekeeping import Housekeeping
from daemon.learn.writing.publishing import Publishing
from daemon.process.outside import Outside
from daemon.process.watchdog import Pulse
from daemon.telemetry import LearnMetrics
from learners.block import TripletBatch
from learners.keyed import Keyed
from streams.decode import DecodedBatch
from streams.source import RecordBatch


def build(
    stack: ExitStack, config: Config, options: LearnOptions, outside: Outside, metrics: LearnMetrics
) -> LoopParts | None:
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
    outside: Outside,
    metrics: LearnMetrics,
    *,
    inputs: Inputs,
    origin: Origin,
) -> LoopParts:
    clock, watch = time.monotonic, outside.watchdog.watch
    cadence = Cadence(config.checkpoints.every_s, config.checkpoints.every_events)
    size = PollSize(config.stream.poll_records, cadence, origin.progress.records)
    reader = _reader(inputs, origin, size, outside)
    fence, pulse = Fence(inputs.versions, origin.epoch), watch("the errands thread")
    steps = step_log(config, inputs.address, origin, metrics, clock)
    errands = Errands(inputs.control, _housekeeping(config, inputs, fence, steps, pulse), pulse, clock)
    readiness = Readiness(reader, errands, partial(stands, origin, reader), clock)
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
    letters = Letters(inputs.dead, fence.check_if_readable, watch("the dead-letter thread"))
    threads = Threads(reader, errands, letters, steps.publisher)
    settings = LoopSettings(inputs.address.topic, config.validate.on_stop)
    halts = _halts(config, inputs, origin)
    return LoopParts(outside, settings, origin, threads, publishing, halts, observer, steps.handover)


def _housekeeping(config: Config, inputs: Inputs, fence: Fence, steps: StepLog, pulse: Pulse) -> Housekeeping:
    store, keep = inputs.store, config.checkpoints.keep
    versions, ledger = VersionStore(store), Ledger(store)
    return Housekeeping(versions, ledger, fence, inputs.address, keep, config.stream, steps.retain, pulse)


def _halts(config: Config, inputs: Inputs, origin: Origin) -> Halts:
    gate = PoisonGate(config.stream.pause_poison_share, config.stream.pause_poison_window)
    stands, topic_id = origin.progress.next_offsets, inputs.identity.topic_id
    halts = Halts(inputs.ledger, gate, stands, time.monotonic, topic_id)
    halts.in_force()  # what was told to go on no longer counts
    remember_poison(gate, inputs.versions, origin.parent, topic_id)
    return halts


def _reader(inputs: Inputs, origin: Origin, size: PollSize, outside: Outside) -> Reader:
    assembler = Assembler(origin.state.fitted, inputs.catalog)

    def prepare(batch: RecordBatch) -> tuple[DecodedBatch, TripletBatch | None]:
        decoded = inputs.decoder.decode(batch)
        return decoded, assembler.triplets(decoded)

    positions, known = origin.progress.next_offsets(), origin.progress.last_digests()
    pulse = outside.watchdog.watch("the reader thread")
    return Reader(
        inputs.open_reader, positions, prepare, size, pulse=pulse, clock=time.monotonic, known=known
    )


def _warming_up(outside: Outside, waiting_for: str, in_vain: bool) -> bool:
    """While the sample for the maps is read: show what is waited for; whether to go on waiting."""
    outside.started()
    outside.pulse.beat("reading the first objects")
    outside.health.set_ready(waiting_for)
    return not outside.signals.wait(RETRY_SECONDS if in_vain else 0.0)
