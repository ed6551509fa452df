"""uvicorn in a thread of its own with a clean stop, and one connection: uvicorn's protocol with the limits
that it does not have itself.

When all places are taken, a connection that only waits for its client gives way
(`daemon.telemetry.server`). Where every one is at work, `RESERVED` more are left for health and metrics.

uvicorn leaves open how long a header may take, how large it may be, how long a body that nobody reads may
trickle in, and how long a client may not read its answer. Here one timer per connection covers each phase
of a request, and the reason a connection is closed is given in the same JSON as every other error.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from threading import Event
from typing import Any, NoReturn

import httptools
import structlog
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import is_ssl

from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.http.errors import JSON, RETRY_AFTER_S, Problem
from daemon.serve.http.limits import RESERVED, HttpLimits, HttpMetrics
from daemon.telemetry.server import (
    BACKLOG,
    NOSNIFF,
    PAGES,
    ConnectionTable,
    allow_descriptors,
    client_of,
    has_unread,
    listen,
)

MOST_PIPELINED = 32
_ABSOLUTE = re.compile(rb"[a-z][a-z0-9+.-]*://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_OF_UPGRADES = (b"connection", b"upgrade", b"http2-settings")
_PROBES = frozenset(page.encode() for page in PAGES)
_GRACE_S = 1.0  # the application's own limit on a body comes first: it has the better answer


class LimitedConnection(HttpToolsProtocol):
    """HTTP/1.1 of one client within `limits`; also ended when bytes of an answer are not taken in time."""

    def __init__(
        self,
        *args: Any,
        limits: HttpLimits,
        metrics: HttpMetrics,
        table: ConnectionTable[LimitedConnection],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._metrics, self._table = limits, metrics, table
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        # Bytes received that are no body: of a header, or what frames chunks and follows them; of its parts.
        self._head = self._fields = 0
        self._in_body = self._is_over = False
        self._data = b""
        self._refused: tuple[str, Problem] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Any byte that is not taken at once starts the timer. Over TLS 0 would stop writing before it began:
        # asyncio pauses there at the limit, and elsewhere beyond it.
        transport.set_write_buffer_limits(high=int(is_ssl(transport)), low=0)
        self._metrics.connections.set(len(self.connections))
        self._table.add(self, client_of(self.client[0] if self.client else ""))
        crowded = len(self._table) > self._limits.connections + RESERVED
        if crowded and not _gave_way(self._table.take_waiting(_has_news)):
            self._end("connections", self._no_place())
        else:
            self._start_timer(self._limits.head_s)
            self._tell_table()

    def shutdown(self) -> None:
        """The server ends: close, unless a request is on its way, or may be on a connection that has asked
        nothing yet. Such a connection has `_LAST_S` for it; its answer is the last one there.
        """
        waits = self.cycle is None or self.cycle.response_complete
        if self._is_over or not waits or (self.cycle is not None and not self._head and not _has_news(self)):
            super().shutdown()
        else:
            self._stop_timer()
            self._timer = self.loop.call_later(_LAST_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._table.remove(self)
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)
        self._metrics.connections.set(len(self.connections))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_s, self._not_reading)
            self._tell_table()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
            self._tell_table()

    def _not_reading(self) -> None:
        self._metrics.record_turned_away("slow_reader")
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._in_body and self._timer is None:
            self._start_timer(self._limits.head_s)
        self._head += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if not self._is_over and self._head > self._limits.head_bytes:
            self._end("head_bytes", self._large_head())
        self._tell_table()

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
        self._take_authority()
        self._table.works(self)
        crowded = len(self._table) - self._table.idle > self._limits.connections
        is_probe = self.url.partition(b"?")[0] in _PROBES
        if crowded and not is_probe and not _gave_way(self._table.take_stalled(_has_news)):
            self._refuse("connections", self._no_place())
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("this is no proxy")
            return  # `_unsupported_upgrade_warning` parses it again
        self._in_body, self._head = True, 0
        self._start_timer(self._limits.body_s + _GRACE_S)
        super().on_headers_complete()

    def _take_authority(self) -> None:
        """Put the authority of an absolute request line in the place of Host (RFC 9112, section 3.2.2)."""
        found = _ABSOLUTE.fullmatch(self.url)
        if found is None:
            return
        authority, rest = found.groups()
        self.url = rest if rest.startswith(b"/") else b"/" + rest
        if self.parser.get_http_version() == "1.0" and b"host" not in dict(self.headers):
            self.headers.append((b"host", authority))
        # One Host each: none, or two, stay what they are, an error.
        self.headers[:] = [(name, authority if name == b"host" else value) for name, value in self.headers]

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body, self._head = False, 0
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell_table()

    def _tell_table(self) -> None:
        cycle = self.cycle
        if self._is_over:
            return
        if self._write_timer is not None:
            self._table.stalls(self)
        elif self.pipeline or (cycle is not None and not cycle.response_complete and not self._in_body):
            self._table.works(self)
        elif self._in_body:
            self._table.stalls(self)
        else:
            self._table.idles(self)

    def give_way(self) -> None:
        """Close to make room for another client: in silence between two requests, where an answer would be
        taken for that of the next one, else with the reason.
        """
        if self._write_timer is not None:
            self._is_over = True
            self._metrics.record_turned_away("gave_way")
            self.transport.abort()
        elif self.cycle is not None and not self._in_body and not self._head:
            self._is_over = True
            self._metrics.record_turned_away("gave_way")
            self._hang_up()
        else:
            self._end("gave_way", self._no_place())

    def _no_place(self) -> Problem:
        message = f"{self._limits.connections} connections are open already"
        remedy = "try again in a moment, or keep connections open and share them"
        return Problem(503, "too_many_connections", message, None, remedy)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request that would upgrade as if it had not asked (RFC 9110, section 7.8): the parser took
        what follows its header for another protocol, so it is parsed again without those fields.
        """
        error = sys.exception()
        assert isinstance(error, httptools.HttpParserUpgrade)
        kept = [(name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        words = (value.lower() for name, value in self.headers if name == b"connection")
        if any(b"close" in value for value in words):
            kept.append((b"connection", b"close"))
        line = b"%s %s HTTP/%s" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        self.parser = httptools.HttpRequestParser(self)
        head = b"\r\n".join([line, *(b"%s: %s" % field for field in kept), b"", b""])
        self._data = head + self._data[error.args[0] :]
        super().data_received(self._data)

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP, in the common shape."""
        bad = Problem(400, "bad_http", "this is not valid HTTP/1.1", "request", "send an HTTP/1.1 request")
        self._end(*(self._refused or ("bad_http", bad)))

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

    def _large_head(self) -> Problem:
        message = f"request line and headers are larger than {self._limits.head_bytes} bytes"
        return Problem(431, "header_too_large", message, "header", "send fewer and shorter headers")

    def _end(self, limit: str, problem: Problem) -> None:
        """Say why and close; only close where another answer of this connection is not complete, or begun."""
        self._is_over = True
        self._table.remove(self)
        self._metrics.record_turned_away(limit)
        self._stop_timer()
        cycle = self.cycle
        in_its_body = cycle is not None and cycle.more_body and not (self.pipeline or cycle.response_started)
        if in_its_body:
            cycle.disconnected = True  # what would be answered is answered here
        if cycle is None or cycle.response_complete or in_its_body:
            self.transport.write(_raw(problem))
        self._hang_up()

    def _hang_up(self) -> None:
        """Close for good: over TLS `close` would wait for the client's farewell, outside of the table."""
        (self.transport.abort if is_ssl(self.transport) else self.transport.close)()


def _gave_way(connection: LimitedConnection | None) -> bool:
    """End the connection that the table chose; whether there was one."""
    if connection is not None:
        connection.give_way()
    return connection is not None


def _has_news(connection: LimitedConnection) -> bool:
    return _has_unread(connection.transport.get_extra_info("socket"))


def _has_unread(connection: socket.socket) -> bool:
    return connection.fileno() >= 0 and has_unread(connection.fileno())


def _raw(problem: Problem) -> bytes:
    """A whole answer as bytes, for what never becomes a request."""
    body = problem.content()
    status = HTTPStatus(problem.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"content-type: {JSON}"]
    lines += [f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in NOSNIFF.items()]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(f"retry-after: {RETRY_AFTER_S}")
    return "\r\n".join([*lines, "", ""]).encode() + body


_END_S = 5.0  # beyond drain_s: uvicorn looks every 0.1 s whether connections are closed

_AT_ONCE = 64
"""Connections taken in one turn of the loop: each has its descriptor before the table sees it, and a storm of
them would leave none for files."""
HANDSHAKES = 64
"""TLS handshakes under way at once: asyncio takes 256 KiB for each, of a client of whom nothing is known."""
_HANDSHAKES_AT_ONCE = 8
"""Begun in one turn of the loop: each takes some six turns, and in a storm is not to give way before."""
_FAREWELL_S = 1.0
"""How long the other end of a TLS connection that is closed may take to close it, too."""
_OWN_PORT = -1
"""The number of the server's own listening socket, beside those of `accept_from`."""

log = structlog.get_logger("tripletd.http")


_DATE_S = 1.0
"""How old the date in the header of an answer may be."""
_REST_S = 1.0
"""How long no connection is taken when there is no descriptor for it."""
_LAST_S = 0.25
"""How long a connection that was just made is waited for when the server ends."""


class _Listening(uvicorn.Server):
    """uvicorn takes as many connections in one turn as may wait to be taken, and counts no handshakes; here
    each has its number. And it polls for its end ten times a second; here an event wakes it.

    context: gives that of TLS for each connection, None without it. handshake_s: how long one may take.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext] | None,
        handshake_s: float,
    ) -> None:
        super().__init__(config)
        self._context, self._handshake_s = context, handshake_s
        self._own = {_OWN_PORT: listening}
        self._wanted: Mapping[int, socket.socket] = {}
        self._taken_from: dict[int, socket.socket] = {}
        self._made = set[asyncio.Task[Any]]()
        self._handshakes = ConnectionTable[socket.socket]()

    def stop(self) -> None:
        """End soon; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ending.set)

    def accept_from(self, sockets: Mapping[int, socket.socket]) -> None:
        """From soon on take connections of these listening sockets too, by number, and of no others; from any
        thread. They stay open: what waits in one that is left out is for whoever takes it next.
        """
        self._wanted = dict(sockets)
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._change)

    def _change(self) -> None:
        wanted = {} if self.should_exit else {**self._own, **self._wanted}
        loop = asyncio.get_running_loop()
        for number in self._taken_from.keys() - wanted.keys():
            loop.remove_reader(self._taken_from.pop(number).fileno())
        for number in wanted.keys() - self._taken_from.keys():
            self._taken_from[number] = wanted[number]
            self._read(number)

    def _read(self, number: int) -> None:
        listening = self._taken_from.get(number)
        if listening is not None:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._take, listening, number)

    def _take(self, listening: socket.socket, number: int) -> None:
        """Take what waits, but not all at once. asyncio's own server drops a connection that it has taken
        just before it is closed."""
        try:
            self._accept(listening, _AT_ONCE if self._context is None else _HANDSHAKES_AT_ONCE)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process took it, or none is left
        except OSError:  # no descriptor is free: others may take it, or this process a little later
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening.fileno())
            loop.call_later(_REST_S, self._read, number)

    def _accept(self, listening: socket.socket, most: int) -> None:
        """Take so many, fewer where no handshake gives way to theirs. Raises OSError when none is left."""
        for _ in range(most):
            if len(self._handshakes) >= HANDSHAKES:
                waits = has_unread(listening.fileno())
                oldest = self._handshakes.take_waiting(_has_unread) if waits else None
                if oldest is None:
                    return
                with suppress(OSError):  # it has hung up itself
                    oldest.shutdown(socket.SHUT_RDWR)  # asyncio reads an end, and closes it
            self._make(*listening.accept())

    def _make(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        loop, of_tls = asyncio.get_running_loop(), dict[str, Any]()
        if self._context is not None:
            within = {"ssl_handshake_timeout": self._handshake_s, "ssl_shutdown_timeout": _FAREWELL_S}
            of_tls = {"ssl": self._context(), **within}
            self._handshakes.add(connection, client_of(address[0]))
            self._handshakes.idles(connection)
        making = loop.create_task(loop.connect_accepted_socket(self._protocol, connection, **of_tls))
        self._made.add(making)
        making.add_done_callback(partial(self._is_made, connection))

    def _is_made(self, connection: socket.socket, making: asyncio.Task[Any]) -> None:
        self._made.discard(making)
        self._handshakes.remove(connection)
        error = None if making.cancelled() else making.exception()
        if error is not None:  # a client that hung up, or shook no hands, is its own affair
            error.__traceback__ = None  # its frames would keep the buffers until garbage is collected

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take what still waits to be taken, then end as uvicorn does: closing a listening socket would reset
        those connections."""
        self._change()
        for one in sockets or ():
            with suppress(OSError):  # none is left
                self._accept(one, BACKLOG)
        if self._made:
            await asyncio.wait(self._made, timeout=_LAST_S)
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        self._ending, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._change()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _DATE_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn, but asyncio's own server would take connections past the bounds of `_take`."""
        await super().startup([])


class HttpServer(BackgroundThread):
    """A running server; `host` and `port` are the ones it really got."""

    name = "http"

    def __init__(self, server: _Listening, listening: socket.socket, drain_s: float, draining: Event) -> None:
        super().__init__()
        self._draining = draining
        self.host, self.port = listening.getsockname()[:2]
        self._server, self._listening = server, listening
        self.end_s = drain_s + _END_S
        self.start()

    def alive(self) -> bool:
        """Whether the server's thread runs."""
        return self._thread.is_alive()

    def accept_from(self, sockets: Mapping[int, socket.socket]) -> None:
        """Besides its own port, take connections of these listening sockets, by number, and of no others."""
        self._server.accept_from(sockets)

    def drain(self) -> None:
        """Answer on, and have every connection that asks end with its answer: its client asks elsewhere."""
        self._draining.set()

    def stop(self) -> None:
        """Take no new connection and let open requests finish; returns at once."""
        self.drain()
        self._server.stop()

    def close(self) -> None:
        """Stop, wait for open requests up to `drain_s`, then end; bounded."""
        super().close()
        if self.alive():
            log.error("the HTTP server did not end", waited_s=self.end_s)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        except Exception:
            log.exception("the HTTP server ended")
        finally:
            self._listening.close()


def serve(
    app: Starlette, host: str, port: int, context: Callable[[], ssl.SSLContext] | None = None
) -> HttpServer:
    """Listen and answer for an application of `create_app`, within its limits; port 0 takes any free port.
    context: gives that of TLS for a new connection, None without it.

    Raises:
        UserError: the port is taken (69), or the host or port may not be used (78).
    """
    limits: HttpLimits = app.state.limits
    allow_descriptors(limits.connections + RESERVED + HANDSHAKES, "serve.connections")
    listening = listen(host, port)
    _bridge_logs()
    config = uvicorn.Config(
        app,
        http=partial(  # type: ignore[arg-type]
            LimitedConnection, limits=limits, metrics=app.state.metrics, table=ConnectionTable()
        ),
        loop="asyncio",  # uvloop saved 8 % of the time per request: not worth a compiled dependency more
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.idle_s) or 1,
        timeout_graceful_shutdown=int(limits.drain_s) or 1,
    )
    server = _Listening(config, listening, context, limits.head_s)
    return HttpServer(server, listening, limits.drain_s, app.state.draining)


class _Bridge(logging.Handler):
    """What uvicorn has to say, as lines of our own log."""

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else None
        log.error(record.getMessage().strip(), exc_info=error)


def _bridge_logs() -> None:
    """Errors only: what clients do wrong is counted by metrics, and would fill a log at their will."""
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_Bridge()], False
    logger.setLevel(logging.ERROR)
