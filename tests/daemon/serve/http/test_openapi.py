"""The document says what the application does."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

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
        needs = [bool(operation.get("security")) for operation in methods.values()]
        assert needs == [path.startswith("/v1/models/")] * len(needs)


def checker(document: dict[str, Any], place: str) -> jsonschema.Draft202012Validator:
    """For the part of the document at a place such as `#/components/schemas/Hit`."""
    registry: Any = Registry().with_resource("urn:document", Resource(document, DRAFT202012))
    return jsonschema.Draft202012Validator({"$ref": f"urn:document{place}"}, registry=registry)


CALLS: list[tuple[str, str, Any]] = [
    ("post", "/v1/similar", {"id": "o1", "k": 3}),
    ("get", "/v1/similar", None),
    ("post", "/v1/similar", {"id": "nobody"}),
    ("post", "/v1/similar", {"x": [1, 2, "a"]}),
    ("post", "/v1/similar", b"{"),
    ("post", "/v1/similar/batch", {"queries": [{"id": "o1"}, {"id": "nobody"}]}),
    ("get", "/v1/versions", None),
    ("post", "/v1/models/promote", {"version": 3}),
    ("post", "/v1/models/promote", {"version": 99}),
    ("post", "/v1/models/rollback", {}),
    ("post", "/v1/models/pin", {"alias": "a", "version": None}),
    ("post", "/v1/models/gc", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_answers_are_as_described(
    served: Served, document: dict[str, Any], method: str, path: str, body: Any
) -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    status, answer, _ = served.ask(method.upper(), path, body, token)
    content = document["paths"][path][method]["responses"][str(status)]["content"]
    checker(document, content["application/json"]["schema"]["$ref"]).validate(answer)


def test_the_described_request_takes_good_bodies_and_no_bad_ones(document: dict[str, Any]) -> None:
    check = checker(document, "#/components/schemas/SimilarRequest").is_valid
    good: list[Any] = [
        {"id": "a"},
        {"x": [1, 2.5]},
        {"x": {"indices": [1], "values": [2]}},
        {"views": {"text": [1]}, "k": 3, "alias": "latest", "filter": {"tags": ["red"]}},
    ]
    bad: list[Any] = [
        {"id": 3},
        {"x": []},
        {"x": {"indices": [1]}},
        {"k": 0},
        {"id": "a", "z": 1},
        [],
        {"k": 2000},
    ]
    assert [check(body) for body in good] == [True] * len(good)
    assert [check(body) for body in bad] == [False] * len(bad)
