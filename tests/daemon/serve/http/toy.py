"""A served application over a small numpy searcher: for the mechanics of HTTP, not for retrieval."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from daemon.exits import UserError
from daemon.runtime.doors import Gate
from daemon.serve.http import HttpLimits, HttpServer, LocalModel, Parts, Writes, create_app, serve
from daemon.serve.http.batching import Searching
from daemon.serve.http.openapi import document
from daemon.serve.interleave import ListMaker
from daemon.serve.query import (
    OWN,
    Answered,
    AnsweringModel,
    Answers,
    ByKey,
    FoldedView,
    Query,
    QueryError,
    ScoreAnswers,
    ScoredId,
    VectorAnswers,
)
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import Health
from streams.foreign_http import ForeignServer
from tests.daemon.serve.http.contract import Contract
from tests.harness.waiting import until

HOST = "127.0.0.1"
TOKEN = "correct-horse-battery"
DIM = 4


@dataclass(frozen=True)
class ToyModel:
    version: int = 12
    total: int = 1234
    line: str = "0123456789abcdef"
    watermark: int | None = 1_700_000_000_000

    def __str__(self) -> str:
        return f"{self.version}+7"


@dataclass
class ToySearcher:
    """Inner products with ten objects; `gate` holds every pass while it is not set. Says of
    answers to an even k that they are exact."""

    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    passes: list[list[Query]] = field(default_factory=list)
    model: ToyModel = field(default_factory=ToyModel)
    formed: int = 1230
    fails: Callable[[Sequence[Query]], Exception | None] = lambda queries: None

    def __post_init__(self) -> None:
        self.gate.set()
        self.items = np.random.default_rng(0).standard_normal((10, DIM)).astype(np.float32)
        self.ids = [f"o{n}" for n in range(10)]

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        self.entered.set()
        self.gate.wait(30)
        between()
        self.passes.append(list(queries))
        if (error := self.fails(queries)) is not None:
            raise error
        each = [
            Answered(
                self._one(query),
                exact=query.k % 2 == 0,
                by=None if query.key is None else ByKey(query.key, OWN, None, 1230),
            )
            for query in queries
        ]
        return Answers(self.model, self.formed, each)

    def vectors(self, alias: str, queries: Sequence[Query], wanted: str) -> VectorAnswers:
        """The given numbers, doubled for a folded query."""
        if (error := self.fails(queries)) is not None:
            raise error
        results: list[Any] = []
        for query in queries:
            if query.id is not None and query.id not in self.ids:
                results.append(QueryError("unknown_object", "no such object", "id", "add it", 404))
            elif query.only is not None and len(query.only) != DIM:
                results.append(QueryError("wrong_dim", f"has {len(query.only)} numbers, the view {DIM}", "x"))
            elif query.only is not None:
                results.append([(2 if wanted == "folded" else 1) * one for one in query.only.tolist()])
            elif isinstance(query.x, Mapping):
                results.append(dict(query.x))
            else:
                given = query.x if query.x is not None else self.items[0].tolist()
                results.append([2 * one if wanted == "folded" else one for one in given])
        views = [FoldedView("x", 0, DIM, True)] if wanted == "folded" else []
        return VectorAnswers(self.model, self.formed, results, "inner_product", True, DIM, views)

    def fold_few(self, alias: str, vectors: Sequence[Any]) -> None:
        """Nothing is there at once: `vectors` is asked."""

    def scores(self, alias: str, query: Query, documents: Sequence[Query]) -> ScoreAnswers:
        """Inner products; of objects and of given vectors."""
        if len(query.only) != DIM:
            raise QueryError("wrong_dim", f"has {len(query.only)} numbers, the view {DIM}", "x")
        results: list[Any] = []
        for one in documents:
            if one.only is not None:
                results.append(float(one.only @ query.only))
            elif one.id not in self.ids:
                results.append(QueryError("unknown_object", "no such object", "id", "add it", 404))
            else:
                results.append(float(self.items[self.ids.index(one.id)] @ query.only))
        return ScoreAnswers(self.model, results)

    def _one(self, query: Query) -> Sequence[ScoredId] | QueryError:
        if query.id is not None:
            if query.id not in self.ids:
                return QueryError("unknown_object", "no such object", "id", "add it", 404)
            vector = self.items[self.ids.index(query.id)]
        else:
            raw = query.x if query.x is not None else next(iter((query.views or {}).values()))
            vector = np.zeros(DIM, np.float32)
            if isinstance(raw, Mapping):
                vector[raw["indices"]] = raw["values"]
            elif len(raw) != DIM:
                return QueryError(
                    "wrong_dim", f"x has {DIM} numbers", "x" if query.x is not None else "views"
                )
            else:
                vector[:] = raw
        scores = self.items @ vector
        allowed = [
            n
            for n in np.argsort(-scores, kind="stable")
            if (name := self.ids[n]) != query.id
            and name not in query.exclude
            and (query.include is None or name in query.include)
        ]
        return [ScoredId(self.ids[n], float(scores[n])) for n in allowed[: query.k]]


@dataclass
class ToyStore:
    """In the place of `StoreActions`: one version, and a list of what was done."""

    done: list[tuple[Any, ...]] = field(default_factory=list)

    def overview(self) -> Mapping[str, Any]:
        alias = {"alias": "latest", "version": "12+7", "base": 12, "records": 1234, "watermark": None}
        alias["line"] = ToyModel.line
        return {"aliases": [{**alias, "since": 1.0, "why": ""}], "versions": [{"version": 12, "names": []}]}

    def move(
        self, verb: str, alias: str, version: int | str | None, reason: str, dry_run: bool, *, by: str
    ) -> Mapping[str, Any]:
        if version == 99:
            raise UserError("there is no version 99", "promote one that is there")
        self.done.append((verb, version, alias, reason, dry_run))
        kind = "ROLLBACK" if verb == "rollback" else "PROMOTE"
        return self._moved(kind, alias, 3 if verb == "rollback" else version)

    def gc(self, dry_run: bool) -> Mapping[str, Any]:
        self.done.append(("gc", dry_run))
        return {"gone": [1], "size": 10, "kept": {0: ["version 0"]}, "dry_run": dry_run}

    def _moved(self, kind: str, alias: str, after: Any) -> Mapping[str, Any]:
        told = {
            "kind": kind,
            "alias": alias,
            "before": 1,
            "after": 7 if after == "best" else after,
            "by": "http",
            "reason": "r",
        }
        return {**told, "entry": 5, "notes": []}


@dataclass
class Watched:
    answers: list[tuple[str, str]] = field(default_factory=list)

    def answered(self, alias: str, model: AnsweringModel) -> None:
        self.answers.append((alias, str(model)))


@dataclass
class Served:
    """A running server with what it was made of."""

    server: HttpServer
    searcher: ToySearcher
    store: ToyStore
    watched: Watched
    health: Health
    registry: CollectorRegistry
    contract: Contract

    @property
    def port(self) -> int:
        return self.server.port

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, the JSON of the answer (else its text) and its headers; it must be as described."""
        sent = body if isinstance(body, bytes | str | None) else json.dumps(body)
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request(method, path, sent, dict(headers or {}))
            answer = connection.getresponse()
            text = answer.read().decode()
            if method != "HEAD":
                self.contract.check(method, path, answer.status, answer.headers, text)
            is_json = answer.headers.get("content-type") == "application/json"
            return answer.status, json.loads(text) if is_json and text else text, answer.headers
        finally:
            connection.close()

    def post(self, body: Any, path: str = "/v1/similar") -> tuple[int, Any]:
        return self.ask("POST", path, body)[:2]

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=30)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        text = generate_latest(self.registry).decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@contextmanager
def running(
    limits: HttpLimits | None = None,
    token: str = TOKEN,
    store: Any = None,
    searching: Searching | None = None,
    hosts: Sequence[str] = (),
    lists: ListMaker | None = None,
    writes: Writes | None = None,
    embedding: ForeignServer | LocalModel | None = None,
    models: Mapping[str, str] | None = None,
    gate: Gate | None = None,
    context: Callable[[], ssl.SSLContext] | None = None,
) -> Iterator[Served]:
    """A server on a free port; `store` and `searching` in the places of the toys."""
    toy, toy_store, watched = ToySearcher(), ToyStore(), Watched()
    health, registry = Health(), CollectorRegistry()
    add_build_info(registry, "serve")
    parts = Parts(
        searching or toy,
        toy,
        watched.answered,
        store or toy_store,  # type: ignore[arg-type]
        ("stable", "latest"),
        health,
        registry,
        gate or Gate(single=token),
        hosts,
        limits or HttpLimits(),
        lists=lists,
        writes=writes,
        embedding=embedding,
        models=models or {},
    )
    server = serve(create_app(parts), HOST, 0, context)
    try:
        contract = Contract(document(limits or HttpLimits()))
        yield Served(server, toy, toy_store, watched, health, registry, contract)
    finally:
        toy.gate.set()
        server.close()


def all_at_work(served: Served, held: ExitStack, count: int) -> list[socket.socket]:
    """So many connections that wait for their answers, until the searcher's gate is set."""
    served.searcher.gate.clear()
    crowd = [held.enter_context(served.connect()) for _ in range(count)]
    for connection in crowd:
        body = b'{"x": [1, 2, 3, 4]}'
        head = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        assert served.searcher.entered.wait(30)  # the first is in a pass of its own
    until(lambda: served.metric("tripletd_http_waiting_queries") == count - 1)
    return crowd


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes; a reset ends it too."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def error_of(raw: bytes) -> tuple[int, dict[str, Any]]:
    """Status and error of a raw answer."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]
