"""Questions over HTTP/1.1 to programs that are not ours, and their answers within bounds.

What is bounded is the whole of an answer: the bytes of its header, the bytes of its body, the values of its
JSON, and one deadline over everything from waiting for a connection to the last byte, other tries included.
No redirect is followed, no proxy is asked, and no compressed answer is taken, since none was asked for.
Connections are kept. `ForeignClient` is of an event loop; `BlockingClient` is the same for threads.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httptools
from pydantic_core import from_json

from streams.text_files import json_memory

HEAD_BYTES = 64 << 10
"""Of an answer's header, and of what frames its body beyond the bytes of the body itself."""
IDLE_S = 55.0
"""Connections that were idle for longer are not used again: many servers close them after a minute."""
LATER = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses of a server that may answer the same question later."""
REST_S = 0.05
"""Between two tries, more or less by chance, so that many who were turned away do not return together."""
LEAST_JSON_MEMORY = 64 << 20
_LONGEST_TEXT = 300
_PORTS = {"http": 80, "https": 443}


class ForeignError(Exception):
    """There is no answer that can be used. reason: `unreachable`, `timeout`, `header`, `too_large`,
    `encoded` or `malformed`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A server. url: what paths are appended to. timeout_s: for the whole of a question, tries included.
    connections: questions at once. body_bytes: largest answer. tls: None for the system's authorities."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 5.0
    connections: int = 1
    body_bytes: int = 8 << 20
    tries: int = 1
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Its values, all of which JSON can hold again. Raises ForeignError, also where they would take far
        more memory than their text."""
        if json_memory(self.body) > max(LEAST_JSON_MEMORY, 2 * len(self.body)):
            raise ForeignError("too_large", "its answer holds too many values")
        try:
            return from_json(self.body, allow_inf_nan=False)
        except ValueError:
            raise ForeignError("malformed", "its answer is not JSON") from None

    @property
    def text(self) -> str:
        """What it says, in one line for a log."""
        return " ".join(self.body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())[:_LONGEST_TEXT]


class AnswerReader:
    """One answer, from pieces as they come; also what its parser calls."""

    def __init__(self, body_bytes: int) -> None:
        self.status, self.headers, self.complete = 0, dict[str, str](), False
        self.keeps, self.fed = False, 0
        self._most, self._body = body_bytes, bytearray()
        self._has_header = self._to_end = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def answer(self) -> ForeignAnswer:
        """What was read; once `complete`."""
        return ForeignAnswer(self.status, self.headers, bytes(self._body))

    def feed(self, data: bytes) -> None:
        """Take a piece, b"" for the end of the connection. Raises ForeignError."""
        if not data:
            self.complete = self.complete or self._to_end  # an answer without a length ends so
            if not self.complete:
                told = "its answer ended early" if self.fed else "it closed the connection without an answer"
                raise ForeignError("unreachable", told)
            return
        self.fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise ForeignError("malformed", "its answer is not valid HTTP/1.1") from None
            self.keeps = False
        if self._has_header and self.headers.get("content-encoding", "identity").lower() != "identity":
            raise ForeignError("encoded", "its answer is compressed, which was not asked for")
        if self.fed - len(self._body) > HEAD_BYTES + len(self._body):
            raise ForeignError("header", f"the header of its answer is larger than {HEAD_BYTES} bytes")
        if len(self._body) > self._most:
            raise ForeignError("too_large", f"its answer is larger than {self._most} bytes")

    def on_message_begin(self) -> None:
        """Another answer, which nobody asked for, ends the connection."""
        self.keeps &= not self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the header, or one behind the body, which says nothing."""
        if not self._has_header:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The header is there; that of an answer in between (1xx) says nothing."""
        if self._has_header:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = {}
            return
        self.keeps = self._parser.should_keep_alive()
        bare = self.status in (204, 304)
        self._to_end = not bare and not {"content-length", "transfer-encoding"} & self.headers.keys()
        self._has_header = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self.complete:
            self._body += body

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self.complete = self.complete or self._has_header


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is read from it."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.idle_since, self.is_open = 0.0, False
        self.reader: AnswerReader | None = None
        self._whole: asyncio.Future[None] | None = None

    async def ask(self, request: bytes, body_bytes: int) -> AnswerReader:
        """Send a question; its whole answer. Raises ForeignError; what came of it then is in `reader`."""
        reader = self.reader = AnswerReader(body_bytes)
        self._whole = asyncio.get_running_loop().create_future()
        if not self.is_open:
            reader.feed(b"")
        self.transport.write(request)
        await self._whole
        self.reader = None
        return reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """A piece of the answer; what nobody asked for ends the connection."""
        if self.reader is None or self._whole is None or self._whole.done():
            self.transport.abort()
            return
        try:
            self.reader.feed(data)
        except ForeignError as error:
            self._whole.set_exception(error)
        else:
            if self.reader.complete:
                self._whole.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, which may be the end of an answer."""
        self.is_open = False
        if self._whole is not None and not self._whole.done():
            if exc is None:
                self.data_received(b"")
            else:
                self._whole.set_exception(ForeignError("unreachable", f"the connection was lost: {exc}"))


