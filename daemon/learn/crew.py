"""Everything the learning loop works with, put together once per run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from checkpoints.publisher import AsyncPublisher
from daemon.config.model import Config
from daemon.learn.acknowledge import Acknowledger
from daemon.learn.assemble import Assembler
from daemon.learn.cadence import Cadence
from daemon.learn.fence import Fence
from daemon.learn.fitting import fit_map
from daemon.learn.inputs import Inputs, open_inputs
from daemon.learn.observe import Observer
from daemon.learn.options import LearnOptions
from daemon.learn.origin import Origin, find_origin
from daemon.learn.pipeline import PollSize, Reader
from daemon.learn.publishing import Publishing
from daemon.learn.verdicts import Verdicts
from daemon.signals import Signals
from daemon.telemetry import Health, LearnMetrics
from learners.batch import TripletBatch
from learners.maps import FittedSpaceMap
from streams.decode import DecodedBatch
from streams.errors import StreamUnavailable
from streams.source import RecordBatch


@dataclass(frozen=True, slots=True)
class Outside:
    """How the process hears of the world and shows itself to it."""

    signals: Signals
    metrics: LearnMetrics
    health: Health


@dataclass(frozen=True, slots=True)
class Crew:
    """What the loop works with; `stack` of `assemble_crew` closes all of it."""

    inputs: Inputs
    origin: Origin
    reader: Reader
    publishing: Publishing
    verdicts: Verdicts
    observer: Observer
    fence: Fence

    def caught_up(self) -> bool:
        """Whether every record now in the log is applied."""
        offsets = self.origin.progress.next_offsets()
        try:
            bounds = self.inputs.control.bounds()
        except StreamUnavailable:
            return False
        return all(offsets[partition] >= end for partition, (_, end) in bounds.items())


def assemble_crew(stack: ExitStack, config: Config, options: LearnOptions, outside: Outside) -> Crew | None:
    """Open everything, find where to begin, start reading; None when told to stop meanwhile."""
    inputs = open_inputs(stack, config)

    def fit(offsets: Mapping[int, int]) -> FittedSpaceMap | None:
        return fit_map(config, inputs, offsets, options.exit_when_caught_up, partial(_warming_up, outside))

    origin = find_origin(config, options, inputs, fit)
    if origin is None:
        return None
    origin.state.learner.warm_up()
    cadence = Cadence(config.checkpoints.every_s, config.checkpoints.every_events)
    reader = _reader(config, inputs, origin, cadence)
    arrays = origin.state.arrays
    observer = Observer(outside.metrics, outside.health, reader, arrays, time.monotonic)
    publisher, fence = AsyncPublisher(inputs.versions, origin.epoch), Fence(inputs.versions, origin.epoch)
    stack.callback(publisher.close)
    publishing = Publishing(
        publisher,
        origin.progress,
        arrays=arrays,
        describe=origin.describe,
        cadence=cadence,
        listener=Acknowledger(inputs, observer, fence, config.checkpoints.keep, config.stream),
        parent=origin.parent,
        clock=time.monotonic,
    )
    stack.enter_context(reader)
    outside.health.started()
    return Crew(inputs, origin, reader, publishing, Verdicts(inputs.ledger, time.monotonic), observer, fence)


def _reader(config: Config, inputs: Inputs, origin: Origin, cadence: Cadence) -> Reader:
    assembler = Assembler(origin.state.fitted, inputs.catalog)

    def prepare(batch: RecordBatch) -> tuple[DecodedBatch, TripletBatch | None]:
        decoded = inputs.decoder.decode(batch)
        return decoded, assembler.triplets(decoded)

    size = PollSize(config.stream.poll_records, cadence, origin.progress.records)
    return Reader(inputs.open_reader, origin.progress.next_offsets(), prepare, size, time.monotonic)


def _warming_up(outside: Outside, waiting_for: str) -> bool:
    """While the sample for the maps is read: show what is waited for; whether to go on waiting."""
    outside.health.started()
    outside.health.beat()
    outside.health.set_ready(waiting_for)
    return not outside.signals.stopping
