"""The `learn` role: opens and joins everything, finds where to begin, and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TypeAlias

import structlog

from checkpoints import VersionStore
from checkpoints.commit import WriterLock
from checkpoints.publisher import AsyncPublisher, Published
from daemon.config.schema import Config
from daemon.dead_letters import DeadLetterWriter
from daemon.exits import EX_OK
from daemon.learn.adopting import MergeWatch, versions_merged
from daemon.learn.housekeeping import Housekeeper, VersionCleanup
from daemon.learn.loop import Halts, LearnLoop, PoisonGate, remember_poison
from daemon.learn.observe import Observer, StreamReadiness
from daemon.learn.publishing import Cadence, Fence, PlaceWatch, Publishing, take_place
from daemon.learn.reader import Inputs, PollSize, Reader, learned_up_to, open_inputs
from daemon.learn.resume.fitting import Fitted, fit_map
from daemon.learn.resume.origin import LearnOptions, RunOrigin, find_origin
from daemon.learn.resume.seeding import begin_shard, no_shards
from daemon.learn.step import Assembler
from daemon.learn.steplog.publisher import StepPublisher, step_publisher
from daemon.memory.fits import require_role
from daemon.memory.needs import RoleName
from daemon.memory.watch import watch_memory
from daemon.retries import RETRY_SECONDS
from daemon.runtime.in_hand import ALARM_TIMES, InHand
from daemon.runtime.runtime import RoleRuntime, open_runtime
from daemon.runtime.watchdog import Pulse
from daemon.telemetry import LearnMetrics
from daemon.telemetry.metrics import add_place
from daemon.topics.retention import retain_steps
from daemon.versions.algorithms import as_made
from daemon.versions.shards import ShardRecord
from daemon.versions.storage import open_store
from learners.keyed import Keyed
from streams.shards import Shard

MERGED_SECONDS = 0.5
"""Between two looks of a shard whether there is a version to begin with."""

log = structlog.get_logger("tripletd.learn")


def run(config: Config, options: LearnOptions, load: Callable[[], Config] | None = None) -> int:
    """Learn until a stop; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP.
    """
    if (refused := no_shards(config.shards.count, options.shard)) is not None:
        raise refused
    metrics = LearnMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime(stack, config, metrics.registry, config.http.learn_port, load)
        watch_memory(stack, metrics.registry, config, "learn")
        loop = build(stack, config, options, runtime, metrics)
        if loop is None:
            return EX_OK
        runtime.signals.finish_first()
        return loop.run(options.exit_when_caught_up)


def build(
    stack: ExitStack, config: Config, options: LearnOptions, runtime: RoleRuntime, metrics: LearnMetrics
) -> LearnLoop | None:
    """Open everything, find where to begin, start the threads; None when a stop came meanwhile.

    What was opened is closed by `stack` when anything fails, and by the threads that own it afterwards.
    """
    with ExitStack() as opened:
        begun = begin(stack, opened, config, options, runtime)
        if begun is None:
            return None
        config, inputs, origin, lock = begun
        learner = origin.state.learner
        runtime.health.starting("compiling kernels for this machine, where they are not in its cache")
        inputs.decoder.queries = origin.state.fitted.queries
        inputs.decoder.warm_up()
        origin.state.warm_up()
        if isinstance(learner, Keyed):
            state = origin.state  # whose learner changes when a merged version is taken over
            metrics.keys.follow(
                learner.config.slots,
                lambda: len(state.learner.directory) if isinstance(state.learner, Keyed) else 0,
            )
        loop = _loop(stack, config, runtime, metrics, inputs=inputs, origin=origin, lock=lock)
        opened.pop_all()
    stack.push(loop.leave)
    loop.start()
    return loop


Begun: TypeAlias = tuple[Config, Inputs, RunOrigin, WriterLock | None]
"""The configuration as its folder was made, what was opened, where the run begins, the lock of the folder."""


def begin(
    stack: ExitStack,
    opened: ExitStack,
    config: Config,
    options: LearnOptions,
    runtime: RoleRuntime,
    *,
    role: RoleName = "learn",
) -> Begun | None:
    """Open everything, and find where to begin; None when a stop came meanwhile. Raises UserError where the
    role's memory is not there, before it is asked for.

    stack: releases the lock of the folder. opened: closes what was opened.
    """
    runtime.health.starting("reading objects and opening the log")
    inputs = open_inputs(opened, config, runtime.starting, shard_of(config, options))
    runtime.health.starting("looking for where to begin")

    def fit(offsets: Mapping[int, int]) -> Fitted | None:
        all_there_is = options.exit_when_caught_up
        try:
            return fit_map(config, inputs, offsets, all_there_is, warming_up, pulse=runtime.pulse)
        finally:
            runtime.pulse.rest()

    def warming_up(waiting_for: str, in_vain: bool) -> bool:
        """While the sample for the maps is read: show what is waited for; whether to wait on."""
        runtime.pulse.beat("reading the first objects")
        return shown(waiting_for, RETRY_SECONDS if in_vain else 0.0)

    def wait(waiting_for: str) -> bool:
        runtime.pulse.rest()
        return shown(waiting_for, MERGED_SECONDS)

    def shown(waiting_for: str, seconds: float) -> bool:
        runtime.started()
        runtime.health.set_ready(waiting_for)
        return not runtime.signals.wait(seconds)

    store, take_over = inputs.versions.store, options.take_over
    lock = take_place(stack, store, inputs.place, take_over, runtime.signals.wait)
    if runtime.signals.stopping or (inputs.shard is not None and not begin_shard(inputs, wait)):
        return None
    newest = inputs.versions.newest_manifest()
    config = as_made(config, newest)
    items = 0 if inputs.catalog is None else len(inputs.catalog)
    require_role(config, role, established=newest is not None, items=items)
    origin = find_origin(config, options, inputs, fit)
    return None if origin is None else (config, inputs, origin, lock)


def _loop(
    stack: ExitStack,
    config: Config,
    runtime: RoleRuntime,
    metrics: LearnMetrics,
    *,
    inputs: Inputs,
    origin: RunOrigin,
    lock: WriterLock | None,
) -> LearnLoop:
    """The loop with its threads, none of them started."""
    clock, watch = time.monotonic, runtime.watchdog.watch
    progress, arrays = origin.progress, origin.state.arrays
    cadence = Cadence(config.checkpoints.every, config.checkpoints.every_events)
    fence = Fence(inputs.versions, origin.epoch)
    fence.check_if_readable()  # frozen since it claimed: the note is of the learner that took over
    in_hand = InHand.of(inputs.place, "learn", ALARM_TIMES * config.stream.stuck_after)
    in_hand.open(inputs.identity.topic_id, progress.next_offsets())
    stack.callback(in_hand.close)
    reader = Reader(
        inputs.open_reader,
        progress.next_offsets(),
        Assembler(inputs.decoder, origin.state.fitted, inputs.catalog),
        PollSize(config.stream.poll_records, cadence, progress.records),
        pulse=watch("the reader thread"),
        clock=clock,
        known=progress.last_digests(),
        shard=inputs.shard,
        in_hand=in_hand,
    )
    steps = step_publisher(config, inputs.address, origin, metrics, clock)
    place = PlaceWatch(fence, lock, origin.base)
    pulse = watch("the housekeeping thread")
    merges = None
    if inputs.merged is not None:
        own, merged = VersionStore(inputs.versions.store), VersionStore(inputs.merged.store)
        merges = MergeWatch(own, merged, origin.base, pulse)

    def look() -> None:  # once a second, at the folder, and of a shard for merged versions
        place()
        if merges is not None:
            merges(ShardRecord.read(progress.shard, "what is learned"))

    housekeeper = _housekeeper(config, inputs, place, steps, pulse=pulse, look=look)
    letters = DeadLetterWriter(inputs.dead, fence.check_if_readable, watch("the dead-letter thread"))
    learned = partial(learned_up_to, progress, reader)
    readiness = StreamReadiness(reader, housekeeper, learned, clock, inputs.address.topic)
    observer = Observer(runtime, metrics, readiness, arrays, clock)
    observer.resumed(origin.parent, progress.watermark)
    publisher = AsyncPublisher(inputs.versions, origin.epoch)
    stack.callback(publisher.close)
    publisher.prepare(arrays())

    def published(result: Published) -> None:
        observer.published(result)
        place.published(result.manifest)
        if merges is not None:
            merges.published(result.manifest)
        if steps is not None:
            steps.published(result.manifest)
        housekeeper.published(result.manifest)

    publishing = Publishing(
        publisher,
        progress,
        arrays=arrays,
        describe=origin.describe,
        cadence=cadence,
        on_captured=steps.captured if steps is not None else lambda _: None,
        on_published=published,
        on_failed=observer.failed,
        on_skipped=observer.skipped,
        parent=origin.parent,
        clock=clock,
    )
    return LearnLoop(
        runtime,
        origin,
        reader,
        housekeeper,
        letters,
        steps,
        publishing,
        _halts(config, inputs, origin),
        observer,
        place,
        topic=inputs.address.topic,
        exits_on_stop=config.validate.on_stop == "exit",
        merges=merges,
        config=config.learner,
        in_hand=in_hand,
    )


def shard_of(config: Config, options: LearnOptions) -> Shard | None:
    """The shard that is asked for; None for one learner of all partitions."""
    return None if options.shard is None else Shard(options.shard, config.shards.count)


def _housekeeper(
    config: Config,
    inputs: Inputs,
    place: PlaceWatch,
    steps: StepPublisher | None,
    *,
    pulse: Pulse,
    look: Callable[[], None],
) -> Housekeeper:
    """With a store and a ledger of its own: each remembers what it has read, and is of one thread."""

    def retain() -> None:
        if steps is not None:
            retain_steps(inputs.address, config.steps, steps.floor, log.warning)

    own = open_store(inputs.place)
    shard, merges = inputs.shard, inputs.merged
    kept = partial(versions_merged, merges, shard) if shard is not None and merges is not None else set
    cleanup = VersionCleanup(
        own.versions,
        own.ledger,
        place.fence,
        inputs.address,
        config.checkpoints.keep,
        config.stream,
        retain,
        pulse,
        also_kept=kept,
        retains=shard is None,
    )
    return Housekeeper(inputs.control, cleanup, pulse, time.monotonic, watch=look, first=cleanup.fold)


def _halts(config: Config, inputs: Inputs, origin: RunOrigin) -> Halts:
    gate = PoisonGate(config.stream.pause_poison_share, config.stream.pause_poison_window)
    positions, topic_id = origin.progress.next_offsets, inputs.identity.topic_id
    # judgments are of merged versions, whose arms no single shard may give up
    first = origin.epoch.next_number if inputs.shard is None else None
    halts = Halts(inputs.ledger, gate, positions, time.monotonic, topic_id, first=first)
    halts.in_force()  # records before a pause that was lifted no longer count
    remember_poison(gate, inputs.versions, origin.parent, topic_id)
    return halts