class ForeignClient:
    """Asks one server. Belongs to one event loop, but for its making."""

    def __init__(self, server: ForeignServer) -> None:
        parts = urlsplit(server.url.rstrip("/"))
        assert parts.hostname is not None, "checked with the configuration"
        self.server, self._base = server, parts.path
        self._host, self._port = parts.hostname, parts.port or _PORTS[parts.scheme]
        self._tls = (server.tls or ssl.create_default_context()) if parts.scheme == "https" else None
        given = {"Host": parts.netloc.rpartition("@")[2], "Accept": "application/json"}
        given |= {"Accept-Encoding": "identity", "User-Agent": "tripletd", **server.headers}
        self._headers = given
        self._idle: list[_Connection] = []
        self._places = asyncio.Semaphore(server.connections)

    async def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> ForeignAnswer:
        """The answer to a question; body: JSON. It is sent again where a kept connection has ended before any
        of an answer came, and as often as the server's `tries` say. Raises ForeignError."""
        given = self._headers | dict(headers or {})
        if body is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{method} {self._base}{path} HTTP/1.1", *(f"{name}: {one}" for name, one in given.items())]
        request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        try:
            async with asyncio.timeout(self.server.timeout_s), self._places:
                return await self._tried(request)
        except TimeoutError:
            told = f"it did not answer within {self.server.timeout_s:g} s"
            raise ForeignError("timeout", told) from None

    def close(self) -> None:
        """Close the connections that wait."""
        while self._idle:
            with suppress(RuntimeError):  # the loop has ended
                self._idle.pop().transport.abort()

    async def _tried(self, request: bytes) -> ForeignAnswer:
        for left in reversed(range(self.server.tries)):
            try:
                answer = await self._asked(request)
                if not left or answer.status not in LATER:
                    return answer
            except ForeignError as error:
                if not left or error.reason != "unreachable":
                    raise
            await asyncio.sleep(random.uniform(0.5, 1.5) * REST_S)  # noqa: S311
        raise AssertionError("the last try returns or raises")

    async def _asked(self, request: bytes) -> ForeignAnswer:
        loop = asyncio.get_running_loop()
        while True:
            kept = self._idle.pop() if self._idle else None
            connection = kept or await self._connected(loop)
            reusable = False
            try:
                if kept is not None and loop.time() - kept.idle_since > IDLE_S:
                    continue
                reader = await connection.ask(request, self.server.body_bytes)
                reusable = reader.keeps and connection.is_open
                return reader.answer
            except ForeignError as error:
                begun = connection.reader is not None and connection.reader.fed > 0
                if kept is None or begun or error.reason != "unreachable":
                    raise
            finally:
                connection.idle_since = loop.time()
                if reusable:
                    self._idle.append(connection)
                else:
                    connection.transport.abort()

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        try:
            made = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        except (OSError, ssl.SSLError, UnicodeError) as error:
            number = re.search(r"\[Errno (\d+)\] Connect call", str(error))
            why = os.strerror(int(number[1])) if number else str(error) or type(error).__name__
            raise ForeignError("unreachable", f"no connection to {self._host}:{self._port}: {why}") from None
        return made[1]


class BlockingClient:
    """`ForeignClient` for any thread: one loop in a thread of its own does the asking of them all."""

    def __init__(self, server: ForeignServer) -> None:
        with _ONE:
            self._made = ForeignClient(server), _loop()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> ForeignAnswer:
        """As `ForeignClient.ask`; it waits."""
        with _ONE:
            client, loop = self._made
            if loop is not _loop():  # that of the process which this one was forked from
                client, loop = self._made = ForeignClient(client.server), _loop()
        return asyncio.run_coroutine_threadsafe(client.ask(method, path, body, headers), loop).result()

    def close(self) -> None:
        """Hang up; another question connects again."""
        client, loop = self._made
        loop.call_soon_threadsafe(client.close)


_ONE = threading.Lock()  # of the threads that make a loop or a client


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="foreign-http", daemon=True).start()
    return loop


os.register_at_fork(before=_ONE.acquire, after_in_parent=_ONE.release, after_in_child=_ONE.release)
os.register_at_fork(after_in_child=_loop.cache_clear)  # a thread stays with its process
