"""What the HTTP side counts of itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class HttpMetrics:
    """Counters and histograms of requests, connections and passes, on the role's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "tripletd_http_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
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

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Add one request; `route` is one of the application's own paths, or "other"."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def record_turned_away(self, limit: str) -> None:
        """Add one connection that a limit ended."""
        self._turned_away.labels(limit).inc()
