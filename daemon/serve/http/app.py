"""The application: every route, wired; health and metrics on the same port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from daemon.runtime.watchdog import Pulse
from daemon.serve.http.admin import ModelEndpoints, VersionList
from daemon.serve.http.batching import Batcher
from daemon.serve.http.errors import Problem
from daemon.serve.http.guard import AllowedHosts, RequestGuard, TokenGuard
from daemon.serve.http.metrics import HttpLimits, HttpMetrics
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.openapi import OpenApiEndpoint
from daemon.serve.http.ports import Ports
from daemon.serve.http.request import RequestBodies
from daemon.serve.http.similar import SimilarEndpoints
from daemon.telemetry.server import Health

SCRAPE_TIMEOUT_S = 10.0


class ProbeEndpoints:
    """The same four pages, in the same words, as those of the other roles."""

    def __init__(self, health: Health, registry: CollectorRegistry) -> None:
        self._health, self._registry, self._aside = health, registry, BoundedThreads(1, SCRAPE_TIMEOUT_S)

    async def livez(self, request: Request) -> Response:
        """Whether no thread is stuck."""
        return _said(self._health.liveness)

    async def readyz(self, request: Request) -> Response:
        """Whether answers can be given."""
        return _said(self._health.readiness)

    async def startupz(self, request: Request) -> Response:
        """Whether start-up is over."""
        return _said(self._health.startup)

    async def metrics(self, request: Request) -> Response:
        """All families in Prometheus' text format."""
        text = await self._aside.run(lambda: generate_latest(self._registry))
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _said(probe: Callable[[], str | None]) -> Response:
    reason = probe()
    return PlainTextResponse(f"{reason or 'ok'}\n", 200 if reason is None else 503)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application is made of.

    `aliases`: names that may be asked, the first where none is named. `registry`: what /metrics shows; the
    HTTP side adds its own families to it. `token`: bearer token of what changes state, "" refuses all of
    that. `hosts`: names under which it may be asked, beside addresses and localhost. `page`: more routes,
    such as those of the page. `pulse`: sign of life of the compute thread.
    """

    ports: Ports
    aliases: Sequence[str]
    health: Health
    registry: CollectorRegistry
    token: str = field(default="", repr=False)
    hosts: Sequence[str] = ()
    limits: HttpLimits = field(default_factory=HttpLimits)
    page: Sequence[BaseRoute] = ()
    pulse: Pulse | None = None


def create_app(parts: Parts) -> Starlette:
    """The ASGI application; its lifespan starts and ends the compute thread."""
    limits, metrics = parts.limits, HttpMetrics(parts.registry)
    batcher = Batcher(parts.ports.searcher, limits, metrics, parts.pulse)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        batcher.start()
        yield
        batcher.close()

    routes = [*_routes(parts, batcher, RequestBodies(limits, metrics)), *parts.page]
    paths = [route.path for route in routes if isinstance(route, Route) and "{" not in route.path]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(RequestGuard, metrics=metrics, hosts=AllowedHosts(parts.hosts), routes=paths)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False
    app.state.metrics, app.state.limits = metrics, limits
    return app


def _routes(parts: Parts, batcher: Batcher, bodies: RequestBodies) -> list[Route]:
    ports = parts.ports
    similar = SimilarEndpoints(batcher, ports.watching, parts.aliases, bodies, parts.limits)
    models = ModelEndpoints(ports.administration, TokenGuard(parts.token), bodies)
    probes = ProbeEndpoints(parts.health, parts.registry)
    return [
        Route("/v1/similar", similar.single, methods=["GET", "POST"]),
        Route("/v1/similar/batch", similar.batch, methods=["POST"]),
        Route("/v1/versions", VersionList(ports.overviews).get, methods=["GET"]),
        Route("/v1/openapi.json", OpenApiEndpoint(parts.limits).get, methods=["GET"]),
        Route("/v1/models/promote", models.promote, methods=["POST"]),
        Route("/v1/models/rollback", models.rollback, methods=["POST"]),
        Route("/v1/models/pin", models.pin, methods=["POST"]),
        Route("/v1/models/gc", models.gc, methods=["POST"]),
        Route("/livez", probes.livez, methods=["GET"]),
        Route("/readyz", probes.readyz, methods=["GET"]),
        Route("/startupz", probes.startupz, methods=["GET"]),
        Route("/metrics", probes.metrics, methods=["GET"]),
    ]


async def _not_routed(request: Request, error: Exception) -> Response:
    """No such path (404), no such method there (405), or what a route of the page refuses."""
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
