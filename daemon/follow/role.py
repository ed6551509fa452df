"""The `feed` role: `tripletd feed --follow`, alone or under `up`."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from daemon.config.objects import is_object_address
from daemon.config.schema import Config
from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_OK, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.feeding import catalog_of_feed, decider_of, prepare_both, stream_address
from daemon.follow.follower import ClickFollower, FollowPlan
from daemon.follow.metrics import FollowMetrics
from daemon.follow.outlet import FeedOutlet
from daemon.retries import RETRY_SECONDS, until_available
from daemon.runtime.in_hand import ALARM_TIMES, InHand
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime
from daemon.telemetry.metrics import add_place
from streams.errors import AddressError, StreamUnavailable
from streams.feed.follow.checkpoint import CheckpointInUse, FeedCheckpoints
from streams.feed.follow.examined import RecentExamination
from streams.feed.follow.intake import Intake
from streams.feed.follow.join import JoinSettings
from streams.feed.follow.registry import SchemaRegistry
from streams.feed.follow.schemas import BATCH_SECONDS, SchemaDecoder
from streams.feed.items import FeedError
from streams.feed.mapping.mapping import load_mapping
from streams.open import records_given
from streams.source import Quiet

REST_SECONDS, LONGEST_REST_SECONDS = 0.02, 0.25
"""Between two looks at the sources: after something came, and after long silence."""
COLLECT = (100_000, 50, 1_000)
"""Thresholds of the garbage collector: what waits in a join is alive and has no cycles, so looking through it
often finds nothing."""
FOLDER, SCHEMAS = "feed", "schemas"
"""Of the checkpoint folder, where feed.follow.path names none; in it, what a schema registry gave."""

Result = TypeVar("Result")

log = structlog.get_logger("tripletd.feed")


def run(
    config: Config, load: Callable[[], Config] | None = None, *, exit_when_caught_up: bool = False
) -> int:
    """Follow until stopped; returns the exit code. Raises UserError and the errors of the islands.

    exit_when_caught_up: leave when all sources were read to their ends; lists under way wait in the
    checkpoint. `load` reads the configuration again.
    """
    plan = plan_of(config)
    metrics = FollowMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime(stack, config, metrics.registry, config.http.feed_port, load)
        runtime.starting("reading objects and opening the log")
        checkpoints = stack.enter_context(closing(_checkpoints(config)))
        schemas = _schemas(config, checkpoints.folder / SCHEMAS, metrics.registry_failures.inc)
        address = stream_address(config)
        if address.scheme == "memory":
            raise UserError(f"{address} lives inside one process", "feed into a log or into Kafka", EX_USAGE)
        catalog = catalog_of_feed(config, log.info)
        retry = RetriedCalls(runtime)
        in_hand = InHand.of(str(checkpoints.folder), "feed", ALARM_TIMES * config.stream.stuck_after)
        stack.callback(in_hand.close)
        partitions = retry(lambda: prepare_both(address, config))
        outlet = retry(lambda: FeedOutlet(address, stack))
        now_ms = int(time.time() * 1000)
        fed = retry(lambda: records_given(address))
        follower = ClickFollower(
            plan,
            open_intake=lambda places: _intake(plan, places, config, schemas, in_hand),
            decider=decider_of(config, catalog, partitions, now_ms, fed=fed, endless=True),
            outlet=outlet,
            checkpoints=checkpoints,
            metrics=metrics,
            retry=retry,
            in_hand=in_hand,
            examination=RecentExamination(
                config.interleaving.key.get_secret_value().encode(), config.feed.follow.shuffled
            ),
        )
        stack.enter_context(closing(follower.intake))
        gc.freeze()
        gc.set_threshold(*COLLECT)
        runtime.signals.finish_first()
        runtime.started()
        try:
            _loop(follower, runtime, exit_when_caught_up)
        except StreamUnavailable as error:
            if not runtime.signals.stopping:
                raise
            log.warning(
                "stopped while the stream was away; what waits is in the checkpoint", reason=str(error)
            )
        except OSError as error:
            message = f"the checkpoint in {checkpoints.folder} cannot be written: {error.strerror or error}"
            raise UserError(message, "make room, or the folder writable", EX_TEMPFAIL) from error
    return EX_OK


class RetriedCalls:
    """Repeats a call that raises StreamUnavailable until it succeeds; once the role is stopped, the error is
    raised."""

    def __init__(self, runtime: RoleRuntime) -> None:
        self._runtime = runtime
        self._said = False

    def __call__(self, call: Callable[[], Result]) -> Result:
        """What `call` comes back with."""
        result = until_available(call, self._wait)
        if self._said:
            self._said = False
            log.info("the stream is back")
        return result

    def _wait(self, error: StreamUnavailable) -> bool:
        if not self._said:
            self._said = True
            log.warning("the stream is away; trying again", reason=str(error))
        self._runtime.pulse.beat("waiting for the stream")
        self._runtime.health.set_ready(f"the stream is not available: {error}")
        return self._runtime.signals.wait(RETRY_SECONDS)


def plan_of(config: Config) -> FollowPlan:
    """[feed.follow] as the follower wants it. Raises UserError."""
    follow = config.feed.follow
    if not follow.sources:
        raise UserError(
            "feed.follow.sources names nothing to follow",
            'name files or topics, such as sources = ["/var/log/shop/clicks*.jsonl", "log:spool.log#clicks"]',
            EX_CONFIG,
        )
    try:
        mapping = load_mapping(follow.mapping) if follow.mapping else None
    except FeedError as error:
        raise UserError(f"feed.follow.mapping: {error.message}", error.remedy, EX_CONFIG) from None
    within_ms = round(1000 * follow.within)
    if mapping is not None and mapping.within_ms is not None:
        within_ms = mapping.within_ms
    join = JoinSettings(
        window_ms=round(1000 * follow.window),
        within_ms=within_ms,
        most_open=follow.max_open,
        remembered=follow.remembered,
        bucket_ms=max(1, round(1000 * follow.bucket)),
    )
    ahead_ms = round(1000 * config.stream.max_future)
    return FollowPlan(
        follow.sources, join, round(1000 * follow.lateness), ahead_ms, mapping, follow.bot_clicks
    )


def _checkpoints(config: Config) -> FeedCheckpoints:
    if not config.feed.follow.path and is_object_address(config.checkpoints.path):
        message = "feed.follow.path: what feeds for ever keeps a checkpoint of its own, in a local folder"
        raise UserError(message, "set feed.follow.path to a folder that outlasts a restart", EX_CONFIG)
    folder = Path(config.feed.follow.path or Path(config.checkpoints.path, FOLDER))
    try:
        return FeedCheckpoints(folder)
    except CheckpointInUse:
        message = f"another `tripletd feed --follow` works with {folder}"
        raise UserError(message, "stop it, or set feed.follow.path to another folder", EX_CANTCREAT) from None
    except OSError as error:
        message = f"feed.follow.path: {folder} cannot be written: {error.strerror or error}"
        raise UserError(message, "create it, or name another folder", EX_CANTCREAT) from error


def _schemas(config: Config, folder: Path, failed: Callable[[], None]) -> SchemaDecoder | None:
    registry = config.feed.follow.registry
    if not registry.url:
        return None
    try:
        # Of the time that a hang is told by, a batch takes a quarter, and a schema begun at its end half: its
        # answers take four timeouts at most, and whether the registry answers at all is asked after that.
        stuck_after = config.stream.stuck_after
        settings = replace(registry.to_settings(), timeout_s=min(registry.timeout, stuck_after / 10))
        batch_s = min(BATCH_SECONDS, stuck_after / 4)
        return SchemaDecoder(SchemaRegistry(settings, folder, failed), batch_s)
    except OSError as error:
        message = f"feed.follow.registry.cafile: {registry.cafile}: {error.strerror or error}"
        raise UserError(message, "name a PEM file of authorities", EX_CONFIG) from None


def _intake(
    plan: FollowPlan,
    places: dict[str, object],
    config: Config,
    schemas: SchemaDecoder | None,
    in_hand: InHand,
) -> Intake:
    kafka = config.stream.kafka.to_settings()
    try:
        return Intake(plan.sources, places, plan.lateness_ms, kafka, schemas, guard=in_hand)
    except AddressError as error:
        raise UserError(f"feed.follow.sources: {error}", code=EX_CONFIG) from None
    except FeedError as error:
        raise UserError(f"feed.follow.mapping: {error.message}", error.remedy, EX_CONFIG) from None


def _loop(follower: ClickFollower, runtime: RoleRuntime, exit_when_caught_up: bool) -> None:
    signals = runtime.signals
    readiness = ReadinessReporter(runtime.health, runtime.notifier, log, "following")
    readiness.now("no source was looked at yet", loading=True)
    quiet = Quiet(REST_SECONDS, LONGEST_REST_SECONDS)
    while not signals.stopping:
        runtime.reloading.when(signals.take_reload_request())
        runtime.pulse.beat("reading the sources")
        found = follower.step(time.monotonic())
        asked = signals.take_checkpoint_request()
        done = exit_when_caught_up and not found and follower.intake.at_rest()
        if done or asked or follower.is_due(time.monotonic()):
            with runtime.pulse.patient("writing a checkpoint"):
                follower.commit()
        readiness.now(follower.not_ready())
        if done:
            break
        if found:
            quiet.broken()
        else:
            signals.wait(quiet.rest_s())
    follower.commit()
