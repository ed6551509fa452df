"""What the HTTP side counts of itself, and how much of anything a client may take.

There is no share per client, and so no 429: only a proxy in front can tell clients apart, because behind
it all come from one address. A rate for each belongs there. What is bounded here keeps one client from
being felt by others for longer than its own requests take: a request has at most `batch_max` queries and
`results_max` results, a connection answers one request at a time, and what waits is answered in order,
with other aliases in between. When `queue` or `connections` are full, the next client is told so at once,
503 with Retry-After, which a client, a proxy and a load balancer all understand as: later, or elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class HttpMetrics:
    """Counters and histograms of requests, connections and passes, on the role's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "tripletd_http_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "tripletd_http_seconds",
            "From the request's header to the end of the answer, by route",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.connections = Gauge("tripletd_http_connections", "Open connections", registry=registry)
        self._turned_away = Counter(
            "tripletd_http_turned_away",
            "Connections ended by a limit, by limit",
            ["limit"],
            registry=registry,
        )
        self.bodies = Gauge(
            "tripletd_http_bodies_bytes",
            "Bodies of requests that are being read or worked on",
            registry=registry,
        )
        self.waiting = Gauge("tripletd_http_waiting_queries", "Queries waiting", registry=registry)
        self.pass_queries = Histogram(
            "tripletd_http_pass_queries", "Queries that shared a pass", buckets=_QUERIES, registry=registry
        )
        self.bugs = Counter("tripletd_http_bugs", "Answers 500, each in the log", registry=registry)

    def record_turned_away(self, limit: str) -> None:
        """Add one connection that a limit ended."""
        self._turned_away.labels(limit).inc()


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the HTTP side; whatever goes beyond is answered 4xx or 503, naming the field.

    `body_bytes`: of a request. `bodies_bytes`: of all requests that are being read or worked on together (one
    alone may always be as large as `body_bytes`). `head_bytes`: request line and headers. `connections`: open
    at once. `k_max`: results per query. `batch_max`: queries per request. `results_max`: k summed over them.
    `queue`: queries waiting for the compute thread. `pass_queries`: queries of one alias that share one pass
    over the items. Seconds: `head_s` from the first byte (or from connecting) to the end of the headers,
    `body_s` to the end of the body, `idle_s` between requests of a connection, `write_s` for a reader that
    does not read, `answer_s` from a parsed request to its answer, `drain_s` for open requests when the server
    stops.
    """

    body_bytes: int = 4 << 20
    bodies_bytes: int = 32 << 20
    head_bytes: int = 32 << 10
    connections: int = 512
    k_max: int = 1000
    batch_max: int = 256
    results_max: int = 20_000
    queue: int = 512
    pass_queries: int = 16
    head_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 30.0
    write_s: float = 10.0
    answer_s: float = 5.0
    drain_s: float = 5.0
