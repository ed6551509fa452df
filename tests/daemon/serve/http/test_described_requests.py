"""What the OpenAPI document allows is accepted, and what it forbids is refused: no client needs to try.

Accepted is whatever is not refused for its shape (400, 422): an object or a version that is not there, or
what the state of things is against, is another matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.daemon.serve.http.contract import Contract
from tests.daemon.serve.http.toy import TOKEN, Served, running

MODELS = {
    "/v1/similar": "SimilarRequest",
    "/v1/similar/batch": "BatchRequest",
    "/v1/fold": "FoldRequest",
    "/v1/embed": "EmbedRequest",
    "/v1/embeddings": "EmbeddingsRequest",
    "/v1/rerank": "RerankRequest",
    "/v2/rerank": "RerankV2Request",
    "/v1/models/promote": "PromoteRequest",
    "/v1/models/rollback": "RollbackRequest",
    "/v1/models/pin": "PinRequest",
    "/v1/models/gc": "GcRequest",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with running() as one:
        yield one


def accepts(served: Served, path: str, body: Any) -> bool:
    status, answer, _ = served.ask("POST", path, body, {"Authorization": f"Bearer {TOKEN}"})
    wrong_dim = status == 422 and answer["error"]["code"] == "wrong_dim"  # the document knows no views
    return wrong_dim or status not in (400, 422)


def allows(served: Served, path: str, body: Any) -> bool:
    return bool(served.contract.checker(f"#/components/schemas/{MODELS[path]}").is_valid(body))


LONG = "k" * 64
BODIES: list[tuple[str, Any, bool]] = [
    ("/v1/similar", {"id": "o1"}, True),
    ("/v1/similar", {"id": "o1", "x": None, "views": None}, True),
    ("/v1/similar", {}, False),
    ("/v1/similar", {"id": None, "x": None, "views": None}, False),
    ("/v1/similar", {"k": 3, "filter": None}, False),
    ("/v1/similar", {"id": "o1", "x": [1, 2, 3, 4]}, False),
    ("/v1/similar", {"id": None, "x": [1, 2, 3, 4]}, True),
    ("/v1/similar", {"id": "o1", "k": 3.0}, True),
    ("/v1/similar", {"id": "o1", "k": 3.5}, False),
    ("/v1/similar", {"id": "o1", "k": True}, False),
    ("/v1/similar", {"id": "o1", "k": "3"}, False),
    ("/v1/similar", {"id": "o1", "k": 1e300}, False),
    ("/v1/similar", {"x": {"indices": [0.0, 2.0], "values": [1, 2]}}, True),
    ("/v1/similar", {"x": {"indices": [0, 2.5], "values": [1, 2]}}, False),
    ("/v1/similar", {"x": {"indices": [0, True], "values": [1, 2]}}, False),
    ("/v1/similar", {"x": {"indices": [0, 1e300], "values": [1, 2]}}, False),
    ("/v1/similar", {"id": "o1", "alias": ""}, False),
    ("/v1/similar", {"id": "o1", "alias": None}, True),
    ("/v1/similar", {"id": "o1", "key": LONG}, True),
    ("/v1/similar", {"id": "o1", "key": LONG + "k"}, False),
    ("/v1/similar", {"id": "o1", "key": "\u00fc" * 32}, True),
    ("/v1/similar", {"id": "o1", "key": "\u00fc" * 33}, False),
    ("/v1/similar", {"id": "o1", "key": "\u5e97" * 21}, True),
    ("/v1/similar", {"id": "o1", "key": "\u5e97" * 22}, False),
    ("/v1/similar", {"id": "o1", "key": "\U0001f7e5" * 16}, True),
    ("/v1/similar", {"id": "o1", "key": "\U0001f7e5" * 17}, False),
    ("/v1/similar", {"id": "o1", "key": "a\0"}, False),
    ("/v1/similar", {"id": "o1", "key": "line\n"}, True),
    ("/v1/similar", {"id": "o" * 512}, True),
    ("/v1/similar", {"id": "o" * 513}, False),
    ("/v1/similar", {"id": "\u5e97" * 171}, False),
    ("/v1/similar", {"id": "o1", "filter": {"tags": [""]}}, False),
    ("/v1/similar/batch", {"queries": [{"id": "o1"}, {"id": "o2", "k": 2.0}]}, True),
    ("/v1/similar/batch", {"queries": [{}]}, False),
    ("/v1/fold", {"queries": [{"id": "o1"}, {"x": [1, 2, 3, 4]}], "mode": "folded"}, True),
    ("/v1/fold", {"queries": [{"id": "o1"}], "mode": "embedded", "alias": "latest"}, True),
    ("/v1/fold", {"queries": [{"id": "o1"}]}, False),
    ("/v1/fold", {"queries": [{"id": "o1"}], "mode": "rescored"}, False),
    ("/v1/fold", {"queries": [], "mode": "folded"}, False),
    ("/v1/fold", {"queries": [{"id": "o1", "k": 3}], "mode": "folded"}, False),
    ("/v1/embed", {"objects": [{"id": "o1"}]}, True),
    ("/v1/embed", {"objects": [{"id": "o1", "x": [1, 2, 3, 4]}]}, False),
    ("/v1/embed", {"objects": [{"id": "o1"}], "mode": "folded"}, False),
    ("/v1/embeddings", {"model": "m-query", "input": "a"}, True),
    ("/v1/embeddings", {"model": "m-query", "input": ["a", "b"], "task": "search"}, True),
    ("/v1/embeddings", {"model": "m-query", "input": [[1, 2], [3]], "encoding_format": "base64"}, True),
    ("/v1/embeddings", {"model": "m-query", "input": []}, False),
    ("/v1/embeddings", {"model": "m-query", "input": ""}, False),
    ("/v1/embeddings", {"model": "m-query", "input": ["a", 1]}, False),
    ("/v1/embeddings", {"model": "m-query", "input": [1, -1]}, False),
    ("/v1/embeddings", {"model": "m-query", "input": "a", "encoding_format": "int8"}, False),
    ("/v1/embeddings", {"model": "m-query", "input": "a", "dimensions": 0}, False),
    ("/v1/embeddings", {"input": "a"}, False),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b", {"text": "c"}, {"id": "o1"}]}, True),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"], "top_n": 3.0}, True),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": []}, False),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": [{"text": "c", "id": "o1"}]}, False),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"], "top_n": 0}, False),
    ("/v1/rerank", {"model": "m", "documents": ["b"]}, False),
    ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"], "max_tokens_per_doc": 9}, False),
    ("/v2/rerank", {"model": "m", "query": "a", "documents": ["b"], "max_tokens_per_doc": 9}, True),
    ("/v2/rerank", {"model": "m", "query": "a", "documents": ["b"], "max_tokens_per_doc": 0}, False),
    ("/v2/rerank", {"model": "m", "query": "a", "documents": ["b"], "priority": 0, "top_n": 1}, True),
    ("/v1/similar/batch", {"queries": [{"id": "o1"}, {"id": None}]}, False),
    ("/v1/models/promote", {"version": 24.0}, True),
    ("/v1/models/promote", {"version": -1.0}, False),
    ("/v1/models/promote", {"version": 1.5}, False),
    ("/v1/models/promote", {"version": ""}, False),
    ("/v1/models/promote", {"version": 3, "alias": ""}, False),
    ("/v1/models/rollback", {"to": 54123541937.0}, True),
    ("/v1/models/rollback", {"to": None}, True),
    ("/v1/models/pin", {"alias": "a", "version": 7.0}, True),
    ("/v1/models/pin", {"alias": "a"}, False),
    ("/v1/models/gc", {"dry_run": 1}, False),
]


@pytest.mark.parametrize(("path", "body", "good"), BODIES, ids=lambda one: json.dumps(one)[:60])
def test_the_document_and_the_server_agree(server: Served, path: str, body: Any, good: bool) -> None:
    assert (allows(server, path, body), accepts(server, path, body)) == (good, good)


def test_a_whole_number_written_with_a_point_is_that_number(server: Served) -> None:
    assert len(server.post({"id": "o1", "k": 3.0})[1]["results"]) == 3
    told = server.ask("POST", "/v1/models/promote", {"version": 24.0}, {"Authorization": f"Bearer {TOKEN}"})[
        1
    ]
    assert (told["after"], server.store.done[-1][1]) == (24, 24)
    answers = [
        server.post({"x": {"indices": places, "values": [1, 2]}})[1] for places in ([0, 2], [0.0, 2.0])
    ]
    assert answers[0]["results"] == answers[1]["results"]


ADDRESSES = [
    ({"id": "o1"}, True),
    ({"id": "o1", "k": "3"}, True),
    ({"id": "o1", "k": "0"}, False),
    ({"id": "o1", "key": LONG}, True),
    ({"id": "o1", "key": "\u00fc" * 33}, False),
    ({"id": "o1", "key": "[Filtered]\0"}, False),
    ({"id": "o1", "key": ""}, False),
    ({"id": "o1", "alias": ""}, False),
    ({"id": ""}, False),
    ({"k": "3"}, False),
    ({"id": "o1", "z": "3"}, False),
]


@pytest.mark.parametrize(("parameters", "good"), ADDRESSES)
def test_so_do_the_parameters_of_an_address(server: Served, parameters: dict[str, str], good: bool) -> None:
    described = {
        one["name"]: one for one in server.contract.document["paths"]["/v1/similar"]["get"]["parameters"]
    }
    asked = {name: int(value) if name == "k" else value for name, value in parameters.items()}
    allowed = parameters.keys() <= described.keys() and all(
        name in asked for name, one in described.items() if one["required"]
    )
    for name, value in asked.items():
        if name in described:
            allowed &= jsonschema.Draft202012Validator(described[name]["schema"]).is_valid(value)
    address = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    status = server.ask("GET", f"/v1/similar?{address}")[0]
    assert (allowed, status not in (400, 422)) == (good, good)


TEXT = st.sampled_from(["o1", "", "o" * 65, "\u00fc" * 40, "a\0b", "\u5e97" * 200]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=70
)
NUMBER = st.sampled_from([0, 1, 3, 3.0, 2.5, 1000, 1001, -1, True, "3", None]) | st.integers(-5, 2000)
VECTOR = st.lists(st.floats(-9, 9) | st.integers(-9, 9), max_size=5)
FIELDS = {
    "id": TEXT | st.none(),
    "x": VECTOR | st.none(),
    "views": st.dictionaries(TEXT, VECTOR, max_size=2) | st.none(),
    "k": NUMBER,
    "key": TEXT | st.none(),
    "alias": TEXT | st.none(),
    "filter": st.none()
    | st.fixed_dictionaries({}, optional={"tags": st.lists(TEXT, max_size=2), "z": NUMBER}),
}


@given(st.fixed_dictionaries({}, optional=FIELDS))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_the_document_allows_is_accepted(server: Served, body: dict[str, Any]) -> None:
    if allows(server, "/v1/similar", body):
        assert accepts(server, "/v1/similar", body), body


def test_the_contract_is_that_of_the_document(server: Served) -> None:
    assert Contract(server.ask("GET", "/v1/openapi.json")[1]).document == server.contract.document
