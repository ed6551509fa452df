"""The application: every route, wired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from daemon.serve.http.limits import Limits
from daemon.serve.http.ports import Administration, Overviews, Searching, Watching
from daemon.telemetry.health import Health


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application is made of.

    `aliases`: names that may be asked, the first where none is named. `registry`: what /metrics shows; the
    HTTP side adds its own families to it. `token`: bearer token of what changes state, "" refuses all of
    that. `page`: more routes, such as those of the page.
    """

    searcher: Searching
    overviews: Overviews
    administration: Administration
    watching: Watching
    aliases: Sequence[str]
    health: Health
    registry: CollectorRegistry
    token: str = ""
    limits: Limits = field(default_factory=Limits)
    page: Sequence[BaseRoute] = ()


def create_app(parts: Parts) -> Starlette:
    """The ASGI application; its lifespan starts and ends the compute thread."""
    raise NotImplementedError
