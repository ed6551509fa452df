"""One small HTTP server per process, /metrics /status /livez /readyz /startupz, and the health it tells.

The standard library's server: it imports in milliseconds, needs no event loop next to the learner's
own, and these four pages are read a few times a minute.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.samples import Sample

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.look.live import STATUS, Distribution, RoleStatus
from daemon.telemetry.metrics import version


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
        self.began = time.time()
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
_BACKLOG = 1024
QUESTIONS = ("/v1/similar", "/v1/similar/batch")
"""Routes of what is counted of the requests; probes and the page are not."""


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


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens without blocking; port 0 takes any free port. Raises UserError."""
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = place
        with ExitStack() as opened:
            listening = opened.enter_context(socket.socket(family, kind, protocol))
            # Without this a restart within a minute of the last request would find its own port taken.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
            opened.pop_all()
            return listening
    except UnicodeError:
        wrong = OSError(errno.EADDRNOTAVAIL, "not the name of a host")
        raise cannot_listen(wrong, host, port) from None
    except OSError as error:
        raise cannot_listen(error, host, port) from None


class _Samples:
    """The samples of a registry, collected once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._by_name = defaultdict[str, list[Sample]](list)
        for family in registry.collect():
            for sample in family.samples:
                self._by_name[sample.name].append(sample)

    def by(self, label: str, name: str, **alike: str) -> dict[str, Any]:
        """Values by a label ("" where there is none), of those that are alike in others."""
        found = [one for one in self._by_name[name] if alike.items() <= one.labels.items()]
        return {one.labels.get(label, ""): one.value for one in found}

    def one(self, name: str, **alike: str) -> Any:
        """The value of the one that is alike; 0 without any."""
        return next(iter(self.by("", name, **alike).values()), 0)

    def distribution(self, name: str, **alike: str) -> Distribution:
        """The histogram that is alike."""
        buckets = self.by("le", f"{name}_bucket", **alike)
        counts = list(buckets.values()) or [0.0]
        return Distribution(
            edges=list(map(float, buckets))[:-1], counts=counts, total=self.one(f"{name}_sum", **alike)
        )


def status_of(registry: CollectorRegistry, health: Health) -> RoleStatus:
    """What the role whose numbers these are says of itself: the document of /status."""
    read = _Samples(registry)
    ((role, _),) = read.by("role", "tripletd_build_info").items()
    values = {"learn": _learn, "validate": _validate, "serve": _serve}[role](read)
    place = next(iter(read.by("checkpoints", "tripletd_place_info")), None)
    who = {"role": role, "version": version(), "checkpoints": place, "began": health.began}
    return STATUS.validate_python({**who, "not_ready": health.readiness(), **values})


def _learn(read: _Samples) -> dict[str, Any]:
    behind = read.by("partition", "tripletd_lag_events").values()
    return {
        "parked": read.one("tripletd_parked") > 0,
        "events": read.by("outcome", "tripletd_events_total"),
        "loss_sum": read.one("tripletd_loss_sum"),
        "loss_count": read.one("tripletd_loss_count"),
        "lag_events": sum(behind) if behind else None,
        "lag_seconds": max(read.by("partition", "tripletd_lag_seconds").values(), default=None),
        "dead_letters": read.by("reason", "tripletd_dead_letters_total"),
    }


def _validate(read: _Samples) -> dict[str, Any]:
    judged, loss = read.one("tripletd_judged_versions_total"), read.one("tripletd_holdout_loss")
    return {
        "judged": judged,
        "drifts": read.one("tripletd_drift_total"),
        "holdout_loss": loss if judged else None,
    }


def _serve(read: _Samples) -> dict[str, Any]:
    served = {name: read.by("alias", f"tripletd_served_{name}") for name in ("version", "records")}
    served["watermark"] = read.by("alias", "tripletd_served_watermark_seconds")
    return {
        "objects": read.one("tripletd_items"),
        "dead_letters": read.by("reason", "tripletd_item_dead_letters_total"),
        "requests": sum(read.one("tripletd_http_seconds_count", route=route) for route in QUESTIONS),
        "latency": read.distribution("tripletd_http_seconds", route=QUESTIONS[0]),
        "aliases": {
            alias: {name: values[alias] for name, values in served.items() if alias in values}
            | {"refused": read.by("reason", "tripletd_refused_swaps_total", alias=alias)}
            | {"freshness": read.distribution("tripletd_event_to_served_seconds", alias=alias)}
            for alias in read.by("alias", "tripletd_serving")
        },
    }


def answer(path: str, registry: CollectorRegistry, health: Health) -> tuple[HTTPStatus, bytes, str] | None:
    """Status, body and content type of one of `PAGES`, the same for every role; None for any other path."""
    if path == "/metrics":
        return HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_LATEST
    if path == "/status":
        return HTTPStatus.OK, status_of(registry, health).model_dump_json().encode(), _JSON
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
