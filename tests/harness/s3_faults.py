"""A proxy on loopback before a server of S3's protocol, that injects what networks and servers do wrong.

Requests go through with their Host header, so that signatures stay valid. A `Fault` strikes the next requests
that it fits, each as often as it says, and counts how often it did.
"""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
CONFLICT = (409, "ConditionalRequestConflict")
BROKEN = (500, "InternalError")
SLOW_DOWN = (503, "SlowDown")
EXPIRED = (400, "ExpiredToken")
REFUSED = (403, "AccessDenied")


@dataclass(frozen=True)
class Asked:
    """A request, as faults choose by."""

    method: str
    path: str
    """Path and query, decoded."""
    creates: bool
    """Whether it is a put that only creates."""
    token: str
    """The access key of its signature."""

    @property
    def lists(self) -> bool:
        return "list-type=2" in self.path


Choose = Callable[[Asked], bool]


@dataclass
class Fault:
    """What happens to the next `times` requests that `fits`.

    answer: status and code instead of the server's answer. after: the request is done first, and only then
    answered so, or the connection dropped (a lost answer). part: this share of the body is passed on, and the
    connection dropped: of what comes in, or with `after` of what goes out. delay_s: before anything else.
    act: called when the request came in, or with `after` when it is done, and before it is answered.
    """

    fits: Choose
    times: int = 1
    answer: tuple[int, str] | None = None
    after: bool = False
    part: float | None = None
    delay_s: float = 0.0
    act: Callable[[], None] | None = None
    struck: int = field(default=0, compare=False)


def _any(asked: Asked) -> bool:
    return True


def _creates(asked: Asked) -> bool:
    return asked.creates


NOISES = (
    Fault(_any, answer=BROKEN),
    Fault(_any, answer=SLOW_DOWN),
    Fault(_any, answer=BROKEN, after=True),
    Fault(_any, after=True),
    Fault(_any, part=0.5),
    Fault(_any, part=0.5, after=True),
    Fault(_any, delay_s=0.3),
    Fault(_creates, answer=CONFLICT),
    Fault(_creates, answer=CONFLICT, after=True),
)
"""What a noisy network and server do, each as often as the others."""


class QuietServer(ThreadingHTTPServer):
    """It says nothing of clients that were killed."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class S3Proxy:
    """A running proxy."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._hidden: set[str] | None = None
        self._noise: random.Random | None = None
        self._share = 0.0
        self.asked: list[Asked] = []
        self.noises = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body after its head waited 40 ms for the client's ACK

            def handle_any(self) -> None:
                proxy.pass_on(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """No fault strikes any more, and listings are whole again."""
        with self._lock:
            self._faults, self._hidden = [], None

    def make_noise(self, share: float, seed: int) -> None:
        """From now on this share of all requests meets some fault; 0: none."""
        with self._lock:
            self._noise, self._share = random.Random(seed), share

    def hide_new(self) -> None:
        """From now on listings lack what is written from now on."""
        with self._lock:
            self._hidden = set()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        """One request, with what befalls it."""
        signed = re.search(r"Credential=([^/]+)/", handler.headers.get("Authorization", ""))
        asked = Asked(
            handler.command,
            unquote(handler.path),
            handler.headers.get("If-None-Match") == "*",
            signed[1] if signed else "",
        )
        fault = self._fault(asked)
        length = int(handler.headers.get("Content-Length", 0))
        if fault is not None and fault.delay_s:
            time.sleep(fault.delay_s)
        if fault is not None and fault.act is not None and not fault.after:
            fault.act()
            self._drop(handler)
            return
        if fault is not None and fault.part is not None and not fault.after:
            handler.rfile.read(int(length * fault.part))
            self._drop(handler)
            return
        body = handler.rfile.read(length)
        if fault is not None and fault.answer is not None and not fault.after:
            self._answer(handler, fault.answer[0], ERROR.format(code=fault.answer[1]).encode())
            return
        status, headers, data = self._ask(handler, body)
        if asked.lists and status == 200:
            data = self._without_hidden(data)
        if asked.method == "PUT" and status == 200:
            with self._lock:
                if self._hidden is not None:
                    self._hidden.add(asked.path.partition("?")[0])
        if fault is not None and fault.after:
            if fault.act is not None:
                fault.act()
            if fault.answer is not None:
                self._answer(handler, fault.answer[0], ERROR.format(code=fault.answer[1]).encode())
            elif fault.part is not None:
                self._answer(handler, status, data, headers, int(len(data) * fault.part))
                self._drop(handler)
            else:
                self._drop(handler)
            return
        self._answer(handler, status, data, headers)

    def _fault(self, asked: Asked) -> Fault | None:
        with self._lock:
            self.asked.append(asked)
            for fault in self._faults:
                if fault.struck < fault.times and fault.fits(asked):
                    fault.struck += 1
                    return fault
            if self._noise is not None and self._noise.random() < self._share:
                self.noises += 1
                return self._noise.choice([noise for noise in NOISES if noise.fits(asked)])
        return None

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _without_hidden(self, data: bytes) -> bytes:
        with self._lock:
            hidden = set(self._hidden or ())
        if not hidden:
            return data

        def kept(found: re.Match[str]) -> str:
            key = re.search(r"<Key>(.*?)</Key>", found[0])
            assert key is not None
            return "" if any(path.endswith(f"/{unquote(key[1])}") for path in hidden) else found[0]

        return re.sub(r"<Contents>.*?</Contents>", kept, data.decode(), flags=re.DOTALL).encode()

    def _answer(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: list[tuple[str, str]] | None = None,
        most: int | None = None,
    ) -> None:
        passed = ("content-length", "connection", "transfer-encoding", "date", "server")
        try:
            handler.send_response(status)
            for name, value in headers or [("Content-Type", "application/xml")]:
                if name.lower() not in passed:
                    handler.send_header(name, value)
            length = next((v for n, v in headers or () if n.lower() == "content-length"), "")
            is_head = handler.command == "HEAD"
            handler.send_header("Content-Length", length if is_head and length else str(len(data)))
            handler.end_headers()
            if not is_head:
                handler.wfile.write(data[:most])
        except OSError:
            handler.close_connection = True  # who asked has left

    def _drop(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        try:
            handler.wfile.flush()
            handler.connection.shutdown(2)
        except OSError:
            pass


@contextmanager
def s3_proxy(upstream: str) -> Iterator[S3Proxy]:
    """A proxy before `upstream`, without faults at first."""
    proxy = S3Proxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
