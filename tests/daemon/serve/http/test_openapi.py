"""The document says what the application does."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from daemon.serve.query import QueryError
from tests.daemon.serve.http.contract import Contract
from tests.daemon.serve.http.toy import TOKEN, Served


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    status, answer, _ = served.ask("GET", "/v1/openapi.json")
    assert status == 200
    return dict(answer)


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_route_is_described_and_nothing_else(served: Served, document: dict[str, Any]) -> None:
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert ("/v1/similar", "POST") in described
    for path, method in described:
        status, _, headers = served.ask("PATCH", path)
        assert status == 405, path
        assert method in headers["allow"].split(", ")
        allowed = {(path, name) for name in headers["allow"].split(", ") if name != "HEAD"}
        assert allowed <= described


def test_what_changes_state_asks_for_the_token(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        needs = {method for method, operation in methods.items() if operation.get("security")}
        assert needs == ({"post"} & methods.keys() if path.startswith("/v1/models/") else set())


ALWAYS = {"400", "408", "421", "431", "500", "503"}


def test_what_may_always_happen_is_described_everywhere(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            probe = {"421"} if path in ("/livez", "/readyz", "/startupz") else set()
            assert ALWAYS - probe <= set(operation["responses"]), path


CALLS: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/similar", {"id": "o1", "k": 3}, 200),
    ("GET", "/v1/similar?id=o1", None, 200),
    ("GET", "/v1/similar", None, 422),
    ("POST", "/v1/similar", {"id": "nobody"}, 404),
    ("POST", "/v1/similar", {"x": [1, 2, "a"]}, 422),
    ("POST", "/v1/similar", b"{", 400),
    ("POST", "/v1/similar/batch", {"queries": [{"id": "o1"}, {"id": "nobody"}]}, 200),
    ("POST", "/v1/fold", {"queries": [{"id": "o1"}, {"id": "nobody"}], "mode": "folded"}, 200),
    ("POST", "/v1/fold", {"queries": [{"id": "o1"}]}, 422),
    ("POST", "/v1/fold", {"queries": [{"id": "o1"}], "mode": "embedded", "alias": "nobody"}, 404),
    ("POST", "/v1/embed", {"objects": [{"x": [1, 2, 3, 4]}]}, 200),
    ("POST", "/v1/embed", {"objects": [{"x": {"indices": [1, 3], "values": [1, 2.5]}}]}, 200),
    ("POST", "/v1/embed", {"objects": [{"id": "o1"}] * 257}, 422),
    ("POST", "/v1/impressions", {"impression": "i", "query": "q", "shown": ["a"]}, 403),
    ("POST", "/v1/clicks", {"impression": "i", "object": "a"}, 403),
    ("GET", "/v1/versions", None, 200),
    ("POST", "/v1/models/promote", {"version": 3}, 200),
    ("POST", "/v1/models/promote", {"version": 99}, 409),
    ("POST", "/v1/models/rollback", {}, 200),
    ("POST", "/v1/models/pin", {"alias": "a", "version": None}, 200),
    ("POST", "/v1/models/gc", {}, 200),
    ("GET", "/v1/openapi.json", None, 200),
    ("GET", "/v1/models", None, 200),
    ("GET", "/v1/models/shop-query", None, 404),
    ("GET", "/metrics", None, 200),
    ("GET", "/readyz", None, 503),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), CALLS)
def test_answers_are_as_described(served: Served, method: str, path: str, body: Any, status: int) -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert served.ask(method, path, body, token)[0] == status  # `ask` itself looks into the document


def test_a_store_that_cannot_be_used_is_described(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = QueryError("index_refused", "the store refuses", "", "compare [index] with the store", 502)
    monkeypatch.setattr(served.searcher, "fails", lambda queries: refused)
    for method, path, body in (
        ("GET", "/v1/similar?id=o1", None),
        ("POST", "/v1/similar", {"id": "o1"}),
        ("POST", "/v1/similar/batch", {"queries": [{"id": "o1"}]}),
    ):
        assert served.ask(method, path, body)[0] == 502


AT_LEAST = "X-Tripletd-At-Least"
BODIES: dict[tuple[str, str], tuple[str, Any]] = {
    ("GET", "/v1/similar"): ("/v1/similar?id=o1", None),
    ("POST", "/v1/similar"): ("/v1/similar", {"id": "o1"}),
    ("POST", "/v1/similar/batch"): ("/v1/similar/batch", {"queries": [{"id": "o1"}]}),
    ("POST", "/v1/fold"): ("/v1/fold", {"queries": [{"id": "o1"}], "mode": "folded"}),
    ("POST", "/v1/embed"): ("/v1/embed", {"objects": [{"x": [1, 2, 3, 4]}]}),
    ("GET", "/v1/versions"): ("/v1/versions", None),
}


@pytest.mark.parametrize("operation", BODIES, ids=" ".join)
def test_a_state_is_asked_for_where_the_document_says_so_and_nowhere_else(
    served: Served, document: dict[str, Any], operation: tuple[str, str]
) -> None:
    (method, path), (target, body) = operation, BODIES[operation]
    described = document["paths"][path][method.lower()]
    headers = [one for one in described.get("parameters", ()) if one["in"] == "header"]
    assert [one["name"] for one in headers] == [AT_LEAST] * path.startswith("/v1/similar")

    def asked(value: str) -> tuple[int, str]:
        status, answer, got = served.ask(method, target, body, {AT_LEAST: value})
        if status == 503:
            assert int(got["Retry-After"]) > 0
        return status, answer.get("error", {}).get("code", "") if isinstance(answer, dict) else ""

    now = "0123456789abcdef@1234"  # as the toy's answers say
    for value in (
        now,
        "12",
        "0123456789abcdef@1235",
        "another@1",
        "@1",
        "13",
        "12+7",
        "a@",
        "é@1",
        "",
        "9" * 19,
    ):
        if not headers:
            assert asked(value.encode().decode("latin-1"))[0] == 200
            continue
        taken = re.search(headers[0]["schema"]["pattern"], value) is not None
        assert taken == (value not in ("12+7", "a@", "é@1", "", "9" * 19))
        expected = (200, "") if value in (now, "12") else (503, "behind") if taken else (422, "bad_value")
        assert asked(value.encode().decode("latin-1")) == expected, value


def test_where_every_answer_names_its_version_is_described(document: dict[str, Any]) -> None:
    """In the body, which clients of several servers send back; in a header where the body is another's."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            good = operation["responses"].get("200", {})
            named = "Tripletd-Version" in good.get("headers", {})
            assert named == (path in ("/v1/embeddings", "/v1/rerank", "/v2/rerank")), path
    for name in ("SimilarAnswer", "BatchAnswer", "FoldAnswer", "EmbedAnswer"):
        assert {"version", "line", "records"} <= set(document["components"]["schemas"][name]["required"])


