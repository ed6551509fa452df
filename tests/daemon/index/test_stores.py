"""Qdrant through its client's local mode, Elasticsearch and OpenSearch by what they document of their REST
interfaces: a store in memory that checks requests as the real one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from daemon.config.services import IndexConfig
from daemon.index import StoreAway, StoreMalformed, StoreRefused, VectorIndex, open_index
from daemon.index.open import headers_of
from streams.foreign_http import ForeignAnswer, ForeignError

ROWS, DIM = 300, 8
DRAWN = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
DRAWN /= np.linalg.norm(DRAWN, axis=1, keepdims=True)
TAGS = [["a"] if number % 3 == 0 else ["b"] for number in range(ROWS)]
QUERY = 2.5 * DRAWN[5]


def nearest(k: int, tag: str = "") -> list[str]:
    scores = DRAWN @ QUERY
    return [f"o{row}" for row in np.argsort(-scores) if not tag or tag in TAGS[row]][:k]


@dataclass
class InMemory:
    """A client whose server is a function."""

    server: Callable[[httpx.Request], httpx.Response]
    headers: Mapping[str, str]

    def ask(self, method: str, path: str, body: bytes | None = None) -> ForeignAnswer:
        request = httpx.Request(method, f"http://store:1{path}", headers=self.headers, content=body)
        answer = self.server(request)
        return ForeignAnswer(answer.status_code, dict(answer.headers), answer.content)

    def close(self) -> None:
        """Nothing is open."""


def opened(store: str, answer: Callable[[httpx.Request], httpx.Response], **more: Any) -> VectorIndex:
    given = {"store": store, "address": "http://store:1", "collection": "items", "timeout": "1s", **more}
    config = IndexConfig.model_validate(given)
    index = open_index(config, InMemory(answer, headers_of(config)))  # type: ignore[arg-type]
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
        if (request.method, request.url.path) == ("GET", "/collections/items"):
            return httpx.Response(
                200, json={"result": json.loads(self.client.get_collection("items").model_dump_json())}
            )
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
    with pytest.raises(StoreRefused, match=r"index\.tags is not set"):
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
            about: dict[str, Any] = {"type": "dense_vector", "dims": DIM, "similarity": self.similarity}
            if self.kind == "opensearch":
                method = {"name": "hnsw", "space_type": self.similarity}
                about = {"type": "knn_vector", "dimension": DIM, "method": method}
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
    def search(answer: Callable[[httpx.Request], httpx.Response]) -> None:
        opened(store, answer).search([1.0], 1)

    with pytest.raises(StoreAway, match="items does not answer: it answers 429: slow down") as away:
        search(lambda request: httpx.Response(429, text="slow down"))
    assert "slow down" not in away.value.message

    def gone(request: httpx.Request) -> httpx.Response:
        raise ForeignError("unreachable", "Connection refused")

    with pytest.raises(StoreAway, match="Connection refused"):
        search(gone)
    missing: dict[str, Any] = {"status": {"error": "Collection `items` doesn't exist!"}}
    if store == "elasticsearch":
        missing = {"error": {"root_cause": [{"reason": "no such index [items]"}], "reason": "x"}}
    with pytest.raises(StoreRefused, match=r"answers 404: (Collection `items` doesn't exist|no such index)"):
        search(lambda request: httpx.Response(404, json=missing))
    for status in (307, 401, 403, 600):
        with pytest.raises(StoreRefused, match=f"answers {status}: bad key") as refused:
            search(lambda request, status=status: httpx.Response(status, text="bad key"))  # type: ignore[misc]
        assert "bad key" not in refused.value.message
    with pytest.raises(StoreMalformed, match="not JSON"):
        search(lambda request: httpx.Response(200, text="<html>"))
    with pytest.raises((StoreMalformed, StoreRefused), match=r"an answer without|there is no field"):
        search(lambda request: httpx.Response(200, json={}))


FIELD = {"items": {"mappings": {"embedding": {"mapping": {"embedding": {}}}}}}


@pytest.mark.parametrize(
    ("identity", "score"),
    [
        ('{"a": 1}', "1.0"),
        ("null", "1.0"),
        ("true", "1.0"),
        ('"\\ud800"', "1.0"),
        ('"a"', '"1.0"'),
        ('"a"', "null"),
        ('"a"', "1e999"),
        ('"a"', "Infinity"),
        ('"a"', "NaN"),
        ('"a"', "9" * 4_000),
        ('"a"', "[" * 9_000 + "]" * 9_000),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("store", ["qdrant", "elasticsearch"])
def test_a_hit_that_is_none(store: str, identity: str, score: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=FIELD)
        hits = f'[{{"id": {identity}, "_id": {identity}, "score": {score}, "_score": {score}}}]'
        return httpx.Response(200, text=f'{{"result": {{"points": {hits}}}, "hits": {{"hits": {hits}}}}}')

    with pytest.raises(StoreMalformed):
        opened(store, answer).search([1.0], 1)


OTHERS = {
    "qdrant": [("Euclid", "inner_product"), ("Manhattan", "inner_product"), ("Dot", "squared_euclidean")],
    "elasticsearch": [("l2_norm", "inner_product"), ("cosine", "squared_euclidean")],
    "opensearch": [("l2", "inner_product"), ("linf", "squared_euclidean")],
}


@pytest.mark.parametrize(
    ("store", "distance", "similarity"), [(store, *one) for store, of in OTHERS.items() for one in of]
)
def test_a_store_that_compares_otherwise_is_not_asked(store: str, distance: str, similarity: str) -> None:
    size = DIM

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == "GET", "it was asked"
        vectors = {"size": size, "distance": distance}
        about = {"dims": size, "dimension": size, "similarity": distance, "space_type": distance}
        mapping = {"embedding": {"mapping": {"embedding": about}}}
        told = {"result": {"config": {"params": {"vectors": vectors}}}, "items": {"mappings": mapping}}
        return httpx.Response(200, json=told)

    with pytest.raises(StoreRefused, match=f"uses the distance {distance}, and this ranking needs"):
        opened(store, answer).search(QUERY.tolist(), 3, similarity=similarity)
    size = 3
    with pytest.raises(StoreRefused, match="holds vectors with 3 dimensions, and this space has 8"):
        opened(store, answer).search(QUERY.tolist(), 3)


def test_a_store_that_was_made_again_is_looked_at_again_whoever_asked_before() -> None:
    store = Elastic("elasticsearch", "l2_norm")
    index = opened("elasticsearch", store)
    index.search(QUERY.tolist(), 1)  # as its recall is measured
    with pytest.raises(StoreRefused, match="uses the distance l2_norm"):
        index.search(QUERY.tolist(), 1, similarity="inner_product")
    store.similarity = "cosine"
    assert [one.id for one in index.search(QUERY.tolist(), 1, similarity="inner_product")] == nearest(1)


@pytest.mark.parametrize("store", ["qdrant", "elasticsearch"])
def test_who_may_only_search_is_answered(store: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(403, text="action [indices:admin/mappings/fields/get] is unauthorized")
        hits = [{"id": "a", "_id": "a", "score": 1, "_score": 1}]
        return httpx.Response(200, json={"result": {"points": hits}, "hits": {"hits": hits}})

    assert opened(store, answer).search([1.0], 1, similarity="inner_product")[0].id == "a"


def test_distances_of_qdrant_are_scores_of_which_more_is_nearer() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        vectors = {"size": 1, "distance": "Euclid"}
        points = [{"id": 1, "score": 0.5}, {"id": 2, "score": 1.5}]
        told = {"config": {"params": {"vectors": vectors}}, "points": points}
        return httpx.Response(200, json={"result": told})

    found = opened("qdrant", answer).search([1.0], 2, similarity="squared_euclidean")
    assert [(one.id, one.score) for one in found] == [("1", -0.5), ("2", -1.5)]


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
