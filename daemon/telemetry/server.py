"""One small HTTP server per process, /metrics /status /livez /readyz /startupz, and the health it tells.

The standard library's server: it imports in milliseconds, needs no event loop next to the learner's
own, and these few pages are read a few times a minute. Each connection has a thread, so there are few: when
all are taken, one that only waits for its client gives way. Which one, `ConnectionTable` says, for this
server and for that of `serve`.
"""

from __future__ import annotations

import errno
import resource
import select
import selectors
import socket
import ssl
import threading
import time
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv6Address, ip_address
from typing import Any, Generic, TypeVar

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.samples import Sample

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.look.live import STATUS, Distribution, RoleStatus
from daemon.runtime.doors import METRICS, Gate, Grant
from daemon.runtime.watchdog import BackgroundThread
from daemon.telemetry.metrics import version

log = structlog.get_logger("tripletd.http")

AnyConnection = TypeVar("AnyConnection", bound=Hashable)
_NETWORK_BITS = 64  # of an IPv6 address: the owner of the network chooses the rest


def client_of(host: str) -> str:
    """Whose connection it is, by the other end's address: of IPv4 all of it, of IPv6 the network of 64 bits.
    What is no address stands for itself.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> (128 - _NETWORK_BITS) << (128 - _NETWORK_BITS)))


class ConnectionTable(Generic[AnyConnection]):
    """Open connections by client. Not locked: callers with several threads hold a lock of their own.

    A connection is idle (a request, or the rest of its header, is to come), stalled (a body is to come, or an
    answer to be taken) or at work. Those at work are never chosen.
    """

    def __init__(self) -> None:
        self._client: dict[AnyConnection, str] = {}
        self._open: Counter[str] = Counter()
        self._idle: dict[str, dict[AnyConnection, None]] = {}
        self._stalled: dict[str, dict[AnyConnection, None]] = {}
        self.idle = 0
        """How many are idle."""

    def __len__(self) -> int:
        return len(self._client)

    def add(self, connection: AnyConnection, client: str) -> None:
        """A connection was made; it is at work until something else is said."""
        self._client[connection] = client
        self._open[client] += 1

    def remove(self, connection: AnyConnection) -> None:
        """It has ended; saying so twice does nothing."""
        self.works(connection)
        client = self._client.pop(connection, None)
        if client is not None:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    def works(self, connection: AnyConnection) -> None:
        """A request of it waits for its answer."""
        client = self._client.get(connection, "")
        for waiting in (self._idle, self._stalled):
            of_client = waiting.get(client, {})
            if connection in of_client:
                self.idle -= waiting is self._idle
                del of_client[connection]
                if not of_client:
                    del waiting[client]

    def idles(self, connection: AnyConnection) -> None:
        """It waits for a request, from now on if it did not before."""
        self._waits(connection, self._idle)

    def stalls(self, connection: AnyConnection) -> None:
        """It waits for a body, or for an answer to be taken, from now on if it did not before."""
        self._waits(connection, self._stalled)

    def _waits(self, connection: AnyConnection, waiting: dict[str, dict[AnyConnection, None]]) -> None:
        client = self._client.get(connection)
        if client is not None and connection not in waiting.get(client, {}):
            self.works(connection)
            waiting.setdefault(client, {})[connection] = None
            self.idle += waiting is self._idle

    def take_waiting(self, has_news: Callable[[AnyConnection], bool]) -> AnyConnection | None:
        """Remove the one that gives way, idle or else stalled, and return it; None where all are at work.

        has_news: whether its client has said something that was not read yet: it is then passed over.
        """
        taken = self._take(self._idle, has_news)
        return self.take_stalled(has_news) if taken is None else taken

    def take_stalled(self, has_news: Callable[[AnyConnection], bool]) -> AnyConnection | None:
        """The same among those that are stalled."""
        return self._take(self._stalled, has_news)

    def _take(
        self, waiting: dict[str, dict[AnyConnection, None]], has_news: Callable[[AnyConnection], bool]
    ) -> AnyConnection | None:
        for client in sorted(waiting, key=self._open.__getitem__, reverse=True):
            for connection in waiting[client]:
                if not has_news(connection):
                    self.remove(connection)
                    return connection
        return None


class Health:
    """The health of a role, as its loop reports it.

    Alive: no thread is stuck (before the loop has started, always: start-up has its own answer). Ready:
    started, alive, and the loop has named no reason against it.

    Args:
        silent: which thread does not move, in words, None when all do: the watchdog knows.
    """

    def __init__(self, silent: Callable[[], str | None] = lambda: None) -> None:
        self._silent = silent
        self.began = time.time()
        self._started = False
        self._phase = "starting"
        self._unready: str | None = None

    def starting(self, phase: str) -> None:
        """What start-up is at, in words."""
        self._phase = f"starting: {phase}"

    def started(self) -> None:
        """Start-up is over: the loop runs."""
        self._started = True

    def set_ready(self, reason: str | None) -> None:
        """Report the role ready (None), or why it is not (a text)."""
        self._unready = reason

    def startup(self) -> str | None:
        """None when start-up is over, else why not."""
        return None if self._started else self._phase

    def liveness(self) -> str | None:
        """None when alive, else why not."""
        return self._silent() if self._started else None

    def readiness(self) -> str | None:
        """None when ready, else why not."""
        return self.startup() or self.liveness() or self._unready


_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
NOSNIFF = {"x-content-type-options": "nosniff"}
"""A header of every answer: no browser takes it for another type than the one it has."""
PAGES = ("/metrics", "/status", "/livez", "/readyz", "/startupz")
GUARDED = ("/metrics", "/status")
"""Of these, those that say what is learned: where there are tokens, they need one."""
_REQUEST_TIMEOUT_S = 5.0
BACKLOG = 1024
"""Connections that the kernel keeps until they are taken."""
MOST_CONNECTIONS = 64
_OF_STATE = ("state", "exit", "reason")
QUESTIONS = ("/v1/similar", "/v1/similar/batch")
"""Routes of what is counted of the requests; probes and the page are not."""


class TelemetryServer(BackgroundThread):
    """A running server; `port` is the one it really got."""

    name = "telemetry"

    def __init__(self, server: _Server) -> None:
        super().__init__()
        self._server = server
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])
        self.start()

    def stop(self) -> None:
        """Stop answering, and free the port."""
        self._server.shutdown()

    def _run(self) -> None:
        self._server.serve_forever()
        self._server.server_close()


def serve_http(
    registry: CollectorRegistry,
    health: Health,
    host: str,
    port: int,
    *,
    context: Callable[[], ssl.SSLContext] | None = None,
    gate: Gate | None = None,
) -> TelemetryServer:
    """Serve metrics and health from one thread; port 0 takes any free port.

    Args:
        context: gives that of TLS for a new connection, None without it.
        gate: who may read metrics and status; None for everybody.

    Raises:
        UserError: the port is taken (69), or the host or port may not be used (78).
    """
    allow_descriptors(MOST_CONNECTIONS)
    try:
        server = _Server((host, port), _handler(registry, health, gate or Gate()), context)
    except OSError as error:
        raise cannot_listen(error, host, port) from None
    return TelemetryServer(server)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Without this a restart within a minute of the last request would find its own port taken.
    allow_reuse_address = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        context: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._context = context
        self.lock, self.table = threading.Lock(), ConnectionTable[Any]()
        self._ended, self._end = socket.socketpair()
        super().__init__(address, handler)

    def serve_forever(self, poll_interval: float = 0.0) -> None:
        """Until `shutdown`, which wakes it at once: an idle role does not poll ten times a second."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self, selectors.EVENT_READ)
            waiting.register(self._ended, selectors.EVENT_READ)
            while self._ended not in [key.fileobj for key, _ in waiting.select()]:
                with suppress(OSError):  # it has gone again
                    self.process_request(*self.get_request())

    def shutdown(self) -> None:
        """Make `serve_forever` return."""
        self._end.close()

    def server_close(self) -> None:
        """Free the port."""
        super().server_close()
        self._end.close()
        self._ended.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, which shakes hands there, so that nobody waits for a client that does
        not; another one is hung up on where too many are open, before TLS costs anything."""
        with self.lock:
            crowded = len(self.table) >= MOST_CONNECTIONS
            given = self.table.take_waiting(lambda one: has_unread(one.fileno())) if crowded else None
            if given is not None:
                with suppress(OSError):  # it has hung up itself
                    given.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and closes it
            if given is not None or not crowded:
                if self._context is not None:
                    request = self._context().wrap_socket(
                        request, server_side=True, do_handshake_on_connect=False
                    )
                self.table.add(request, client_of(client_address[0]))
                self.table.idles(request)
        if given is not None or not crowded:
            with suppress(RuntimeError):  # no thread can be started now
                super().process_request(request, client_address)
                return
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """The connection's end, also called by its thread."""
        with self.lock:
            self.table.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that hung up is its own affair; nothing goes to stderr."""


def cannot_listen(error: OSError, host: str, port: int) -> UserError:
    """Why an address cannot be listened on, and what to do: 69 for a port that is taken, else 78."""
    if error.errno == errno.EADDRINUSE:
        who = f"see who holds it with `ss -ltnp 'sport = :{port}'`"
        message = f"http: port {port} on {host} is taken, perhaps by another tripletd"
        remedy = f"{who}, or choose another port in [http] (0 = any free one)"
        return UserError(message, remedy, EX_UNAVAILABLE)
    remedy = "set http.host to an address of this machine, and the role's port in [http] to 1024 or above"
    return UserError(
        f"http: cannot listen on {host} port {port}: {error.strerror or error}", remedy, EX_CONFIG
    )


def has_unread(descriptor: int) -> bool:
    """Whether the other end of a socket has sent what was not read yet, and has not hung up."""
    looking = select.poll()
    looking.register(descriptor, select.POLLIN | select.POLLRDHUP)
    events = dict(looking.poll(0)).get(descriptor, 0)
    return events == select.POLLIN


FILES = 512
"""Descriptors for all but connections of clients: versions, the log, logs that are followed, stores."""


def allow_descriptors(connections: int, key: str = "") -> None:
    """Raise the soft limit of open files to what so many connections and all else need. Where the hard one is
    below that, it is logged; key: of the configuration, which would need fewer."""
    wanted = connections + FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning(
            f"{wanted} files and connections may have to be open at once, and the hard limit is {hard}: "
            f"raise it (LimitNOFILE of systemd, ulimit -Hn){f', or lower {key}' if key else ''}"
        )


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that listens without blocking; port 0 takes any free port. shared: others that say so, too,
    may listen there, and the kernel spreads connections over all (SO_REUSEPORT). Raises UserError."""
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = place
        with ExitStack() as opened:
            listening = opened.enter_context(socket.socket(family, kind, protocol))
            # Without this a restart within a minute of the last request would find its own port taken.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
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

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of each sample."""
        return [one.labels for one in self._by_name[name]]

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
    values = _OF_ROLES[role](read)
    place = next(iter(read.by("checkpoints", "tripletd_place_info")), None)
    lost = read.by("how", "tripletd_folder_lost")
    who = {"role": role, "version": version(), "checkpoints": place, "began": health.began}
    who["folder"] = next((how for how, now in lost.items() if now), "")
    who["folder_losses"] = sum(read.by("how", "tripletd_folder_losses_total").values())
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


def _serve(read: _Samples) -> dict[str, Any]:
    served = {name: read.by("alias", f"tripletd_served_{name}") for name in ("version", "records")}
    for name in ("watermark", "behind"):
        served[name] = read.by("alias", f"tripletd_served_{name}_seconds")
    return {
        "objects": read.one("tripletd_items"),
        "in_graphs": read.one("tripletd_ann_objects", held="graph"),
        "dead_letters": read.by("reason", "tripletd_item_dead_letters_total"),
        "requests": sum(read.one("tripletd_http_seconds_count", route=route) for route in QUESTIONS),
        "latency": read.distribution("tripletd_http_seconds", route=QUESTIONS[0]),
        "aliases": {
            alias: {name: values[alias] for name, values in served.items() if alias in values}
            | {"line_id": next(iter(read.by("line", "tripletd_served_line_info", alias=alias)), "")}
            | {"order": next(iter(read.by("order", "tripletd_served_order_info", alias=alias)), "")}
            | {"refused": read.by("reason", "tripletd_refused_swaps_total", alias=alias)}
            | {"freshness": read.distribution("tripletd_event_to_served_seconds", alias=alias)}
            for alias in read.by("alias", "tripletd_serving")
        },
    }


def _feed(read: _Samples) -> dict[str, Any]:
    fed = sum(read.by("draft", "tripletd_feed_drafts_total").values())
    return {
        "records": read.one("tripletd_feed_records_total"),
        "impressions": read.by("fate", "tripletd_feed_impressions_total"),
        "open": read.one("tripletd_feed_open_impressions"),
        "corrections": read.one("tripletd_feed_corrections_total"),
        "late": read.by("what", "tripletd_feed_late_total"),
        "dropped": read.by("reason", "tripletd_feed_dropped_total"),
        "ignored": read.by("reason", "tripletd_feed_ignored_total"),
        "behind": read.by("source", "tripletd_feed_behind"),
        "left_out": sum(read.by("source", "tripletd_feed_files_left_out").values()),
        "missing_bytes": sum(read.by("source", "tripletd_feed_missing_bytes_total").values()),
        "cut_files": sum(read.by("source", "tripletd_feed_cut_files_total").values()),
        "watermark": read.one("tripletd_feed_watermark_seconds") or None,
        "bot_share": read.one("tripletd_feed_bot_share"),
        "examination": read.by("rank", "tripletd_feed_examination"),
        "chance_lists": fed,
        "explored": read.one("tripletd_feed_explored_total"),
    }


_OF_ROLES: dict[str, Callable[[_Samples], dict[str, Any]]] = {
    "learn": _learn,
    "merge": lambda read: {
        "merges": read.one("tripletd_merges_total"),
        "failures": read.one("tripletd_merge_failures_total"),
        "unmerged": read.by("shard", "tripletd_shard_unmerged_records"),
    },
    "validate": lambda read: {
        "judged": read.one("tripletd_judged_versions_total"),
        "drifts": read.one("tripletd_drift_total"),
        "holdout_loss": next(iter(read.by("", "tripletd_holdout_loss").values()), None),
    },
    "serve": _serve,
    "feed": _feed,
    "up": lambda read: {
        "roles": [
            {"name": one["of_role"], **{name: one[name] for name in _OF_STATE}}
            for one in read.labels("tripletd_role_state")
        ]
    },
}
"""By role, what its numbers say of it."""


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


def allowed(gate: Gate, scope: str, authorization: str | None, *, basic: bool) -> Grant | HTTPStatus:
    """What the token of an `Authorization` field opens, or why it does not: 401 without one or with a wrong
    one, 403 for one of another scope. basic: the password of a browser's own prompt is a token, too; what it
    opens only reads, for a browser sends it with whatever a page of another origin asks."""
    scheme, _, given = (authorization or "").partition(" ")
    token = given.strip().encode("latin-1")
    if scheme.lower() == "basic" and basic:
        try:
            token = b64decode(token, validate=True).partition(b":")[2]
        except ValueError:
            return HTTPStatus.UNAUTHORIZED
    elif scheme.lower() != "bearer":
        return HTTPStatus.UNAUTHORIZED
    grant = gate.grant(token)
    if grant is None:
        return HTTPStatus.UNAUTHORIZED
    return grant if scope in grant.scopes else HTTPStatus.FORBIDDEN


def _handler(registry: CollectorRegistry, health: Health, gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S

        server: _Server

        def setup(self) -> None:
            if isinstance(self.request, ssl.SSLSocket):
                self.request.settimeout(self.timeout)  # of the whole handshake
                self.request.do_handshake()
            super().setup()

        def do_GET(self) -> None:
            with self.server.lock:
                self.server.table.works(self.request)
            path = self.path.partition("?")[0]
            if path in GUARDED and METRICS in gate.needed:
                given = self.headers.get_all("Authorization") or []
                one = given[0] if len(given) == 1 else None
                refused = allowed(gate, METRICS, one, basic=True)
                if isinstance(refused, HTTPStatus):
                    self._answer(refused, f"this needs a token with the scope {METRICS}\n".encode(), _TEXT)
                    return
            missing = f"not here; there are {' '.join(PAGES)}\n".encode()
            self._answer(*(answer(path, registry, health) or (HTTPStatus.NOT_FOUND, missing, _TEXT)))

        do_HEAD = do_GET

        def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in NOSNIFF.items():
                self.send_header(name, value)
            if status == HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            with self.server.lock:
                self.server.table.stalls(self.request)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: scrapes would drown everything else."""

    return Handler
