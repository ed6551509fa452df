"""Qdrant through its client's local mode, Elasticsearch and OpenSearch by what they document of their REST
interfaces: a store in memory that checks requests as the real one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from daemon.config.services import IndexConfig
from daemon.index import StoreAway, StoreRefused, VectorIndex, open_index

ROWS, DIM = 300, 8
DRAWN = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
DRAWN /= np.linalg.norm(DRAWN, axis=1, keepdims=True)
TAGS = [["a"] if number % 3 == 0 else ["b"] for number in range(ROWS)]
QUERY = 2.5 * DRAWN[5]


def nearest(k: int, tag: str = "") -> list[str]:
    scores = DRAWN @ QUERY
    return [f"o{row}" for row in np.argsort(-scores) if not tag or tag in TAGS[row]][:k]


def opened(store: str, answer: Callable[[httpx.Request], httpx.Response], **more: Any) -> VectorIndex:
    given = {"store": store, "address": "http://store:1", "collection": "items", "timeout": "1s", **more}
    index = open_index(IndexConfig.model_validate(given), httpx.MockTransport(answer))
    assert index is not None
    return index


class Qdrant:
    """The client's local mode behind the address of the REST interface; bodies are read by the models that
    the client itself is made of."""

    def __init__(self, named: str = "") -> None:
        from qdrant_client import QdrantClient, models  # a fifth of what all tests import

        self.client, self.asked = QdrantClient(":memory:"), list[models.QueryRequest]()
        self.read = models.QueryRequest.model_validate_json
        self.keys = list[str | None]()
        vectors = models.VectorParams(size=DIM, distance=models.Distance.DOT)
        self.client.create_collection("items", {named: vectors} if named else vectors)
        points = [
            models.PointStruct(
                id=row,
                vector={named: one.tolist()} if named else one.tolist(),
                payload={"sku": f"o{row}", "tags": TAGS[row]},
            )
            for row, one in enumerate(DRAWN)
        ]
        self.client.upsert("items", points)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/collections/items/points/query")
        self.keys.append(request.headers.get("api-key"))
        body = self.read(request.content)
        self.asked.append(body)
        found = self.client.query_points(
            "items",
            query=body.query,  # type: ignore[arg-type]
            using=body.using,
            query_filter=body.filter,
            search_params=body.params,
            limit=body.limit or 10,
            with_payload=body.with_payload or False,
        )
        return httpx.Response(200, json={"result": json.loads(found.model_dump_json()), "status": "ok"})


@pytest.mark.filterwarnings("ignore:Local mode performs exact")
@pytest.mark.parametrize("named", ["", "text"])
def test_qdrant_is_asked_as_its_own_client_reads_it(named: str) -> None:
    store = Qdrant(named)
    index = opened("qdrant", store, id="sku", tags="tags", vector=named, secret="key", width=64)
    found = index.search(QUERY.tolist(), 10)
    assert [one.id for one in found] == nearest(10)
    np.testing.assert_allclose(found[0].score, float(DRAWN[5] @ QUERY), rtol=1e-5)
    assert [one.id for one in index.search(QUERY.tolist(), 7, ["a"])] == nearest(7, "a")
    assert [one.id for one in index.search(QUERY.tolist(), 7, exact=True)] == nearest(7)
    assert [(one.params.hnsw_ef, one.params.exact) for one in store.asked if one.params] == [
        (64, False),
        (64, False),
        (None, True),
    ]
    assert store.keys == ["key"] * 3
    plain = opened("qdrant", store, vector=named)
    assert [one.id for one in plain.search(QUERY.tolist(), 1)] == ["5"]
    with pytest.raises(StoreRefused, match="no key of tags"):
        plain.search(QUERY.tolist(), 1, ["a"])


class Elastic:
    """Scores by brute force, and refuses what the documentation says is refused. similarity: of the field."""

    def __init__(self, kind: str, similarity: str) -> None:
        self.kind, self.similarity, self.asked = kind, similarity, list[Any]()
        self.headers: httpx.Headers | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.headers = request.headers
        if request.method == "GET":
            assert request.url.path == "/items/_mapping/field/embedding"
            about: dict[str, Any] = {"type": "dense_vector", "similarity": self.similarity}
            if self.kind == "opensearch":
                about = {"type": "knn_vector", "method": {"name": "hnsw", "space_type": self.similarity}}
            mapping = {"embedding": {"full_name": "embedding", "mapping": {"embedding": about}}}
            return httpx.Response(200, json={"items": {"mappings": mapping}})
        assert request.url.path == "/items/_search"
        body = json.loads(request.content)
        self.asked.append(body)
        vector, k, terms = self._read(body)
        if self.similarity == "dot_product" and abs(np.linalg.norm(vector) - 1) > 1e-3:
            reason = "The [dot_product] similarity can only be used with unit-length vectors."
            cause = {"type": "illegal_argument_exception", "reason": reason}
            return httpx.Response(400, json={"error": {"root_cause": [cause], "reason": "all shards failed"}})
        scores = (1 + DRAWN @ vector) / 2
        rows = [row for row in np.argsort(-scores).tolist() if all(tag in TAGS[row] for tag in terms)][:k]
        hits = [
            {"_id": f"o{row}", "_score": float(scores[row]), "fields": {"sku": [f"s{row}"]}} for row in rows
        ]
        assert body["_source"] is False
        return httpx.Response(200, json={"hits": {"hits": hits[: body["size"]]}})

    def _read(self, body: Any) -> tuple[np.ndarray, int, list[str]]:
        """The vector, how many, and the tags; every key is one that the documentation has."""
        query = body.get("query", {})
        if "script_score" in query:
            asked = query["script_score"]
            terms = [one["term"]["tags"] for one in asked["query"]["bool"]["filter"] if "term" in one]
            params = asked["script"]["params"]
            if self.kind == "opensearch":
                assert (asked["script"]["lang"], asked["script"]["source"]) == ("knn", "knn_score")
                assert params["space_type"] == self.similarity
                return np.array(params["query_value"]), body["size"], terms
            assert "'embedding'" in asked["script"]["source"]
            return np.array(params["q"]), body["size"], terms
        if self.kind == "opensearch":
            asked = query["knn"]["embedding"]
            assert asked.keys() <= {"vector", "k", "filter", "method_parameters"}
            terms = [
                one["term"]["tags"] for one in asked.get("filter", {"bool": {"must": []}})["bool"]["must"]
            ]
            return np.array(asked["vector"]), asked["k"], terms
        asked = body["knn"]
        assert asked.keys() <= {"field", "query_vector", "k", "num_candidates", "filter"}
        assert asked["k"] <= asked["num_candidates"] <= 10_000
        return (
            np.array(asked["query_vector"]),
            asked["k"],
            [one["term"]["tags"] for one in asked.get("filter", [])],
        )


@pytest.mark.parametrize(
    ("kind", "similarity"),
    [
        ("elasticsearch", "dot_product"),
        ("elasticsearch", "cosine"),
        ("elasticsearch", "max_inner_product"),
        ("opensearch", "innerproduct"),
        ("opensearch", "cosinesimil"),
    ],
)
def test_elasticsearch_and_opensearch(kind: str, similarity: str) -> None:
    store = Elastic(kind, similarity)
    index = opened(kind, store, tags="tags", secret="abc")
    assert [one.id for one in index.search(QUERY.tolist(), 10)] == nearest(10)
    assert [one.id for one in index.search(QUERY.tolist(), 7, ["a"])] == nearest(7, "a")
    assert [one.id for one in index.search(QUERY.tolist(), 7, ["a"], exact=True)] == nearest(7, "a")
    assert store.headers is not None
    assert store.headers["authorization"] == "ApiKey abc"
    named = opened(kind, store, id="sku", user="elastic", secret="pass")
    assert named.search(QUERY.tolist(), 1)[0].id == "s5"
    assert store.headers["authorization"] == "Basic ZWxhc3RpYzpwYXNz"
    with pytest.raises(StoreRefused, match="those of this space are sparse"):
        index.search({"indices": [0], "values": [1.0]}, 1)


def test_a_request_of_elasticsearch_to_the_letter() -> None:
    store = Elastic("elasticsearch", "dot_product")
    opened("elasticsearch", store, tags="tags", width=500).search([3.0, 4.0, *[0.0] * 6], 200, ["red"])
    assert store.asked == [
        {
            "size": 200,
            "_source": False,
            "knn": {
                "field": "embedding",
                "query_vector": [0.6, 0.8, *[0.0] * 6],
                "k": 200,
                "num_candidates": 500,
                "filter": [{"term": {"tags": "red"}}],
            },
        }
    ]


def test_a_request_of_opensearch_to_the_letter() -> None:
    store = Elastic("opensearch", "innerproduct")
    opened("opensearch", store).search([0.0, 5.0, *[0.0] * 6], 20)
    vector = [0.0, 1.0, *[0.0] * 6]
    knn = {"embedding": {"vector": vector, "k": 20, "method_parameters": {"ef_search": 400}}}
    assert store.asked == [{"size": 20, "_source": False, "query": {"knn": knn}}]


@pytest.mark.parametrize("store", ["qdrant", "elasticsearch"])
def test_what_a_store_cannot_answer(store: str) -> None:
    tries = 0

    def overloaded(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        return httpx.Response(429, text="slow down")

    with pytest.raises(StoreAway, match="items does not answer: 429: slow down"):
        opened(store, overloaded).search([1.0], 1)
    assert tries == 2

    def slow(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        raise httpx.ReadTimeout("too slow", request=request)

    with pytest.raises(StoreAway, match="it took too long"):
        opened(store, slow).search([1.0], 1)
    assert tries == 3  # one that is slow is not asked twice

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused", request=request)

    with pytest.raises(StoreAway, match="Connection refused"):
        opened(store, gone).search([1.0], 1)
    missing: dict[str, Any] = {"status": {"error": "Collection `items` doesn't exist!"}}
    if store == "elasticsearch":
        missing = {"error": {"root_cause": [{"reason": "no such index [items]"}], "reason": "x"}}
    with pytest.raises(StoreRefused, match=r"items: 404: (Collection `items` doesn't exist|no such index)"):
        opened(store, lambda request: httpx.Response(404, json=missing)).search([1.0], 1)
    with pytest.raises(StoreRefused, match="speaks no JSON"):
        opened(store, lambda request: httpx.Response(200, text="<html>")).search([1.0], 1)
    with pytest.raises(StoreRefused, match="an answer without"):
        opened(store, lambda request: httpx.Response(200, json={})).search([1.0], 1)


@pytest.mark.filterwarnings("ignore:Local mode performs exact")
def test_an_answer_after_another_try() -> None:
    store, failed = Qdrant(), False

    def once(request: httpx.Request) -> httpx.Response:
        nonlocal failed
        if not failed:
            failed = True
            raise httpx.ReadError("connection reset", request=request)
        return store(request)

    assert [one.id for one in opened("qdrant", once, id="sku").search(QUERY.tolist(), 3)] == nearest(3)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"address": ""}, "needs index.address"),
        ({"collection": ""}, "needs index.collection"),
        ({"address": "http://db"}, "expected postgresql://"),
        ({"address": "postgresql://anna:secret@db/shop"}, "an address holds no password"),
        ({"mode": "embedded"}, "needs index.version"),
        ({"store": "qdrant"}, "expected http://... or https://..."),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], wrong: str) -> None:
    sound = {"store": "pgvector", "address": "postgresql://anna@db/shop", "collection": "items"}
    assert IndexConfig.model_validate(sound).store == "pgvector"
    with pytest.raises(ValueError, match=wrong):
        IndexConfig.model_validate({**sound, **given})
