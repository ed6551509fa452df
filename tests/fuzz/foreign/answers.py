"""Foreign input: answers over HTTP, those of the embeddings upstream and of vector stores among them."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from pydantic_core import to_json

from daemon.config.services import IndexConfig
from daemon.index import StoreError, open_index
from daemon.serve.http.texts import answer_of, vectors_of, written
from streams.foreign_http import AnswerReader, ForeignAnswer, ForeignError
from tests.fuzz.law import ForeignInput

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HTTP = (
    HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}',
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\nX: 1\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"\r\n[]",
)


def read_http(value: bytes) -> Any:
    """As it comes from a connection."""
    reader = AnswerReader(4 << 20)
    for start in range(0, len(value), 1 << 16):
        if not reader.complete:
            reader.feed(value[start : start + (1 << 16)])
    if not reader.complete:
        reader.feed(b"")
    return reader.answer.json()


ROW = np.arange(4, dtype="<f4")


def read_embeddings(value: bytes) -> bytes:
    """Of two texts, up to what a client is told."""
    vectors, usage = vectors_of(ForeignAnswer(200, {}, value), 2)
    told = answer_of(2, "m", usage)
    for place, row in zip(told["data"], vectors, strict=True):
        place["embedding"] = written(row, "float")
    return to_json(told, inf_nan_mode="strings")


def _embeddings(*rows: Any) -> bytes:
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    return json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()


class Answering:
    """A store that gives what is drawn to a question of one method, and what is right to any other."""

    def __init__(self, method: str, right: bytes) -> None:
        self._method, self._right, self.drawn = method, right, b""

    def ask(self, method: str, path: str, body: bytes | None = None) -> ForeignAnswer:
        """Any question."""
        return ForeignAnswer(200, {}, self.drawn if method == self._method else self._right)

    def close(self) -> None:
        """Nothing is open."""


def _field(**about: Any) -> bytes:
    return json.dumps({"items": {"mappings": {"embedding": {"mapping": {"embedding": about}}}}}).encode()


POINTS = [
    {"id": 1, "version": 3, "score": 0.5, "payload": {"sku": "a"}},
    {"id": 2, "score": 1, "payload": {"sku": "b"}},
]
HITS = [
    {"_id": "1", "_score": 0.5, "fields": {"sku": ["a"]}},
    {"_id": "2", "_score": 1, "fields": {"sku": ["b"]}},
]
LOOKS = {
    "qdrant": json.dumps(
        {"result": {"config": {"params": {"vectors": {"size": 2, "distance": "Dot"}}}}}
    ).encode(),
    "elasticsearch": _field(type="dense_vector", dims=2, similarity="cosine"),
    "opensearch": _field(
        type="knn_vector", dimension=2, method={"name": "hnsw", "space_type": "innerproduct"}
    ),
}
FOUND = {
    "qdrant": json.dumps({"result": {"points": POINTS}, "status": "ok"}).encode(),
    "elasticsearch": json.dumps({"hits": {"hits": HITS}}).encode(),
    "opensearch": json.dumps({"hits": {"hits": HITS}}).encode(),
}


def store(kind: str, method: str) -> ForeignInput:
    """Answers to questions (POST), or to what the store is (GET)."""
    client = Answering(method, LOOKS[kind] if method == "POST" else FOUND[kind])
    given = {"store": kind, "address": "http://store:1", "collection": "items", "id": "sku"}

    def read(value: bytes) -> Any:
        client.drawn = value
        index = open_index(IndexConfig.model_validate(given), client)
        assert index is not None
        found = index.search([3.0, 4.0], 2, similarity="inner_product")
        return json.dumps([(one.id, one.score) for one in found], allow_nan=False).encode()

    seeds = ((FOUND if method == "POST" else LOOKS)[kind],)
    return ForeignInput(f"answers.{kind}.{method.lower()}", read, seeds, (StoreError,), WORST)


WORST = (
    b'{"result": {"points": [{"payload": {"sku": "a"}, "score": "0.5"}]}}',
    b'{"result": {"points": [{"payload": {"sku": {"a": 1}}, "score": 0.5}]}}',
    b'{"hits": {"hits": [{"fields": {"sku": ["\\ud800"]}, "_score": 1}]}}',
    b'{"hits": {"hits": [{"fields": {"sku": []}, "_score": Infinity}]}}',
    b"[" + b"{}," * 1_000_000 + b"{}]",
    b"[" * 4_000_000,
)

INPUTS: tuple[ForeignInput, ...] = (
    ForeignInput(
        "answers.http",
        read_http,
        HTTP,
        (ForeignError,),
        (
            HEAD + b"X: 1\r\n" * 1_000_000,
            HEAD + b"X: " + b"1" * 8_000_000,
            HEAD + b"\r\n" + b"1" * 8_000_000,
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1_000_000,
            b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000,
        ),
    ),
    ForeignInput(
        "answers.embeddings",
        read_embeddings,
        (
            _embeddings([0.5, 1.0], [1e-8, -2]),
            _embeddings(*[base64.b64encode(ROW.tobytes()).decode()] * 2),
        ),
        (ForeignError,),
        (
            b'{"data": [{"index": 0, "embedding": [%s]}, {"index": 1, "embedding": [1]}]}' % (b"9" * 4_000),
            b'{"data": []}',
            b'{"data": [' + b'{"index": 0, "embedding": [1]},' * 1_000_000 + b"{}]}",
            b'{"data": [{"index": 0, "embedding": [' + b"1," * 15_000_000 + b"1]}]}",
        ),
    ),
    *(store(kind, method) for kind in LOOKS for method in ("POST", "GET")),
)
