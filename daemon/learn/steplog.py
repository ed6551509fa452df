"""The step log of a learner, put together: its inbox, its thread, its retention; or nothing of all that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from daemon.config.model import Config
from daemon.learn.starting.origin import Origin
from daemon.learn.steps.allowance import Allowance
from daemon.learn.steps.handover import Handover, durable
from daemon.learn.steps.inbox import Inbox
from daemon.learn.steps.journal import Journal
from daemon.learn.steps.publisher import StepPublisher
from daemon.retention import retain_steps
from daemon.telemetry import LearnMetrics
from daemon.telemetry.step_log_metrics import StepLogMetrics
from daemon.versions.algorithms import by_steps
from streams.address import Address
from streams.open import open_sink, prepare_topic
from streams.source import Sink
from streams.steps.segment import BREAK_REASONS, ChainPosition

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class StepLog:
    """What the loop tells, the thread that publishes it (None: off), and what the errands thread does."""

    handover: Handover
    publisher: StepPublisher | None
    retain: Callable[[], None]


def step_log(
    config: Config, address: Address, origin: Origin, metrics: LearnMetrics, clock: Callable[[], float]
) -> StepLog:
    """The step log that `[steps]` asks for. Opens nothing: its thread does, once it is started."""
    settings = config.steps
    if not (settings.enabled and by_steps(config.learner.algorithm, config.keys)):
        return StepLog(Handover(None), None, lambda: None)
    inbox, base = Inbox(), durable(origin.base)
    dim, told = origin.state.learner.dim, origin.state.learner.taken

    def journal(max_record_bytes: int) -> Journal:
        allowance = Allowance(settings.max_rate_bytes, clock(), settings.retention_size)
        place = ChainPosition(origin.epoch.number, 0, base.number, origin.epoch.writer)
        return Journal(place, base, dim, max_record_bytes, allowance, told=told)

    numbers = StepLogMetrics(metrics.registry, BREAK_REASONS)
    publisher = StepPublisher(
        inbox,
        lambda: open_steps(address.steps),
        journal,
        every_s=settings.every_s,
        metrics=numbers,
        clock=clock,
    )

    def retain() -> None:
        retain_steps(address, settings, publisher.floor, log.warning)

    return StepLog(Handover(inbox), publisher, retain)


def open_steps(address: Address) -> Sink:
    """The topic of applied steps; made with one partition where an embedded log has none.

    Not synced with every write: a replica that has seen more than a power cut left begins anew.
    """
    prepare_topic(address, 1, "write")
    return open_sink(address, durable=False)
