"""The program that makes vectors of texts, asked over HTTP/1.1 through connections that are kept.

By hand, on the parser that the server uses: a general client takes as long for a request as everything else
that is done to a query. It follows no redirect and asks through no proxy. Answers are read piece by piece,
never more than the reader of the answer takes.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

import httptools

from daemon.serve.http.errors import JSON, RETRY_AFTER_S, Problem
from daemon.serve.http.limits import HttpMetrics

CHUNK = 1 << 16
IDLE_S = 55.0
"""Connections that were idle for longer are not used again: many servers close them after a minute."""
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """url: base of the routes, without a / at its end. key: bearer token, "" for none. connections: requests
    at once. timeout_s: for a whole answer. answer_bytes: largest one."""

    url: str
    key: str = field(default="", repr=False)
    timeout_s: float = 30.0
    connections: int = 16
    answer_bytes: int = 32 << 20


class _Stale(Exception):
    """A kept connection was closed by the other side before it answered."""


class UpstreamAnswer:
    """An answer whose header is there. Read its body once, in `async with`: the connection goes back then,
    or is closed where the body was not read to its end."""

    def __init__(self, pool: Upstream, connection: _Connection, deadline: float) -> None:
        self.status, self.headers = connection.status, connection.headers
        self._pool, self._connection, self._deadline = pool, connection, deadline

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces. Raises Problem 502 where it ends early or is too large, 504 if it is late."""
        total = 0
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    piece = await self._connection.read_body()
            except TimeoutError:
                raise self._pool.too_slow() from None
            except (OSError, httptools.HttpParserError, _Stale):
                raise _broken("its answer ended early") from None
            if piece is None:
                return
            total += len(piece)
            if total > self._pool.settings.answer_bytes:
                message = f"the upstream's answer is larger than {self._pool.settings.answer_bytes} bytes"
                remedy = "ask for fewer texts at a time, or raise embeddings.answer"
                raise Problem(502, "upstream_too_large", message, None, remedy)
            yield piece

    async def read(self) -> bytes:
        """The whole body. Raises Problem as `chunks` does."""
        return b"".join([piece async for piece in self.chunks()])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._pool.give_back(self._connection)


class Upstream:
    """Asks one server. Belongs to the event loop, but for its making."""

    def __init__(self, settings: UpstreamSettings, metrics: HttpMetrics) -> None:
        parts = urlsplit(settings.url)
        assert parts.hostname is not None, "checked with the configuration"
        self.settings, self._metrics = settings, metrics
        self._place = parts.hostname, parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        head = [f"Host: {parts.netloc}", f"Content-Type: {JSON}", f"Accept: {JSON}"]
        head += ["Accept-Encoding: identity", "User-Agent: tripletd"]
        head += [f"Authorization: Bearer {settings.key}"] if settings.key else []
        self._path, self._head = parts.path, "\r\n".join(head)
        self._idle: list[_Connection] = []
        self._places = asyncio.Semaphore(settings.connections)

    async def post(self, path: str, body: bytes) -> UpstreamAnswer:
        """Send JSON to `path` behind the base URL. Raises Problem: 502 where nobody answers as HTTP does,
        504 where the answer does not begin in time, waiting for a connection included."""
        start = time.perf_counter()
        deadline = asyncio.get_running_loop().time() + self.settings.timeout_s
        request = f"POST {self._path}{path} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
                try:
                    connection = await self._asked(request.encode("latin-1") + body)
                except BaseException:
                    self._places.release()
                    raise
        except TimeoutError:
            self._metrics.record_upstream("timeout", time.perf_counter() - start)
            raise self.too_slow() from None
        except Problem:
            self._metrics.record_upstream("unreachable", time.perf_counter() - start)
            raise
        self._metrics.record_upstream(str(connection.status), time.perf_counter() - start)
        return UpstreamAnswer(self, connection, deadline)

    def give_back(self, connection: _Connection) -> None:
        """A connection is not used any more: kept where its answer was read to the end."""
        self._places.release()
        if connection.reusable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the connections that wait."""
        while self._idle:
            self._idle.pop().close()

    def too_slow(self) -> Problem:
        """The error of an answer that did not come in time."""
        message = f"the upstream did not answer within {self.settings.timeout_s:g} s"
        return Problem(504, "upstream_slow", message, None, "ask again; embeddings.timeout is the limit")

    async def _asked(self, request: bytes) -> _Connection:
        """A connection on which the header of the answer was read. A kept connection may have been closed
        meanwhile: then the request is sent again, which changes nothing there."""
        while self._idle:
            kept = self._idle.pop()
            if time.monotonic() - kept.idle_since > IDLE_S:
                kept.close()
                continue
            try:
                return await self._ask(kept, request)
            except _Stale:
                continue
        host, port = self._place
        try:
            made = _Connection(*await asyncio.open_connection(host, port, ssl=self._tls, limit=CHUNK))
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or str(error) or type(error).__name__
            raise _broken(f"no connection to {host}:{port}: {why}") from None
        try:
            return await self._ask(made, request)
        except _Stale:
            raise _broken("it closed the connection without an answer") from None

    async def _ask(self, connection: _Connection, request: bytes) -> _Connection:
        try:
            await connection.ask(request)
        except httptools.HttpParserError:
            connection.close()
            raise _broken("its answer is not valid HTTP/1.1") from None
        except OSError:
            connection.close()
            raise _Stale from None
        except BaseException:
            connection.close()
            raise
        return connection


def _broken(why: str) -> Problem:
    message = f"the upstream cannot be used: {why}"
    remedy = "look whether the server of embeddings.upstream runs there"
    return Problem(502, "upstream_unreachable", message, None, remedy, retry_after=RETRY_AFTER_S)


class _Connection:
    """One connection and the answer that is read from it; also what its parser calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_header = self._complete = self._keeps = self._to_end = False

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        return self._complete and self._keeps and not self._reader.at_eof()

    async def ask(self, request: bytes) -> None:
        """Send a request and read the header of its answer. Raises OSError where the connection has ended,
        HttpParserError for what is no HTTP."""
        self._begin()
        self._writer.write(request)
        await self._writer.drain()
        while not self._has_header:
            await self._receive()

    async def read_body(self) -> bytes | None:
        """The next piece; None at the end."""
        while not self._pieces:
            if self._complete:
                return None
            await self._receive()
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece

    async def _receive(self) -> None:
        found = await self._reader.read(CHUNK)
        if not found and self._to_end:
            self._complete = True  # an answer without a length ends with its connection
        elif not found:
            raise ConnectionResetError("the connection ended")
        else:
            self._parser.feed_data(found)

    def close(self) -> None:
        """End the connection; at once."""
        with suppress(RuntimeError):  # the loop has ended
            self._writer.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The header is there; that of an answer in between (1xx) says nothing."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = {}
            return
        self._keeps = self._parser.should_keep_alive()
        bare = self.status in (204, 304)
        self._to_end = not bare and not {"content-length", "transfer-encoding"} & self.headers.keys()
        self._has_header = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._has_header:
            self._complete = True
