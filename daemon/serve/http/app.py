"""The application: every route, wired; `/v1/versions` and `/v1/models/*`, what is served, kept and moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from threading import Event
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.models.decide import Verb
from daemon.runtime.doors import PROMOTE, Grant
from daemon.serve.http import schemas
from daemon.serve.http.batching import Batcher
from daemon.serve.http.embeddings import EmbeddingEndpoints, VectorEndpoints
from daemon.serve.http.errors import JSON, Problem, from_failure, from_refusal
from daemon.serve.http.guard import AllowedHosts, AllowedOrigins, CrossOrigin, RequestGuard, TokenGuard
from daemon.serve.http.indexed import Asking, IndexedAnswers
from daemon.serve.http.limits import HttpMetrics, RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.openapi import Handler, document, routes
from daemon.serve.http.parts import LocalModel, Parts
from daemon.serve.http.similar import SimilarEndpoints
from daemon.serve.http.texts import LocalTexts, TextEmbedder, UpstreamTexts
from daemon.serve.http.upstream import Upstream
from daemon.serve.http.writes import ImpressionLog, WriteEndpoints
from daemon.serve.query import QueryError
from daemon.serve.store import StoreActions
from daemon.telemetry.server import PAGES, answer

Moving: TypeAlias = schemas.PromoteRequest | schemas.RollbackRequest | schemas.PinRequest
LISTING_TIMEOUT_S = 10.0
CHANGE_TIMEOUT_S = 60.0  # a promotion reads and verifies a whole version


class AdminEndpoints:
    """Reads of the store, one after another; changes of it, one after another, behind the token."""

    def __init__(self, store: StoreActions, guard: TokenGuard, bodies: RequestBodies) -> None:
        self._store, self._guard, self._bodies = store, guard, bodies
        self._reads = BoundedThreads(1, LISTING_TIMEOUT_S)
        self._changes = BoundedThreads(1, CHANGE_TIMEOUT_S)

    async def versions(self, request: Request) -> Response:
        """GET /v1/versions"""
        return await _answer(self._reads, self._store.overview, schemas.Versions)

    def moving(self, verb: Verb, model: type[Moving]) -> Callable[[Request], Awaitable[Response]]:
        """POST /v1/models/{verb}"""

        async def handler(request: Request) -> Response:
            grant = self._guard.check(request.headers, PROMOTE)
            async with self._bodies.read(request, model) as asked:
                version = asked.to if isinstance(asked, schemas.RollbackRequest) else asked.version
                wish = verb, asked.alias, version, asked.reason, asked.dry_run
                return await _answer(
                    self._changes, lambda: self._store.move(*wish, by=_who(request, grant)), schemas.Moved
                )

        return handler

    async def gc(self, request: Request) -> Response:
        """POST /v1/models/gc"""
        self._guard.check(request.headers, PROMOTE)
        async with self._bodies.read(request, schemas.GcRequest) as asked:
            return await _answer(self._changes, lambda: self._store.gc(asked.dry_run), schemas.Collected)


def _who(request: Request, grant: Grant | None) -> str:
    """Who asked, in the ledger's words: the name of the token; behind a proxy the address is the proxy's."""
    place = f" from {request.client.host}" if request.client else ""
    return f"HTTP{place}" if grant is None else f"{grant.name} by HTTP{place}"


async def _answer(
    threads: BoundedThreads, action: Callable[[], Mapping[str, Any]], answer: type[BaseModel]
) -> Response:
    """What the action returns, as this model. Raises Problem for a failure of the store or a refusal."""
    try:
        done = await threads.run(action)
    except Exception as error:
        problem = from_failure(error)
        if problem is None:
            raise
        raise problem from None
    return Response(answer.model_validate(done).model_dump_json(), media_type=JSON)


SCRAPE_TIMEOUT_S = 10.0
Found: TypeAlias = tuple[int, bytes, str] | None
"""Status, body and content type of a page of health or metrics."""


def create_app(parts: Parts) -> Starlette:
    """The ASGI application; its lifespan starts and ends the compute thread."""
    limits, metrics = parts.limits, HttpMetrics(parts.registry)
    batcher = Batcher(parts.searcher, limits, metrics, parts.pulse)
    given = parts.embedding
    upstream = None if given is None or isinstance(given, LocalModel) else Upstream(given, metrics)
    texts: TextEmbedder | None = None if upstream is None else UpstreamTexts(upstream)
    if isinstance(given, LocalModel):
        texts = LocalTexts(given.model, given.timeout_s, limits, metrics)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        batcher.start()
        yield
        batcher.close()
        if upstream is not None:
            upstream.close()

    every = [*routes(_handlers(parts, batcher, RequestBodies(limits, metrics), texts)), *parts.page]
    paths = [route.path for route in every if isinstance(route, Route) and "{" not in route.path]
    tokens, hosts = TokenGuard(parts.gate), AllowedHosts(parts.hosts)
    draining = Event()
    guard = Middleware(
        RequestGuard, metrics=metrics, hosts=hosts, tokens=tokens, routes=paths, draining=draining
    )
    origins = AllowedOrigins(parts.writes.origins if parts.writes else ())
    app = Starlette(
        routes=every,
        lifespan=lifespan,
        middleware=[guard, Middleware(CrossOrigin, origins=origins)],
        exception_handlers={HTTPException: _refused, QueryError: _refused},
    )
    app.router.redirect_slashes = False
    app.state.metrics, app.state.limits, app.state.draining = metrics, limits, draining
    return app


def _handlers(
    parts: Parts, batcher: Batcher, bodies: RequestBodies, embedder: TextEmbedder | None
) -> Mapping[str, Handler]:
    asking: Asking = batcher.ask
    if parts.index is not None:
        asking = IndexedAnswers(asking, parts.index, parts.index_threads, parts.limits).ask
    tokens, origins = TokenGuard(parts.gate), AllowedOrigins(parts.writes.origins if parts.writes else ())
    similar = SimilarEndpoints(parts, asking, bodies, ImpressionLog(parts.writes, tokens, origins))
    written = WriteEndpoints(parts.writes, tokens, bodies, parts.limits.answer_s)
    vectors, texts = VectorEndpoints(parts, bodies), EmbeddingEndpoints(parts, embedder, bodies)
    admin = AdminEndpoints(parts.store, tokens, bodies)
    described = to_json(document(parts.limits))

    async def openapi(request: Request) -> Response:
        return Response(described, media_type=JSON)

    return {
        "/v1/similar": similar.single,
        "/v1/similar/batch": similar.batch,
        "/v1/fold": vectors.fold,
        "/v1/embed": vectors.embed,
        "/v1/impressions": written.impressions,
        "/v1/clicks": written.clicks,
        "/v1/embeddings": texts.embeddings,
        "/v1/rerank": texts.rerank,
        "/v2/rerank": texts.rerank,
        "/v1/models": texts.models,
        "/v1/models/{model}": texts.model,
        "/v1/versions": admin.versions,
        "/v1/openapi.json": openapi,
        "/v1/models/promote": admin.moving("promote", schemas.PromoteRequest),
        "/v1/models/rollback": admin.moving("rollback", schemas.RollbackRequest),
        "/v1/models/pin": admin.moving("pin", schemas.PinRequest),
        "/v1/models/gc": admin.gc,
        **_probes(parts),
    }


def _probes(parts: Parts) -> Mapping[str, Handler]:
    """Health and metrics, as every role answers them; collecting takes a while, so it is done off the loop,
    and once for all who wait for it to begin.
    """
    threads = BoundedThreads(1, SCRAPE_TIMEOUT_S)
    to_begin: dict[str, asyncio.Task[Found]] = {}

    async def collected(path: str) -> Found:
        def made() -> Found:
            to_begin.pop(path, None)  # later requests get the state of their own time
            return answer(path, parts.registry, parts.health)

        shared = to_begin.get(path)
        if shared is None or shared.done():
            shared = to_begin[path] = asyncio.create_task(threads.run(made))
        return await asyncio.shield(shared)  # one who leaves takes it from nobody

    async def probe(request: Request) -> Response:
        path = request.url.path
        if path in ("/metrics", "/status"):
            found = await collected(path)
        else:
            found = answer(path, parts.registry, parts.health)
        assert found is not None, "it is the handler of PAGES alone"
        status, body, content_type = found
        return Response(body, status, headers={"Content-Type": content_type})

    return dict.fromkeys(PAGES, probe)


async def _refused(request: Request, error: Exception) -> Response:
    """No such path (404), no such method there (405), or what retrieval or a route of the page refuses."""
    if isinstance(error, QueryError):
        return from_refusal(error).response()
    assert isinstance(error, HTTPException)
    headers = error.headers or {}
    if error.status_code == 405:
        remedy = f"use {headers.get('Allow', 'another one')}"
        problem = Problem(
            405, "method_not_allowed", "not with this method", "method", remedy, headers=headers
        )
    elif error.status_code == 404:
        problem = Problem(404, "not_found", "there is nothing here", "path", "see /v1/openapi.json")
    else:
        problem = Problem(error.status_code, "refused", error.detail, headers=headers)
    return problem.response()