def test_answers_that_are_not_described_are_noticed(document: dict[str, Any]) -> None:
    contract = Contract(document)
    kind = {"content-type": "application/json"}
    error = {"error": {"code": "a", "message": "b", "field": None, "remedy": "c"}}
    contract.check("POST", "/v1/similar", 422, kind, json.dumps(error))
    hits = {"results": [], "exact": True, "version": "1", "base": 1, "line": None, "records": 1, "formed": 1}
    answer = {**hits, "watermark": None, "alias": "latest", "took_ms": 1}
    contract.check("POST", "/v1/similar", 200, kind, json.dumps(answer))
    wrong: list[tuple[str, str, int, dict[str, str], Any]] = [
        ("POST", "/v1/similar", 429, kind, error),
        ("POST", "/v1/similar", 503, kind, error),  # without Retry-After
        ("POST", "/v1/similar", 200, kind | {"X-Tripletd-State": "12"}, answer),
        ("POST", "/v1/similar", 422, kind, {"error": {**error["error"], "more": 1}}),
        ("POST", "/v1/similar", 422, {"content-type": "text/plain"}, error),
        ("GET", "/v1/nowhere", 200, kind, {}),
        ("GET", "/v1/nowhere", 404, kind, {"detail": "Not Found"}),
        *(
            (
                "POST",
                "/v1/similar",
                200,
                kind,
                {key: value for key, value in answer.items() if key != left_out},
            )
            for left_out in answer
        ),
    ]
    for method, path, status, headers, body in wrong:
        with pytest.raises((AssertionError, jsonschema.ValidationError)):
            contract.check(method, path, status, headers, json.dumps(body))


def test_the_described_request_takes_good_bodies_and_no_bad_ones(document: dict[str, Any]) -> None:
    check = Contract(document).checker("#/components/schemas/SimilarRequest").is_valid
    good: list[Any] = [
        {"id": "a"},
        {"x": [1, 2.5]},
        {"x": {"indices": [1], "values": [2]}},
        {"views": {"text": [1]}, "k": 3, "alias": "latest", "filter": {"tags": ["red"]}},
        {"id": "a", "interleave": "stable,latest", "explore": 1, "alias": None},
    ]
    bad: list[Any] = [
        {"id": 3},
        {"x": []},
        {"x": {"indices": [1]}},
        {"k": 0},
        {"id": "a", "z": 1},
        {"id": "a", "interleave": "stable"},
        {"id": "a", "interleave": "stable,latest", "alias": "stable"},
        {"id": "a", "explore": 2},
        [],
        {"k": 2000},
    ]
    assert [check(body) for body in good] == [True] * len(good)
    assert [check(body) for body in bad] == [False] * len(bad)
