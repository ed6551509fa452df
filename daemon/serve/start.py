"""The `serve` role: opens and joins its parts, and looks after them until it is stopped.

Versions, steps and items come in, answers go out; all of it is done in threads of the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from checkpoints import VersionStore
from daemon.config.schema import Config, ServeConfig
from daemon.exits import EX_OK, EX_SOFTWARE, UserError
from daemon.index import open_index
from daemon.index.verdicts import KeptVerdicts
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime_without_server
from daemon.serve.http import HttpLimits, HttpServer, Parts, Writes, create_app, serve
from daemon.serve.http.upstream import UpstreamSettings
from daemon.serve.indexed import IndexSearch, StoreRecall
from daemon.serve.lists import SignedLists
from daemon.serve.live import FreshnessWatcher, Live
from daemon.serve.metrics import FRESHNESS_EDGES, GuardMetrics, IndexMetrics, KeyAnswerMetrics, ServeMetrics
from daemon.serve.page.routes import page_routes
from daemon.serve.page.sources import live_series, page_sources
from daemon.serve.store import StoreActions
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.serve.writes.spool import Spool, SpoolBounds, SpoolFolder, SpoolTopic
from daemon.telemetry.metrics import add_place
from daemon.versions.storage import open_store
from streams.source import Quiet

DRAIN_S = 1.0
"""How long open requests may take when the role ends."""

TURN_S, IDLE_TURN_S = 0.1, 0.25
"""How soon readiness hears what happened: while that changes, and after long silence."""

log = structlog.get_logger("tripletd.serve")


def run(config: Config, load: Callable[[], Config] | None = None) -> int:
    """Answer until a signal stops it; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP.
    """
    metrics = ServeMetrics(config.serve.aliases)
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime_without_server(stack, config, load)
        parts = build(stack, config, runtime, metrics)
        _loop(parts, runtime)
        runtime.notifier.stopping()
    return EX_OK


def _loop(parts: ServeParts, runtime: RoleRuntime) -> None:
    """Look after the parts, and say whether they answer: before anybody hears that the role has started."""
    readiness = ReadinessReporter(runtime.health, runtime.notifier, log, "answering")
    quiet, before = Quiet(TURN_S, IDLE_TURN_S), None
    runtime.health.set_ready("being loaded")
    runtime.started()
    while not runtime.signals.stopping:
        runtime.pulse.beat("a turn of the loop")
        runtime.reloading.when(runtime.signals.take_reload_request())
        with runtime.pulse.patient("opening versions and items"):
            parts.turn()
        if parts.live.opened is not None:  # until then a stop ends the process at once: nobody was answered
            runtime.signals.finish_first()
        reason = parts.live.not_ready()
        readiness.now(reason, loading=parts.live.loading())
        if reason is not None or before is not None:
            quiet.broken()
        before = reason
        runtime.signals.wait(quiet.rest_s())


@dataclass(frozen=True, slots=True)
class ServeParts:
    """The parts that the role's loop looks after."""

    live: Live
    server: HttpServer

    def turn(self) -> None:
        """Open what could not be opened yet. UserError when that cannot be, or when nobody listens."""
        self.live.open_when_there()
        if not self.server.alive():
            raise UserError("the HTTP server has ended; the log says why", "", EX_SOFTWARE)


