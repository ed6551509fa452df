"""Around the whole application: whom it answers, what it counts, and an answer to whatever goes wrong."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.serve.http.errors import Problem
from daemon.serve.http.hosts import Hosts
from daemon.serve.http.metrics import HttpMetrics

log = structlog.get_logger("tripletd.http")


class Guard:
    """ASGI middleware. A bug is answered 500 with an id under which the log has its trace.

    Args:
        hosts: the names under which it may be asked.
        routes: paths of the application; any other is counted as "other", so that labels stay bounded.
    """

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, hosts: Hosts, routes: Collection[str]) -> None:
        self._app, self._metrics, self._hosts = app, metrics, hosts
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 0, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._hosts.check(scope)
            await self._app(scope, receive, watched)
        except Problem as problem:
            if status == 0:
                await problem.response()(scope, receive, watched)
        except Exception as error:
            bug = self._bug(error, scope)
            if status:
                raise  # an answer is on its way: only the end of the connection tells that it is not whole
            await bug.response()(scope, receive, watched)
        finally:
            path = scope["path"]
            route = path if path in self._routes else "other"
            self._metrics.record_request(route, status, time.perf_counter() - start)

    def _bug(self, error: Exception, scope: Scope) -> Problem:
        self._metrics.bugs.inc()
        name = secrets.token_hex(6)
        path = scope["path"] if scope["path"] in self._routes else "other"
        log.error("a bug in answering a request", id=name, path=path, exc_info=error)
        return Problem(
            500, "bug", f"something went wrong in here; the log has it as {name}", None, "report it"
        )
