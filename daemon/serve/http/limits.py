"""How much of anything a client may take, what the HTTP side counts of itself, and bodies read within bounds.

There is no rate per client, and so no 429: only a proxy in front can tell clients apart, because behind it
all come from one address. A rate for each belongs there. What is bounded here keeps one client from being
felt by others for longer than its own requests take: a request has at most `batch_max` queries and
`results_max` results, a connection answers one request at a time, and what waits is answered in order, with
other aliases in between. When all places are taken, a connection that only waits for its client gives way,
of the client that has most. When `queue` is full or would take longer than `queue_wait_s`, or when
`connections` are at work, the next question gets 503 with Retry-After, which a client, a proxy and a load
balancer all understand as: later, or elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from daemon.serve.http.errors import RETRY_AFTER_S, Problem, from_validation

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0)
RESERVED = 16
"""Places beyond `connections`: where so many are at work, they ask for health and metrics alone."""
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class HttpMetrics:
    """Counters and histograms of requests, connections and passes, on the role's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        about = "From the request's header to the end of the answer, by route"
        self.requests = counter("tripletd_http_requests", "Requests by route and status", ["route", "status"])
        self.seconds = Histogram(
            "tripletd_http_seconds", about, ["route"], buckets=_SECONDS, registry=registry
        )
        self.connections = gauge("tripletd_http_connections", "Open connections")
        about = "Connections ended by a limit, by limit"
        self._turned_away = counter("tripletd_http_turned_away", about, ["limit"])
        self.bodies = gauge(
            "tripletd_http_bodies_bytes", "Bodies of requests that are being read or worked on"
        )
        self.waiting = gauge("tripletd_http_waiting_queries", "Queries waiting")
        about = "Requests with queries that were not taken, by what was full: the queue, or the time it takes"
        self._shed = counter("tripletd_http_shed", about, ["bound"])
        for bound in ("queue", "wait"):
            self._shed.labels(bound)
        self.pass_queries = Histogram(
            "tripletd_http_pass_queries", "Queries that shared a pass", buckets=_QUERIES, registry=registry
        )
        about = "From asking the upstream of [embeddings] to the header of its answer, by status"
        self._upstream = Histogram(
            "tripletd_http_upstream_seconds", about, ["status"], buckets=_SECONDS, registry=registry
        )
        about = "Answers of the upstream that were of no use, by reason"
        self.upstream_failures = counter("tripletd_http_upstream_failures", about, ["reason"])
        about = "From texts to their vectors by the model of embeddings.folder"
        self.text_model = Histogram(
            "tripletd_http_text_model_seconds", about, buckets=_SECONDS, registry=registry
        )
        self.bugs = counter("tripletd_http_bugs", "Answers 500, each in the log")

    def record_turned_away(self, limit: str) -> None:
        """Add one connection that a limit ended."""
        self._turned_away.labels(limit).inc()

    def record_shed(self, bound: str) -> None:
        """Add one request whose queries were not taken."""
        self._shed.labels(bound).inc()

    def record_upstream(self, status: str, seconds: float) -> None:
        """Add one answer of the upstream, or why there was none."""
        self._upstream.labels(status).observe(seconds)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the HTTP side; whatever goes beyond is answered 4xx or 503, naming the field.

    `body_bytes`: of a request. `bodies_bytes`: of all requests that are being read or worked on together (one
    alone may always be as large as `body_bytes`). `head_bytes`: request line and headers. `connections`: at
    work at once; `RESERVED` more are open. `k_max`: results per query. `batch_max`: queries per request.
    `results_max`: k summed over them. `queue`: queries waiting for the compute thread. `pass_queries`:
    queries of one alias that share one pass over the items. Seconds: `queue_wait_s` for what waits to be
    computed, as the passes before tell; `head_s` from the first byte (or from
    connecting) to the end of the headers, `body_s` to the end of the body, `idle_s` between requests of a
    connection, `write_s` for a reader that does not read, `answer_s` from a parsed request to its answer,
    `drain_s` for open requests when the server stops.
    """

    body_bytes: int = 4 << 20
    bodies_bytes: int = 32 << 20
    head_bytes: int = 32 << 10
    connections: int = 512
    k_max: int = 1000
    batch_max: int = 256
    results_max: int = 20_000
    queue: int = 512
    queue_wait_s: float = 2.0
    pass_queries: int = 16
    head_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 30.0
    write_s: float = 10.0
    answer_s: float = 5.0
    drain_s: float = 5.0


AnyRequest = TypeVar("AnyRequest", bound=BaseModel)


class RequestBodies:
    """All bodies that are being read or worked on; what they became takes some 16 times their size.

    metrics: where that is shown; None for routes that are bounded by themselves.
    """

    def __init__(self, limits: HttpLimits, metrics: HttpMetrics | None) -> None:
        self._limits = limits
        self._held = 0
        if metrics is not None:
            metrics.bodies.set_function(lambda: self._held)

    @asynccontextmanager
    async def read(
        self, request: Request, model: type[AnyRequest], *, lines: bool = False
    ) -> AsyncIterator[AnyRequest]:
        """The body as `model`; it counts as held until the block ends. lines: whether it may be JSON objects,
        one per line, which are read as the list of them.

        Raises Problem 400, 408, 413, 415, 422 or 503, naming the field.
        """
        self._look_at_header(request)
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    await self._collect(request, body)
            except TimeoutError:
                message = f"the body was not complete after {self._limits.body_s:g} s"
                raise Problem(408, "slow_body", message, "body", "send it faster", close=True) from None
            except ClientDisconnect:
                raise Problem(400, "disconnected", "the body ended early", "body", close=True) from None
            yield _parse(_listed(body) if lines else bytes(body), model)
        finally:
            self._held -= len(body)

    def _look_at_header(self, request: Request) -> None:
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            field = "Content-Encoding"
            raise Problem(415, "compressed", "the body is compressed", field, "send it as it is", close=True)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limits.body_bytes:
            raise _too_large("Content-Length", self._limits)

    async def _collect(self, request: Request, body: bytearray) -> None:
        async for chunk in request.stream():
            body += chunk
            self._held += len(chunk)
            if len(body) > self._limits.body_bytes:
                raise _too_large("body", self._limits)
            if self._held > self._limits.bodies_bytes and self._held > len(body):
                message = "the bodies of all requests together are too large"
                remedy = "try again in a moment"
                raise Problem(
                    503, "bodies_too_large", message, "body", remedy, retry_after=RETRY_AFTER_S, close=True
                )


def _listed(body: bytearray) -> bytes:
    """The JSON list of objects that come one per line (NDJSON); any other body as it is."""
    head, _, more = body.strip().partition(b"\n")
    try:
        first = from_json(head) if more else None
    except ValueError:  # one document on several lines: the first is no value of its own
        first = None
    if not isinstance(first, dict):
        return bytes(body)
    return b"[" + b",\n".join(line for line in bytes(body).splitlines() if line.strip()) + b"]"


def _parse(body: bytes, model: type[AnyRequest]) -> AnyRequest:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from None


def _too_large(field: str, limits: HttpLimits) -> Problem:
    message = f"the body is larger than {limits.body_bytes} bytes"
    return Problem(413, "body_too_large", message, field, "send less, or raise serve.body", close=True)
