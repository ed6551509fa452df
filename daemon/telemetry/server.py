"""One small HTTP server per process, /metrics /status /livez /readyz /startupz, and the health it tells.

The standard library's server: it imports in milliseconds, needs no event loop next to the learner's
own, and these four pages are read a few times a minute.
"""

from __future__ import annotations

import errno
import json
import math
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.look.live import FRESHNESS, REQUESTS


def _nobody() -> str | None:
    return None


class Health:
    """What the loop tells the outside.

    Alive: no thread is stuck (before the loop has started, always: start-up has its own answer). Ready:
    started, alive, and the loop has named no reason against it.

    Args:
        silent: which thread does not move, in words, None when all do: the watchdog knows.
    """

    def __init__(self, silent: Callable[[], str | None] = _nobody) -> None:
        self._silent = silent
        self._started = False
        self._unready: str | None = None

    def started(self) -> None:
        """Start-up is over: the loop runs."""
        self._started = True

    def set_ready(self, reason: str | None) -> None:
        """None: ready. A text: why not."""
        self._unready = reason

    def startup(self) -> str | None:
        """None when start-up is over, else why not."""
        return None if self._started else "starting"

    def liveness(self) -> str | None:
        """None when alive, else why not."""
        return self._silent() if self._started else None

    def readiness(self) -> str | None:
        """None when ready, else why not."""
        return self.startup() or self.liveness() or self._unready


_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
PAGES = ("/metrics", "/status", "/livez", "/readyz", "/startupz")
_REQUEST_TIMEOUT_S = 5.0


class TelemetryServer:
    """A running server; `port` is the one it really got."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_http(registry: CollectorRegistry, health: Health, host: str, port: int) -> TelemetryServer:
    """Serve metrics and health from one thread; port 0 takes any free port.

    Raises:
        UserError: the port is taken (69), or the host or port may not be used (78).
    """
    try:
        server = _Server((host, port), _handler(registry, health))
    except OSError as error:
        raise cannot_listen(error, host, port) from None
    return TelemetryServer(server)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Without this a restart within a minute of the last request would find its own port taken.
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that hung up is its own affair; nothing goes to stderr."""


def cannot_listen(error: OSError, host: str, port: int) -> UserError:
    """Why an address cannot be listened on, and what to do: 69 for a port that is taken, else 78."""
    if error.errno == errno.EADDRINUSE:
        who = f"see who holds it with `ss -ltnp 'sport = :{port}'`"
        return UserError(
            f"http: port {port} on {host} is taken, perhaps by another tripletd",
            f"{who}, or choose another port in [http] (0 = any free one)",
            EX_UNAVAILABLE,
        )
    remedy = "set http.host to an address of this machine, and the role's port in [http] to 1024 or above"
    return UserError(
        f"http: cannot listen on {host} port {port}: {error.strerror or error}", remedy, EX_CONFIG
    )


def status_document(registry: CollectorRegistry, health: Health) -> dict[str, Any]:
    """What a role says of itself to programs, as plain data: the document of /status.

    role, version, checkpoints: which process this is, null where it does not say. not_ready: why not, null
    when it is ready. numbers: every finite `tripletd_*` number, counted since the role began, by its name and
    labels as on the page of metrics. buckets: cumulative counts of `FRESHNESS` and `REQUESTS`, likewise.
    """
    numbers: dict[str, float] = {}
    buckets: dict[str, float] = {}
    of: dict[str, str] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in ("tripletd_build_info", "tripletd_place_info"):
                of |= sample.labels
            if not sample.name.startswith("tripletd_") or sample.name.endswith("_created"):
                continue
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            if not sample.name.endswith("_bucket"):
                numbers |= {name: sample.value} if math.isfinite(sample.value) else {}
            elif family.name in (FRESHNESS, REQUESTS):
                buckets[name] = sample.value
    who = {name: of.get(name) for name in ("role", "version", "checkpoints")}
    return {**who, "not_ready": health.readiness(), "numbers": numbers, "buckets": buckets}


def answer(path: str, registry: CollectorRegistry, health: Health) -> tuple[HTTPStatus, bytes, str] | None:
    """Status, body and content type of one of `PAGES`, the same for every role; None for any other path."""
    if path == "/metrics":
        return HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_LATEST
    if path == "/status":
        return HTTPStatus.OK, json.dumps(status_document(registry, health)).encode(), _JSON
    probes = {"/livez": health.liveness, "/readyz": health.readiness, "/startupz": health.startup}
    if path not in probes:
        return None
    reason = probes[path]()
    status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
    return status, f"{reason or 'ok'}\n".encode(), _TEXT


def _handler(registry: CollectorRegistry, health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            missing = f"not here; there are {' '.join(PAGES)}\n".encode()
            self._answer(*(answer(path, registry, health) or (HTTPStatus.NOT_FOUND, missing, _TEXT)))

        do_HEAD = do_GET

        def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: scrapes would drown everything else."""

    return Handler
