"""One connection: uvicorn's protocol with the limits that it does not have itself.

uvicorn leaves open how long a header may take, how large it may be, how long a body that nobody reads may
trickle on, and how long a reader may not read. Here one timer per connection covers each phase of a request,
and what ends a connection is said in the same JSON as everything else.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, NoReturn

from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from daemon.serve.http.errors import JSON, RETRY_AFTER_S, Problem
from daemon.serve.http.limits import Limits
from daemon.serve.http.metrics import HttpMetrics

MOST_PIPELINED = 32
_GRACE_S = 1.0  # the application's own limit on a body comes first: it has the better answer


class LimitedConnection(HttpToolsProtocol):
    """HTTP/1.1 of one client within `limits`."""

    def __init__(self, *args: Any, limits: Limits, metrics: HttpMetrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._metrics = limits, metrics
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        # Bytes received that are no body: of a header, or what frames chunks and follows them; of its parts.
        self._head = self._fields = 0
        self._in_body = self._is_over = False
        self._refused: tuple[str, Problem] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that any byte that is not taken at once starts the timer
        self._metrics.connections.set(len(self.connections))
        if len(self.connections) > self._limits.connections:
            message = f"{self._limits.connections} connections are open already"
            remedy = "come again in a moment, or keep connections open and share them"
            self._end("connections", Problem(503, "too_many_connections", message, None, remedy))
        else:
            self._start_timer(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)
        self._metrics.connections.set(len(self.connections))

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._in_body and self._timer is None:
            self._start_timer(self._limits.head_s)
        self._head += len(data)
        super().data_received(data)
        if not self._is_over and self._head > self._limits.head_bytes:
            self._end("head_bytes", self._large_head())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields = 0
        if self._timer is None:
            self._start_timer(self._limits.head_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # behind a chunked body: a header was what was looked at before it
        super().on_header(name, value)
        self._fields += len(name) + len(value) + 4  # ": " and the line's end

    def on_headers_complete(self) -> None:
        if self._fields + len(self.url) > self._limits.head_bytes:
            self._refuse("head_bytes", self._large_head())
        if len(self.pipeline) >= MOST_PIPELINED:  # one read has room for thousands, each with its own state
            message = f"more than {MOST_PIPELINED} requests before the first was answered"
            self._refuse("pipelined", Problem(400, "pipelined", message, "request", "wait for answers"))
        self._in_body, self._head = True, 0
        self._start_timer(self._limits.body_s + _GRACE_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._head = False, 0
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP, in the common shape."""
        bad = Problem(400, "bad_http", "this is not valid HTTP/1.1", "request", "send an HTTP/1.1 request")
        self._end(*(self._refused or ("bad_http", bad)))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_s, self._not_reading)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _refuse(self, limit: str, problem: Problem) -> NoReturn:
        self._refused = (limit, problem)
        raise ValueError(problem.message)  # ends the parser, which calls send_400_response

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        place, seconds = ("body", self._limits.body_s) if self._in_body else ("header", self._limits.head_s)
        message = f"the {place} was not complete after {seconds:g} s"
        self._end(f"slow_{place}", Problem(408, f"slow_{place}", message, place, "send it faster"))

    def _not_reading(self) -> None:
        self._metrics.record_turned_away("slow_reader")
        self.transport.abort()

    def _large_head(self) -> Problem:
        message = f"request line and headers are larger than {self._limits.head_bytes} bytes"
        return Problem(431, "header_too_large", message, "header", "send fewer and shorter headers")

    def _end(self, limit: str, problem: Problem) -> None:
        """Say why and close; only close where another answer of this connection is not complete."""
        self._is_over = True
        self._metrics.record_turned_away(limit)
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_raw(problem))
        self.transport.close()


def _raw(problem: Problem) -> bytes:
    """A whole answer as bytes, for what never becomes a request."""
    body = to_json({"error": problem.body()})
    status = HTTPStatus(problem.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"content-type: {JSON}"]
    lines += [f"content-length: {len(body)}", "connection: close"]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(f"retry-after: {RETRY_AFTER_S}")
    return "\r\n".join([*lines, "", ""]).encode() + body
