"""Anything at all is answered, and never with a bug."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.daemon.serve.http.toy import Served

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KNOWN = (
    "id",
    "x",
    "views",
    "k",
    "alias",
    "filter",
    "include",
    "exclude",
    "tags",
    "queries",
    "indices",
    "values",
)

names = st.sampled_from(KNOWN) | st.text(max_size=5)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["o1", "latest"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=4),
    max_leaves=15,
)
bodies = st.dictionaries(st.sampled_from(KNOWN), values, max_size=4)


def fine(served: Served, status: int, answer: Any) -> None:
    assert status in (200, 400, 404, 422)
    if status != 200:
        assert isinstance(answer["error"]["field"], str)
    assert served.metric("tripletd_http_bugs_total") == 0


@QUICK
@given(body=bodies, path=st.sampled_from(["/v1/similar", "/v1/similar/batch", "/v1/fold", "/v1/embed"]))
def test_any_json_is_answered(served: Served, body: Any, path: str) -> None:
    fine(served, *served.post(json.dumps(body), path))


@QUICK
@given(body=st.binary(max_size=200))
def test_any_bytes_are_answered(served: Served, body: bytes) -> None:
    fine(served, *served.post(body))


@QUICK
@given(query=st.text(st.characters(codec="ascii", exclude_characters="\r\n #\x00"), max_size=50))
def test_any_parameters_are_answered(served: Served, query: str) -> None:
    printable = "".join(one for one in query if one.isprintable())
    fine(served, *served.ask("GET", f"/v1/similar?{printable}")[:2])


@QUICK
@given(
    start=st.sampled_from([b"", b"GET /livez HTTP/1.1\r\n", b"POST /v1/similar HTTP/1.1\r\n"]),
    raw=st.binary(max_size=200),
)
def test_any_bytes_on_the_wire_end_in_an_answer_or_in_silence(
    served: Served, start: bytes, raw: bytes
) -> None:
    with served.connect() as connection:
        connection.sendall(start + raw + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert answer == b"" or answer[:10] in (b"HTTP/1.1 2", b"HTTP/1.1 4")
    assert served.metric("tripletd_http_bugs_total") == 0


@pytest.mark.parametrize("path", ["/v1/similar", "/v1/similar/batch", "/v1/fold", "/v1/embed"])
def test_every_prefix_of_a_good_body_is_bad_json(served: Served, path: str) -> None:
    body = json.dumps({"x": [1, 2.5e0, -3, 4], "k": 3, "filter": {"tags": ["a"]}}).encode()
    for length in range(len(body)):
        assert served.post(body[:length], path)[0] == 400
