"""Foreign input: requests to serve, as bodies of every route, addresses, headers and bytes on the wire.

The application is the product's: retrieval over a small catalog, a spool in memory, the page, and an upstream
whose connections answer at once. It runs in this thread, so that its time is counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, MutableMapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from uvicorn.server import ServerState

from daemon.replica.vectors import VectorMaker
from daemon.replica.view import ModelSpace
from daemon.runtime.doors import Gate
from daemon.serve.http import HttpLimits, Parts, Writes, create_app
from daemon.serve.http.server import LimitedConnection
from daemon.serve.items.snapshot import resolve
from daemon.serve.live import Live, OpenedServing
from daemon.serve.page.routes import page_routes
from daemon.serve.store import StoreActions
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import ConnectionTable, Health, _handler
from streams.event import SpaceSpec, ViewSpec
from streams.foreign_http import ForeignAnswer, ForeignServer
from tests.daemon.serve.http.toy import TOKEN, Watched
from tests.daemon.serve.items.objects import identity
from tests.daemon.serve.page.rated import rated_sources
from tests.daemon.serve.page.scene import Scene
from tests.daemon.serve.retrieve.makers import Items, learned, searcher_of, view_of
from tests.fuzz.law import ForeignInput

DIM, OBJECTS = 4, 12
LIMITS = HttpLimits(answer_s=1.0, body_s=1.0, head_s=1.0, idle_s=1.0)
Message = MutableMapping[str, Any]


class Refused(Exception):
    """An answer of 4xx."""


class Broken(Exception):
    """An answer that nobody should get."""


class Forgetful:
    """A spool that keeps nothing."""

    def append(self, records: Any) -> None:
        """Every record has been made into a line."""

    def close(self) -> None:
        """Nothing is open."""


class Answering:
    """In the place of connections to an upstream: it reads what is sent, and has a vector for each text."""

    def __init__(self, *_: Any) -> None:
        """As the client is made."""

    def close(self) -> None:
        """Nothing is open."""

    async def ask(self, method: str, path: str, body: bytes) -> ForeignAnswer:
        """An answer in OpenAI's shape, a refusal of more dimensions than a model has."""
        asked = json.loads(body)
        given, size = asked["input"], asked.get("dimensions") or DIM
        if size > 64:
            return ForeignAnswer(400, {}, b'{"error": {"message": "dimensions"}}')
        texts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        rows = [[float(1 + len(text) % 7 - place) for place in range(size)] for text in texts]
        data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
        body = json.dumps({"object": "list", "data": data, "model": "m"}).encode()
        return ForeignAnswer(200, {"content-type": "application/json"}, body)


def opened() -> Live:
    """Retrieval over a few objects, without the threads that would follow versions."""
    items = Items("dense", DIM)
    rows = np.random.default_rng(0).normal(size=(OBJECTS, DIM)).astype(np.float32)
    items.put([f"o{n}" for n in range(OBJECTS)], rows)
    searcher, replica = searcher_of(items, view_of(learned(1, DIM)))
    space = SpaceSpec("shop", (ViewSpec("x", "dense", DIM),))
    fitted = identity(space)
    lookup = partial(resolve, space=space, fitted=fitted)
    live = object.__new__(Live)
    catalog, unused = SimpleNamespace(current=items.snapshot()), None
    replicas = {"latest": replica}
    parts: Any = catalog, replicas, searcher, unused, unused, unused, VectorMaker(fitted), lookup, None
    shop = ModelSpace("shop", fitted.id, DIM, "oasis", (), {})
    live.opened = OpenedServing(shop, fitted, *parts)
    return live


