"""The `serve` role: opens and joins its parts, lists made by chance among them, and looks after them until it
is stopped.

Versions, steps and items come in, answers go out; all of it is done in threads of the parts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from prometheus_client import CollectorRegistry

from checkpoints import VersionStore
from daemon.config.schema import Config, ServeConfig
from daemon.exits import EX_OK, EX_SOFTWARE, UserError
from daemon.index import open_index
from daemon.index.verdicts import JudgedStore, KeptVerdicts
from daemon.memory.watch import watch_memory
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime_without_server
from daemon.serve.http import HttpLimits, HttpServer, LocalModel, Parts, Writes, create_app, serve
from daemon.serve.indexed import IndexSearch, StoreRecall
from daemon.serve.interleave import Drawn, MadeList
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.live import FreshnessWatcher, Live
from daemon.serve.metrics import (
    FRESHNESS_EDGES,
    GraphMetrics,
    GuardMetrics,
    IndexMetrics,
    KeyAnswerMetrics,
    ServeMetrics,
)
from daemon.serve.model_probe import ModelWatch, probe_of, upstream_of
from daemon.serve.page.routes import page_routes
from daemon.serve.page.sources import live_series, page_sources
from daemon.serve.page.study import rating_sources
from daemon.serve.query import Query
from daemon.serve.retrieve.finding import draw
from daemon.serve.shared_port import InheritedSockets, SharedPort
from daemon.serve.store import StoreActions
from daemon.serve.text_model import TextModel
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.serve.writes.spool import Spool, SpoolBounds, SpoolFolder, SpoolTopic
from daemon.telemetry.metrics import add_place
from daemon.versions.storage import open_store
from streams.event import Draft, DraftModel, ObjectRef, SparseVector, Vector
from streams.foreign_http import ForeignServer
from streams.signed_lists import NONCE_BYTES, SignedList, sign_list
from streams.source import Quiet

DRAIN_S = 1.0
"""How long open requests may take when the role ends, at least; at most as long as any may take."""
HANDOVER_S = 1.0
"""Least drain of one of several processes on a port: its connections go on to ask once more."""
_DRAIN_TURN_S = 0.05

TURN_S, IDLE_TURN_S = 0.1, 0.25
"""How soon readiness hears what happened: while that changes, and after long silence."""

log = structlog.get_logger("tripletd.serve")


def run(
    config: Config, load: Callable[[], Config] | None = None, sockets: InheritedSockets | None = None
) -> int:
    """Answer until a signal stops it; the exit code. Raises UserError and the errors of the islands.

    `load` reads the configuration again, for SIGHUP. sockets: of the port that is shared with other
    processes, besides that of its own.
    """
    metrics = ServeMetrics(config.serve.aliases)
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime_without_server(stack, config, load)
        watch_memory(stack, metrics.registry, config, "serve")
        parts = build(stack, config, runtime, metrics)
        if sockets is not None:
            parts = replace(parts, shared=SharedPort(sockets, parts.server))
        _loop(parts, runtime)
        runtime.notifier.stopping()
        _drain(parts, runtime, config.serve.drain or 0.0)
    return EX_OK


def _loop(parts: ServeParts, runtime: RoleRuntime) -> None:
    """Look after the parts, and say whether they answer: before anybody hears that the role has started."""
    readiness = ReadinessReporter(runtime.health, runtime.notifier, log, "answering")
    quiet, before = Quiet(TURN_S, IDLE_TURN_S), None
    runtime.health.set_ready("being loaded")
    runtime.started()
    if parts.shared is not None:
        parts.shared.start()
    while not runtime.signals.stopping:
        runtime.pulse.beat("a turn of the loop")
        runtime.reloading.when(runtime.signals.take_reload_request())
        with runtime.pulse.patient("opening versions and items"):
            parts.turn()
        if parts.live.opened is not None:  # until then a stop ends the process at once: nobody was answered
            runtime.signals.finish_first()
        reason = parts.live.not_ready()
        readiness.now(reason, loading=parts.live.loading())
        if parts.shared is not None:
            parts.shared.tell("ready" if reason is None else "not_ready")
        if reason is not None or before is not None:
            quiet.broken()
        before = reason
        runtime.signals.wait(quiet.rest_s())


def _drain(parts: ServeParts, runtime: RoleRuntime, drain_s: float) -> None:
    """Answer on for a while, not ready any more, so that balancers and clients go elsewhere."""
    if parts.shared is not None:
        drain_s = max(drain_s, HANDOVER_S)
        parts.shared.tell("draining")
    if drain_s <= 0:
        return
    runtime.health.set_ready(f"ending: answers are given for {drain_s:g} s more")
    parts.server.drain()
    log.info("draining", seconds=drain_s)
    deadline = time.monotonic() + drain_s
    while time.monotonic() < deadline and parts.server.alive():
        runtime.pulse.beat("draining")
        time.sleep(_DRAIN_TURN_S)


@dataclass(frozen=True, slots=True)
class ServeParts:
    """The parts that the role's loop looks after. shared: the port of several processes, None for one."""

    live: Live
    server: HttpServer
    shared: SharedPort | None = None

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
    began_ms = time.time_ns() // 1_000_000  # what was clicked before waited for this start
    watcher = FreshnessWatcher(
        config.serve.aliases, metrics.record_freshness, FRESHNESS_EDGES[-1], since_ms=began_ms
    )
    guarded, keys = GuardMetrics(metrics.registry).record, KeyAnswerMetrics(metrics.registry)

    def reading(progress: str) -> None:
        log.info(progress)
        runtime.health.set_ready(progress)

    live = Live(config, versions, ledger, watcher, guarded, keys=keys, tell=reading)
    index = _index(stack, config, versions, live, metrics.registry)
    series = live_series(config, metrics.registry, runtime.health)
    stack.callback(live.close, series)
    page = page_sources(config, versions, ledger, live, series)
    page = replace(page, ratings=rating_sources(config, live, page.explorer))
    GraphMetrics(metrics.registry, live.graphs)
    metrics.follow(live.statuses, live.items, watcher.waiting)
    embedding, secret = _embedding(config), config.interleaving.key.get_secret_value().encode()
    if isinstance(embedding, ForeignServer):
        watch = ModelWatch(probe_of(config, embedding), metrics.upstream_cosine)
        stack.callback(watch.close)
        watch.start()
    parts = Parts(
        searcher=live,
        vectors=live,
        answered=watcher.answered,
        store=StoreActions(versions, ledger, config.checkpoints.keep, live.statuses),
        aliases=config.serve.aliases,
        health=runtime.health,
        registry=metrics.registry,
        gate=runtime.doors.gate,
        hosts=[config.http.host.lower(), *config.http.hosts],
        limits=limits_of(config.serve),
        page=page_routes(page),
        pulse=runtime.watchdog.watch("the search"),
        lists=SignedLists(secret, live.snapshot, config.interleaving.explore) if secret else None,
        writes=_writes(stack, config, metrics),
        index=None if index is None else index.find,
        index_threads=config.index.connections,
        embedding=embedding,
        models=config.embeddings.names,
        current=live.current,
        behind_s=config.serve.behind_wait,
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
    judged = JudgedStore(index.name, config.index.candidates, config.index.holds_exported)
    mode_of = KeptVerdicts(versions, judged).mode_of
    log.info("questions go to a store", index=index.name, mode=config.index.mode)
    return IndexSearch(index, config.index, live, mode_of, metrics)


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


def _embedding(config: Config) -> ForeignServer | LocalModel | None:
    """What embeds texts; None where nothing does. UserError: its key is not there, or its model of no use."""
    given = config.embeddings
    if given.folder:
        model = TextModel.open(Path(given.folder), given.threads)
        log.info("a model embeds texts", folder=given.folder, dim=model.dim, tokens=model.layout.longest)
        return LocalModel(model, given.timeout)
    return upstream_of(given) if given.upstream else None


def limits_of(serve: ServeConfig) -> HttpLimits:
    """[serve] as the limits of the HTTP side."""
    return HttpLimits(
        body_bytes=serve.body,
        connections=serve.connections,
        k_max=serve.k_max,
        batch_max=serve.batch_max,
        queue=serve.queue,
        queue_wait_s=serve.queue_wait,
        head_s=serve.request_timeout,
        body_s=serve.request_timeout,
        drain_s=min(max(DRAIN_S, serve.drain or 0.0), HttpLimits().answer_s),
    )


class SignedLists:
    """Random choices, and ids that `feed` can check.

    secret: what ids are signed with. snapshot: gives the catalog now, None before there is one. explore:
    share of the lists with a random object, where a request does not say. below: where chance comes from, the
    system's own source, so that nobody who sees lists can foresee the next one. now_ms: the wall clock.
    """

    def __init__(
        self,
        secret: bytes,
        snapshot: Callable[[], IndexSnapshot | None],
        explore: float = 0.0,
        *,
        below: Callable[[int], int] = secrets.randbelow,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._secret, self._snapshot = secret, snapshot
        self.explore, self._below, self._now_ms = explore, below, now_ms

    def coin(self) -> bool:
        """Either, each as likely."""
        return self._below(2) == 1

    def slot(self, places: int) -> int:
        """One of so many places, each as likely."""
        return self._below(places)

    def draw(self, query: Query, left_out: Sequence[str]) -> Drawn | None:
        """An object that the query's filters allow and that is not left out, each as likely."""
        snapshot = self._snapshot()
        return None if snapshot is None else draw(snapshot, query, left_out, self._below)

    def sign(self, query: Query, made: MadeList) -> str:
        """The list's signed id. Raises ValueError for a list too long for one."""
        slot = next((rank for rank, place in enumerate(made.places) if place.explored), None)
        models = tuple(DraftModel(name, model.version, model.total) for name, model in made.models)
        chance = None if slot is None else made.places[slot].chance
        draft = Draft(models, tuple(place.team for place in made.places), slot, chance)
        return sign_list(
            self._secret,
            SignedList(self._now_ms(), draft),
            asked_object(query),
            [place.hit.id for place in made.places],
            key=query.key,
            eligible=made.eligible,
            nonce=secrets.token_bytes(NONCE_BYTES),
        )


def asked_object(query: Query) -> ObjectRef:
    """The object that an answered query asks about, as a click log would hold it."""
    if query.id is not None:
        return ObjectRef(query.id)
    if query.views is None:
        return ObjectRef(x=_vector(query.x))
    return ObjectRef(views={name: _vector(raw) for name, raw in query.views.items()})


def _vector(raw: Any) -> Vector:
    if isinstance(raw, Mapping):
        return SparseVector(np.array(raw["indices"], np.int32), np.array(raw["values"], np.float32))
    return np.array(raw, np.float32)
