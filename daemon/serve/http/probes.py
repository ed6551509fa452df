"""Health and metrics on the same port: /livez /readyz /startupz /metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from daemon.serve.http.aside import Aside
from daemon.telemetry.health import Health

_PATIENCE_S = 10.0


class Probes:
    """The same four pages, in the same words, as those of the other roles."""

    def __init__(self, health: Health, registry: CollectorRegistry) -> None:
        self._health, self._registry, self._aside = health, registry, Aside(1, _PATIENCE_S)

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