class Server:
    """The application and a loop of this thread, which runs while somebody asks."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        scene = Scene(Path(self.folder.name))
        scene.learn()
        registry, health, live = CollectorRegistry(), Health(), opened()
        add_build_info(registry, "serve")
        writes = WriteMetrics(registry)
        with patch("daemon.serve.http.upstream.ForeignClient", Answering):
            self.app: Starlette = create_app(
                Parts(
                    live,
                    live,
                    Watched().answered,
                    StoreActions(scene.versions, scene.ledger, 9, list),
                    ("latest",),
                    health,
                    registry,
                    Gate(single=TOKEN),
                    limits=LIMITS,
                    page=page_routes(rated_sources(scene)),
                    writes=Writes(WriteQueue(Forgetful(), 1000, writes), writes),
                    embedding=ForeignServer("http://localhost:1", timeout_s=1.0),
                    models={"shop": "m"},
                )
            )
        self.run(self.app.router.lifespan_context(self.app).__aenter__())
        self.table = ConnectionTable[LimitedConnection]()
        self.config = uvicorn.Config(self.app, log_config=None, ws="none", access_log=False)
        self.config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self.run(self.ask("GET", "/v1/page/ratings/next", b"rater=anna", [HOST], b""))  # a study begins

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine."""
        return self.loop.run_until_complete(work)

    def bugs(self) -> int:
        """Answers 500 so far."""
        return int(self.app.state.metrics.bugs._value.get())

    async def ask(
        self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        """Status and body of an answer, as ASGI has it."""
        scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"}
        scope |= {"method": method, "scheme": "http", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": query, "root_path": "", "headers": headers, "client": ("127.0.0.1", 9)}
        pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        status = 0
        told = bytearray()

        async def receive() -> Message:
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            told.extend(message.get("body", b""))

        await self.app(scope | {"server": ("127.0.0.1", 1)}, receive, send)
        return status, bytes(told)

    async def talk(self, sent: bytes) -> bytes:
        """What a connection answers to bytes, until its client has said all."""
        ours, theirs = socket.socketpair()
        metrics = self.app.state.metrics
        make: Any = partial(
            LimitedConnection,
            config=self.config,
            server_state=ServerState(),
            app_state={},
            limits=LIMITS,
            metrics=metrics,
            table=self.table,
        )
        theirs.setblocking(False)
        transport, _ = await self.loop.connect_accepted_socket(make, theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(sent)
        told = b""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(0.02):  # whoever waits for more of it is cut off
                told = await reader.read()
        writer.close()
        transport.abort()
        await asyncio.sleep(0)
        return told


@cache
def server() -> Server:
    """The one that all inputs ask."""
    return Server()


HOST = (b"host", b"localhost")
JSON = (b"content-type", b"application/json")
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())


def judged(status: int, body: bytes) -> None:
    """Raises Refused for 4xx, and Broken for what a client cannot help: a bug, and what takes too long."""
    if not 200 <= status < 500:
        raise Broken(f"{status} {body[:200]!r}")
    json.loads(body)
    if status >= 400:
        raise Refused(body)


def posted(value: bytes, *paths: str) -> None:
    """A body to each of these paths."""
    given = [HOST, JSON, BEARER]
    refused: Exception | None = None
    for path in paths:
        try:
            judged(*server().run(server().ask("POST", path, b"", given, value)))
        except Refused as one:
            refused = one
    if refused is not None:
        raise refused


def addressed(value: bytes, *paths: str) -> None:
    """The parameters of an address to each of these paths."""
    each = []
    for path in paths:
        status, body = server().run(server().ask("GET", path, value[:30_000], [HOST], b""))
        if not 200 <= status < 500 and status != 503:
            raise Broken(f"{path}: {status} {body[:200]!r}")
        each.append(status)
    if each[0] != 200:
        raise Refused


def headed(value: bytes) -> None:
    """Fields of a header, one per line, with a question; some are there already."""
    lines = [line.partition(b":") for line in value[:30_000].split(b"\n")]
    fields = [(name.strip().lower(), text.strip()) for name, _, text in lines]
    body = b'{"id": "o1"}'
    each = []
    for path in ("/v1/similar", "/v1/models/gc"):
        status, told = server().run(server().ask("POST", path, b"", fields, body))
        if not 200 <= status < 500 and b'"behind"' not in told:
            raise Broken(f"{path}: {status} {told[:200]!r}")
        each.append(status)
    if each[0] != 200:
        raise Refused


def said(value: bytes) -> None:
    """Bytes of a connection."""
    before = server().bugs()
    told = server().run(server().talk(value))
    if server().bugs() > before or b"HTTP/1.1 50" in told:
        raise Broken(f"a bug: {told[:200]!r}")
    if not told.startswith(b"HTTP/1.1 2"):
        raise Refused


class _OneConnection:
    """In the place of the telemetry server, for a connection that is handled in this thread."""

    def __init__(self) -> None:
        self.lock, self.table = threading.Lock(), ConnectionTable[Any]()


def scraped(value: bytes) -> None:
    """Bytes of a connection to the port of metrics and health that every role has."""
    registry, health = CollectorRegistry(), Health()
    add_build_info(registry, "up")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(value[:30_000])
        ours.shutdown(socket.SHUT_WR)
        make: Any = _handler(registry, health, Gate(single=TOKEN))
        make(theirs, ("127.0.0.1", 9), _OneConnection())
        theirs.close()
        told = ours.recv(100)
    if not told.startswith(b"HTTP/1.0 2"):
        raise Refused


def seeds(*bodies: Any) -> tuple[bytes, ...]:
    """These values as JSON."""
    return tuple(json.dumps(body).encode() for body in bodies)


VECTOR = [0.5, -1.0, 2.0, 0.25]
SPARSE = {"indices": [0, 2], "values": [1.0, -0.5]}
ASKED = {"id": "o1", "k": 3, "alias": "latest", "filter": {"tags": [], "exclude": ["o2"], "include": ["o3"]}}
SHOWN = {"impression": "l1", "query": "lamp", "shown": ["o1", "o2"], "ts": 1_700_000_000_000}
LINES = b'{"impression": "l1", "object": "o2"}\n{"impression": "l1", "object": "o1", "ts": 5}\n'
TEXTS = seeds(
    {"model": "shop-query@latest", "input": ["a", "b"], "encoding_format": "base64", "user": "u", "task": 3},
    {"model": "shop-doc", "input": [[1, 2], [3]], "dimensions": 4, "more": {"a": [1, 2.5, None]}},
    {"model": "shop-query", "input": "a red dress"},
)
DIGITS = b"9" * 4_000
PAGES = (
    "ratings/next",
    "objects",
    "diff",
    "curves",
    "curves.csv",
    "series",
    "versions",
    "keys",
)


def of_route(name: str, given: tuple[bytes, ...], *paths: str, worst: tuple[bytes, ...] = ()) -> ForeignInput:
    """The law over bodies of some routes."""
    read: Callable[[bytes], None] = lambda value: posted(value, *paths)
    return ForeignInput(f"http {name}", read, given, (Refused,), worst)


INPUTS: tuple[ForeignInput, ...] = (
    of_route(
        "similar",
        seeds(ASKED, {"x": VECTOR, "explain": False, "key": None}, {"views": {"x": VECTOR}, "explore": 0}),
        "/v1/similar",
        worst=(b'{"x": [0, 0, 0, 0]}', b'{"id": "o1", "k": ' + DIGITS + b"}", b'{"id": "o1", "log": true}'),
    ),
    of_route("batch", seeds({"queries": [ASKED, {"x": VECTOR}], "alias": "latest"}), "/v1/similar/batch"),
    of_route("fold", seeds({"queries": [{"id": "o1"}, {"x": VECTOR}], "mode": "folded"}), "/v1/fold"),
    of_route("embed", seeds({"objects": [{"id": "o1"}, {"x": VECTOR}]}), "/v1/embed"),
    of_route(
        "impressions",
        (*seeds(SHOWN, [SHOWN, {**SHOWN, "propensity": [1, 0.5]}], {"impressions": [SHOWN], "token": "t"}),),
        "/v1/impressions",
    ),
    of_route("clicks", (LINES, *seeds({"impression": "l1", "object": "o1"})), "/v1/clicks"),
    of_route(
        "embeddings",
        TEXTS,
        "/v1/embeddings",
        worst=(
            b'{"model": "shop-doc", "input": "a", "more": ' + DIGITS + b"}",
            b'{"model": "shop-doc", "input": "a", "more": 1e400}',
            b'{"model": "shop-query", "input": [' + DIGITS + b"]}",
            b'{"model": "shop-doc", "input": "a", "dimensions": ' + DIGITS + b"}",
            b'{"model": "shop-query", "input": "a", "dimensions": 9}',
        ),
    ),
    of_route(
        "rerank",
        seeds(
            {
                "model": "shop@latest",
                "query": "a",
                "documents": ["b", {"id": "o1"}, {"text": "c"}],
                "top_n": 2,
            }
        ),
        "/v1/rerank",
        "/v2/rerank",
    ),
    of_route("promote", seeds({"version": 3, "alias": "a", "reason": "r"}), "/v1/models/promote"),
    of_route("rollback", seeds({"to": "best", "dry_run": True}), "/v1/models/rollback"),
    of_route("pin", seeds({"alias": "a", "version": 3}), "/v1/models/pin"),
    of_route("gc", seeds({"dry_run": True}), "/v1/models/gc"),
    of_route("ratings", seeds({"rater": "anna", "query": "object-3", "relevant": []}), "/v1/page/ratings"),
    ForeignInput(
        "http address",
        lambda value: addressed(value, "/v1/similar"),
        (b"id=o1&k=3&alias=latest&explain=0", b"id=o1&explore=0", b"id=o%31&k=1&key="),
        (Refused,),
        (b"id=o1&k=" + DIGITS, b"id=%ff%fe", b"id=%ed%a0%80"),
    ),
    ForeignInput(
        "http page",
        lambda value: addressed(value, *(f"/v1/page/{name}" for name in PAGES)),
        (
            b"rater=anna",
            b"text=a&limit=3",
            b"id=object-1&side=5&k=3",
            b"before=1&after=2",
            b"version=3&since=1",
        ),
        (Refused,),
        (b"version=" + DIGITS, b"since=1e999", b"since=nan", b"id=%ed%a0%80"),
    ),
    ForeignInput(
        "http header",
        headed,
        (
            b"host: localhost\ncontent-type: application/json\nauthorization: Bearer " + TOKEN.encode(),
            b"host: [::1]:80\nx-tripletd-at-least: 3\norigin: http://localhost\ncontent-length: 12",
            b"host: localhost\nauthorization: Basic YTpi\naccept: */*\nsec-fetch-site: none",
        ),
        (Refused,),
        (b"host: localhost\ncontent-length: " + DIGITS, b"host: localhost\nx-tripletd-at-least: a@" + DIGITS),
    ),
    ForeignInput(
        "http wire",
        said,
        (
            b'POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{"id": "o1"}',
            b"GET /v1/similar?id=o1&k=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" * 2,
            b"POST /v1/clicks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"GET http://localhost/livez HTTP/1.0\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        ),
        (Refused,),
    ),
    ForeignInput(
        "http telemetry",
        scraped,
        (
            b"GET /status?a=b HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\n\r\n",
            b"HEAD /metrics HTTP/1.0\r\nAuthorization: Bearer x\r\nContent-Length: 5\r\n\r\nhello",
        ),
        (Refused,),
        (
            b"GET /metrics HTTP/1.1\r\nAuthorization: Basic \xff\xfe\r\n\r\n",
            b"GET /livez HTTP/" + DIGITS + b"\r\n\r\n",
        ),
    ),
)
