"""A running `tripletd serve` answers as its own OpenAPI document says, by the names it was given alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from daemon.exits import EX_OK
from tests.daemon.serve.http.contract import Contract
from tests.daemon.serve.test_role import Place, Role
from tests.harness.waiting import until

TOKEN = "correct-horse-battery-staple"
NAME = "tripletd.example.org"
VECTOR = [0.5, -1, 0, 2, 0, 0.25]
CALLS: list[tuple[str, str, Any, int]] = [
    ("GET", "/v1/versions", None, 200),
    ("GET", "/v1/similar?id=o3&k=2&alias=latest", None, 200),
    ("GET", "/v1/similar?id=nobody", None, 404),
    ("GET", "/v1/similar", None, 422),
    ("POST", "/v1/similar", {"x": VECTOR, "filter": {"exclude": ["o1"]}}, 200),
    ("POST", "/v1/similar", {"views": {"x": {"indices": [1, 4], "values": [1, 2]}}}, 422),
    ("POST", "/v1/similar", {"x": VECTOR[1:]}, 422),
    ("POST", "/v1/similar", {"id": "o3", "alias": "nobody"}, 404),
    ("POST", "/v1/similar", "{", 400),
    ("POST", "/v1/similar/batch", {"queries": [{"id": "o3"}, {"id": "nobody"}, {"x": VECTOR}]}, 200),
    ("POST", "/v1/fold", {"queries": [{"id": "o3"}, {"id": "nobody"}, {"x": VECTOR}], "mode": "folded"}, 200),
    ("POST", "/v1/fold", {"queries": [{"x": VECTOR[1:]}, {"x": VECTOR}], "mode": "embedded"}, 200),
    ("POST", "/v1/fold", {"queries": [{"id": "o3"}], "mode": "embedded", "alias": "latest"}, 422),
    ("POST", "/v1/fold", {"queries": [{"id": "o3"}], "mode": "folded", "alias": "latest"}, 200),
    ("POST", "/v1/embed", {"objects": [{"id": "o3"}, {"views": {"x": VECTOR}}]}, 200),
    ("POST", "/v1/models/promote", {"version": "latest"}, 200),
    ("POST", "/v1/models/promote", {"version": 99}, 404),
    ("POST", "/v1/models/promote", {"version": 0, "alias": "latest"}, 409),
    ("POST", "/v1/models/rollback", {"dry_run": True}, 200),
    ("POST", "/v1/models/pin", {"alias": "launch", "version": 0}, 200),
    ("POST", "/v1/models/gc", {"dry_run": True}, 200),
    ("POST", "/v1/models/gc", {"dry_run": 1}, 422),
    ("GET", "/livez", None, 200),
    ("GET", "/readyz", None, 200),
    ("GET", "/startupz", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/v1/nothing", None, 404),
]


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    place = Place(Path(tmp_path_factory.mktemp("described")))
    place.feed(40, seed=1)
    place.learn()
    role = place.start("serve", "--set", f"http.hosts={NAME}", env={"TRIPLETD_HTTP__TOKEN": TOKEN})
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    until(lambda: role.get("/v1/similar?id=o3&alias=latest")[0] == 200, role.said)
    yield role
    assert role.stop() == EX_OK
    place.end()


def asked(role: Role, method: str, path: str, body: Any, **headers: str) -> tuple[int, Message, str]:
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    question = urllib.request.Request(role.url() + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(question, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_every_answer_is_as_described(role: Role) -> None:
    contract = Contract(role.get("/v1/openapi.json")[1])
    for method, path, body, status in CALLS:
        found, headers, text = asked(role, method, path, body, Authorization=f"Bearer {TOKEN}")
        assert found == status, (path, text)
        contract.check(method, path, found, headers, text)
    assert "Traceback" not in role.said(), role.said()


def test_it_is_asked_by_the_names_it_was_given(role: Role) -> None:
    contract = Contract(role.get("/v1/openapi.json")[1])
    for host, status in ((NAME, 200), ("localhost:1", 200), ("rebound.example.com", 421)):
        for path in ("/v1/similar?id=o3", "/metrics"):
            found, headers, text = asked(role, "GET", path, None, Host=host)
            assert found == status, host
            contract.check("GET", path, found, headers, text)
    assert asked(role, "GET", "/", None, Host="rebound.example.com")[0] == 421
    assert asked(role, "GET", "/livez", None, Host="rebound.example.com")[0] == 200