def build(stack: ExitStack, config: Config, runtime: RoleRuntime, metrics: ServeMetrics) -> ServeParts:
    """Everything, listening; it answers 503 until there is a version. `stack` ends it: first the server, so
    that open requests are answered, then what answers them. UserError: the port, the folder or a file.
    """
    stored = open_store(config.checkpoints.path)
    versions, ledger = stored.versions, stored.ledger
    watcher = FreshnessWatcher(config.serve.aliases, metrics.record_freshness, FRESHNESS_EDGES[-1])
    guarded, keys = GuardMetrics(metrics.registry).record, KeyAnswerMetrics(metrics.registry)

    def reading(progress: str) -> None:
        log.info(progress)
        runtime.health.set_ready(progress)

    live = Live(config, versions, ledger, watcher, guarded, keys=keys, tell=reading)
    index = _index(stack, config, versions, live, metrics.registry)
    series = live_series(config, metrics.registry, runtime.health)
    stack.callback(live.close, series)
    metrics.follow(live.statuses, live.items, watcher.waiting)
    parts = Parts(
        searcher=live,
        vectors=live,
        scorer=live,
        answered=watcher.answered,
        store=StoreActions(versions, ledger, config.checkpoints.keep, live.statuses),
        aliases=config.serve.aliases,
        health=runtime.health,
        registry=metrics.registry,
        gate=runtime.doors.gate,
        hosts=[config.http.host.lower(), *config.http.hosts],
        limits=limits_of(config.serve),
        page=page_routes(page_sources(config, versions, ledger, live, series)),
        pulse=runtime.watchdog.watch("the search"),
        lists=_lists(config, live),
        writes=_writes(stack, config, metrics),
        index=index,
        index_threads=config.index.connections,
        upstream=_upstream(config),
        models=config.embeddings.models,
    )
    doors = runtime.doors
    server = serve(create_app(parts), config.http.host, config.http.serve_port, doors.context)
    stack.callback(server.close)
    series.start()
    url = f"{doors.scheme}://{server.host}:{server.port}"
    log.info("answering, with metrics, health and the page", url=url)
    return ServeParts(live, server)


def _index(
    stack: ExitStack, config: Config, versions: VersionStore, live: Live, registry: CollectorRegistry
) -> IndexSearch | None:
    """What asks the store of [index]; None where there is none."""
    index = open_index(config.index)
    if index is None:
        return None
    stack.callback(index.close)
    metrics = IndexMetrics(registry)
    recall = StoreRecall(index, config.index, live.sample_queries, metrics.measured)
    stack.callback(recall.close)
    recall.start()
    mode_of = KeptVerdicts(versions, index.name).mode_of
    log.info("questions go to a store", index=index.name, mode=config.index.mode)
    return IndexSearch(index, config.index, live, mode_of, metrics)


def _lists(config: Config, live: Live) -> SignedLists | None:
    """What makes lists by chance; None without a key to sign them with."""
    secret = config.interleaving.key.get_secret_value()
    return SignedLists(secret.encode(), live.snapshot, config.interleaving.explore) if secret else None


def _writes(stack: ExitStack, config: Config, metrics: ServeMetrics) -> Writes | None:
    """What takes impressions and clicks, until `stack` ends; None where that is switched off."""
    wanted = config.serve.writes
    if not wanted.enabled:
        return None
    counted = WriteMetrics(metrics.registry)
    queue = WriteQueue(_spool(config), wanted.queue, counted)
    stack.callback(queue.close)
    return Writes(queue, counted, wanted.origins, wanted.batch_max)


def _spool(config: Config) -> Spool:
    wanted, stream = config.serve.writes, config.stream.to_address()
    if wanted.folder or stream.scheme != "kafka":
        folder = Path(wanted.folder or f"{stream.path}.raw")
        log.info("impressions and clicks over HTTP", folder=str(folder))
        return SpoolFolder(folder, SpoolBounds(wanted.size, wanted.keep))
    log.info("impressions and clicks over HTTP", topic=str(stream.raw))
    return SpoolTopic(stream.raw, config.stream.partitions)


def _upstream(config: Config) -> UpstreamSettings | None:
    """What embeds texts; None where nothing does. UserError: its key is not there."""
    given, key = config.embeddings, config.embeddings.key()
    if not given.upstream:
        return None
    return UpstreamSettings(given.upstream, key, given.timeout, given.connections, given.answer)


def limits_of(serve: ServeConfig) -> HttpLimits:
    """[serve] as the limits of the HTTP side."""
    return HttpLimits(
        body_bytes=serve.body,
        connections=serve.connections,
        k_max=serve.k_max,
        batch_max=serve.batch_max,
        queue=serve.queue,
        head_s=serve.request_timeout,
        body_s=serve.request_timeout,
        drain_s=DRAIN_S,
    )
