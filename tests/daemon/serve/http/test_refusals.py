"""Whatever is sent, the answer is a 4xx that names the field, and the next question is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.daemon.serve.http.toy import Served, running

SIMILAR, BATCH = "/v1/similar", "/v1/similar/batch"
GOOD = b'{"x": [1, 2, 3, 4]}'

BODIES: list[tuple[str, bytes, int, str, str]] = [
    (SIMILAR, b"", 400, "bad_json", "body"),
    (SIMILAR, b"{", 400, "bad_json", "body"),
    (SIMILAR, GOOD + GOOD, 400, "bad_json", "body"),
    (SIMILAR, b"\xff\xfe{}", 400, "bad_json", "body"),
    (SIMILAR, b'{"id": "\xff"}', 400, "bad_json", "body"),
    (SIMILAR, b'{"id": "\\ud800"}', 400, "bad_json", "body"),
    (SIMILAR, b"\xef\xbb\xbf" + GOOD, 400, "bad_json", "body"),
    (SIMILAR, b'{"x": ' + b"[" * 100_000, 400, "bad_json", "body"),
    (SIMILAR, b'{"x":' * 100_000, 400, "bad_json", "body"),
    (SIMILAR, b'{"x": ' + b"[" * 150 + b"]" * 150 + b"}", 422, "bad_value", "x[0]"),
    (SIMILAR, b"[]", 422, "bad_value", "body"),
    (SIMILAR, b"null", 422, "bad_value", "body"),
    (SIMILAR, b"3", 422, "bad_value", "body"),
    (SIMILAR, b"{}", 422, "bad_value", "body"),
    (SIMILAR, b'{"id": "o1", "x": [1]}', 422, "bad_value", "body"),
    (SIMILAR, b'{"id": 7}', 422, "bad_value", "id"),
    (SIMILAR, b'{"id": ""}', 422, "bad_value", "id"),
    (SIMILAR, b'{"id": "' + b"a" * 513 + b'"}', 422, "bad_value", "id"),
    (SIMILAR, b'{"id": "' + "é".encode() * 257 + b'"}', 422, "bad_value", "id"),
    (SIMILAR, b'{"id": {"$ne": null}}', 422, "bad_value", "id"),
    (SIMILAR, b'{"id": "o1", "kk": 3}', 422, "unknown_field", "kk"),
    (SIMILAR, b'{"id": "o1", "__proto__": {}}', 422, "unknown_field", "__proto__"),
    (SIMILAR, b'{"id": "o1", "k": 0}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": -1}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": 1001}', 422, "too_many", "k"),
    (SIMILAR, b'{"id": "o1", "k": 1' + b"0" * 300 + b"}", 422, "too_many", "k"),
    (SIMILAR, b'{"id": "o1", "k": 1' + b"0" * 9000 + b"}", 400, "bad_json", "body"),
    (SIMILAR, b'{"id": "o1", "k": 1e999}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": 10.5}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": true}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": "10"}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "k": null}', 422, "bad_value", "k"),
    (SIMILAR, b'{"id": "o1", "alias": "best"}', 404, "unknown_alias", "alias"),
    (SIMILAR, b'{"id": "o1", "alias": "../../etc/passwd"}', 404, "unknown_alias", "alias"),
    (SIMILAR, b'{"id": "o1", "alias": "a\\u0000b"}', 404, "unknown_alias", "alias"),
    (SIMILAR, b'{"id": "o1", "alias": ["latest"]}', 422, "bad_value", "alias"),
    (SIMILAR, b'{"id": "o1", "alias": "' + b"a" * 65 + b'"}', 422, "bad_value", "alias"),
    (SIMILAR, b'{"x": []}', 422, "bad_value", "x"),
    (SIMILAR, b'{"x": [1, 2, 3]}', 422, "wrong_dim", "x"),
    (SIMILAR, b'{"x": [1, NaN, 3, 4]}', 422, "bad_value", "x[1]"),
    (SIMILAR, b'{"x": [1, 2, Infinity, 4]}', 422, "bad_value", "x[2]"),
    (SIMILAR, b'{"x": [1, 2, 3, -Infinity]}', 422, "bad_value", "x[3]"),
    (SIMILAR, b'{"x": [1e999, 2, 3, 4]}', 422, "bad_value", "x[0]"),
    (SIMILAR, b'{"x": [1, "2", 3, 4]}', 422, "bad_value", "x[1]"),
    (SIMILAR, b'{"x": [1, true, 3, 4]}', 422, "bad_value", "x[1]"),
    (SIMILAR, b'{"x": [1, null, 3, 4]}', 422, "bad_value", "x[1]"),
    (SIMILAR, b'{"x": "1,2,3,4"}', 422, "bad_value", "x"),
    (SIMILAR, b'{"x": [' + b'"",' * 300_000 + b'""]}', 422, "bad_value", "x[0]"),
    (SIMILAR, b'{"x": [' + b"0," * 1_000_000 + b"0]}", 422, "bad_value", "x"),
    (SIMILAR, b'{"x": {"indices": [0]}}', 422, "missing_field", "x.values"),
    (SIMILAR, b'{"x": {"indices": [0, 1], "values": [1]}}', 422, "bad_value", "x"),
    (SIMILAR, b'{"x": {"indices": [1, 0], "values": [1, 2]}}', 422, "bad_value", "x"),
    (SIMILAR, b'{"x": {"indices": [1, 1], "values": [1, 2]}}', 422, "bad_value", "x"),
    (SIMILAR, b'{"x": {"indices": [-1], "values": [1]}}', 422, "bad_value", "x.indices[0]"),
    (SIMILAR, b'{"x": {"indices": [2147483648], "values": [1]}}', 422, "bad_value", "x.indices[0]"),
    (SIMILAR, b'{"x": {"indices": [0.5], "values": [1]}}', 422, "bad_value", "x.indices[0]"),
    (SIMILAR, b'{"x": {"indices": [0], "values": [NaN]}}', 422, "bad_value", "x.values[0]"),
    (SIMILAR, b'{"x": {"indices": [0], "values": [1], "dim": 4}}', 422, "unknown_field", "x.dim"),
    (SIMILAR, b'{"views": {}}', 422, "bad_value", "views"),
    (SIMILAR, b'{"views": {"text": [1, "a"]}}', 422, "bad_value", "views.text[1]"),
    (SIMILAR, b'{"views": {"": [1]}}', 422, "bad_value", "views"),
    (SIMILAR, b'{"views": [1]}', 422, "bad_value", "views"),
    (SIMILAR, b'{"id": "o1", "filter": {"include": "o1"}}', 422, "bad_value", "filter.include"),
    (SIMILAR, b'{"id": "o1", "filter": {"exclude": ["a", 7]}}', 422, "bad_value", "filter.exclude[1]"),
    (SIMILAR, b'{"id": "o1", "filter": {"tags": null}}', 422, "bad_value", "filter.tags"),
    (SIMILAR, b'{"id": "o1", "filter": {"where": "1=1"}}', 422, "unknown_field", "filter.where"),
    (
        SIMILAR,
        b'{"id": "o1", "filter": {"include": [' + b'"a",' * 10_000 + b'"a"]}}',
        422,
        "bad_value",
        "filter.include",
    ),
    (SIMILAR, b'{"id": "o1", "key": ""}', 422, "bad_value", "key"),
    (SIMILAR, b'{"id": "o1", "key": "' + b"k" * 65 + b'"}', 422, "bad_value", "key"),
    (SIMILAR, b'{"id": "o1", "key": "a\\u0000"}', 422, "bad_value", "key"),
    (BATCH, b'{"queries": [{"id": "o1", "key": 3}]}', 422, "bad_value", "queries[0].key"),
    (BATCH, b'{"queries": []}', 422, "bad_value", "queries"),
    (BATCH, b"{}", 422, "missing_field", "queries"),
    (BATCH, b'{"queries": {"id": "o1"}}', 422, "bad_value", "queries"),
    (BATCH, b'{"queries": [{"id": "o1"}, {"id": 3}]}', 422, "bad_value", "queries[1].id"),
    (BATCH, b'{"queries": [{"id": "o1"}, {}]}', 422, "bad_value", "queries[1]"),
    (BATCH, b'{"queries": [{"id": "o1", "k": 5000}]}', 422, "too_many", "queries[0].k"),
    (BATCH, b'{"queries": [{"id": "o1", "alias": "latest"}]}', 422, "unknown_field", "queries[0].alias"),
    (BATCH, b'{"queries": [' + b'{"id":"o1"},' * 256 + b'{"id":"o1"}]}', 422, "too_many", "queries"),
    (BATCH, b'{"queries": [' + b'{"id":"o1","k":1000},' * 30 + b'{"id":"o1"}]}', 422, "too_many", "queries"),
    (BATCH, b'{"queries": [{"id": "o1"}], "alias": "x"}', 404, "unknown_alias", "alias"),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "field"),
    BODIES,
    ids=[f"{n}-{case[3]}-{case[4]}" for n, case in enumerate(BODIES)],
)
def test_a_bad_body_is_named(
    served: Served, path: str, body: bytes, status: int, code: str, field: str
) -> None:
    passes = len(served.searcher.passes)
    found, answer, headers = served.ask("POST", path, body)
    assert (found, answer["error"]["code"], answer["error"]["field"]) == (status, code, field)
    assert set(answer["error"]) == {"code", "message", "field", "remedy"}
    assert answer["error"]["message"]
    assert headers["content-type"] == "application/json"
    assert "Traceback" not in json.dumps(answer)
    assert code == "wrong_dim" or len(served.searcher.passes) == passes, "it reached the search"
    assert served.post(GOOD)[0] == 200


@pytest.mark.parametrize("name", ["filter", "x", "views", "kk"])
def test_what_only_a_body_may_hold_is_no_parameter(served: Served, name: str) -> None:
    status, answer, _ = served.ask("GET", f"/v1/similar?id=o1&{name}=1")
    error = answer["error"]
    assert (status, error["code"], error["field"]) == (422, "unknown_field", name)
    assert error["remedy"] == "id, k, key, alias, interleave, explore, explain are known"


def test_many_unknown_fields_are_counted_not_listed(served: Served) -> None:
    body = json.dumps({"id": "o1"} | {f"f{n}": 0 for n in range(100_000)})
    status, answer = served.post(body)
    assert status == 422
    assert answer["error"]["message"] == "100000 things are wrong"


def test_a_batch_of_hundreds_of_thousands_is_not_looked_at_to_its_end(served: Served) -> None:
    questions = [{"id": "o1"}] * 20_000 + [{"k": 0}] + [{"id": "o1"}] * 200_000
    status, answer = served.post({"queries": questions}, BATCH)
    assert (status, answer["error"]["field"]) == (422, "queries"), (
        "the bad question in its middle was reached"
    )


def test_what_was_sent_is_not_repeated(served: Served) -> None:
    for body in ({"id": "o1", "k": "secret-7"}, {"x": ["secret-7"]}, {"id": {"a": "secret-7"}}):
        assert "secret-7" not in json.dumps(served.post(body)[1])
    long = {"id": "o1", "f" * 100_000: 1}
    assert len(json.dumps(served.post(long)[1])) < 1000


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 422, "body"),
        ("id=", 422, "id"),
        ("id=o1&k=0", 422, "k"),
        ("id=o1&k=x", 422, "k"),
        ("id=o1&k=1e3", 422, "k"),
        ("id=o1&k=99999999999999999999", 422, "k"),
        ("id=o1&id=o2", 422, "id"),
        ("id=o1&x=1", 422, "x"),
        ("id=o1&alias=nobody", 404, "alias"),
        ("id=nobody", 404, "id"),
        ("id=%ff", 404, "id"),
        ("id=%00", 404, "id"),
        ("id=o1&filter[include]=a", 422, "filter[include]"),
        ("k=3", 422, "body"),
    ],
)
def test_bad_parameters_are_named(served: Served, query: str, status: int, field: str) -> None:
    found, answer, _ = served.ask("GET", f"{SIMILAR}?{query}")
    assert (found, answer["error"]["field"]) == (status, field)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/../../etc/passwd",
        "/v1/../../../etc/passwd",
        "/v1/similar/",
        "/v1/similar/../../x",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/%00",
        "/v1/page/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
        "/v2/models/promote/../gc",
        "/v1/SIMILAR",
        pytest.param("/" + "a" * 20_000, id="long"),
    ],
)
def test_a_path_leads_nowhere_but_to_a_route(served: Served, path: str) -> None:
    status, answer, _ = served.ask("GET", path)
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (404, "not_found", "path")


def test_what_follows_models_is_the_name_of_one_and_no_path(served: Served) -> None:
    status, answer, _ = served.ask("GET", "/v1/models/promote/../gc")
    assert (status, answer["error"]["code"]) == (404, "not_configured")
    assert served.ask("POST", "/v1/models/promote/../gc", b"{}")[0] == 405


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", SIMILAR, "GET, HEAD, POST"),
        ("PUT", SIMILAR, "GET, HEAD, POST"),
        ("TRACE", SIMILAR, "GET, HEAD, POST"),
        ("OPTIONS", SIMILAR, "GET, HEAD, POST"),
        ("GET", BATCH, "POST"),
        ("GET", "/v1/models/promote", "POST"),
        ("GET", "/v1/models/gc", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("POST", "/v1/versions", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(served: Served, method: str, path: str, allowed: str) -> None:
    status, answer, headers = served.ask(method, path)
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (
        405,
        "method_not_allowed",
        "method",
    )
    assert sorted(headers["allow"].split(", ")) == sorted(allowed.split(", "))


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, gzip"])
def test_a_compressed_body_is_refused_before_it_is_read(served: Served, coding: str) -> None:
    status, answer, _ = served.ask("POST", SIMILAR, GOOD, {"Content-Encoding": coding})
    assert (status, answer["error"]["field"]) == (415, "Content-Encoding")


def test_the_limits_are_those_of_the_settings() -> None:
    from daemon.serve.http import HttpLimits

    with running(HttpLimits(k_max=3, batch_max=2, results_max=5)) as served:

        def error(body: Any, path: str) -> str:
            return str(served.post(body, path)[1]["error"]["field"])

        assert served.post({"id": "o1", "k": 3})[0] == 200
        assert error({"id": "o1", "k": 4}, SIMILAR) == "k"
        assert error({"queries": [{"id": "o1", "k": 1}] * 3}, BATCH) == "queries"
        assert error({"queries": [{"id": "o1", "k": 3}] * 2}, BATCH) == "queries"
        assert served.post({"queries": [{"id": "o1", "k": 2}] * 2}, BATCH)[0] == 200
        document = served.ask("GET", "/v1/openapi.json")[1]
        assert document["components"]["schemas"]["Question"]["properties"]["k"]["maximum"] == 3
        assert document["components"]["schemas"]["BatchRequest"]["properties"]["queries"]["maxItems"] == 2
