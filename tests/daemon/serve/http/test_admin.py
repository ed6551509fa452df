"""Who may change what is served, and that the token shows nowhere."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from daemon.runtime import logs
from daemon.runtime.doors import Gate, digest_of
from daemon.serve.http.guard import TokenGuard
from tests.daemon.serve.http.toy import TOKEN, Served, running

PATHS = ("/v1/models/promote", "/v1/models/rollback", "/v1/models/pin", "/v1/models/gc")
RIGHT = {"Authorization": f"Bearer {TOKEN}"}


def change(served: Served, path: str, body: Any, headers: dict[str, str] = RIGHT) -> tuple[int, Any]:
    return served.ask("POST", path, body, headers)[:2]


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Every log line of this process since the last look, also those of uvicorn."""
    logs.configure("debug", "json", "serve")
    return lambda: capfd.readouterr().err


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_token"),
        ({"Authorization": ""}, "wrong_token"),
        ({"Authorization": "Bearer"}, "wrong_token"),
        ({"Authorization": "Bearer "}, "wrong_token"),
        ({"Authorization": f"Basic {TOKEN}"}, "wrong_token"),
        ({"Authorization": TOKEN}, "wrong_token"),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, "wrong_token"),
        ({"Authorization": f"Bearer {TOKEN}x"}, "wrong_token"),
        ({"Authorization": f"Bearer {TOKEN.upper()}"}, "wrong_token"),
        ({"Authorization": "Bearer \xff\xfe"}, "wrong_token"),
    ],
)
def test_without_the_token_nothing_happens(
    served: Served, path: str, headers: dict[str, str], code: str
) -> None:
    for body in ({"version": 3, "alias": "stable"}, b"not json"):
        status, answer, sent = served.ask("POST", path, body, headers)
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (401, code, "Authorization")
        assert sent["www-authenticate"] == "Bearer"
    assert served.store.done == []


def test_two_tokens_are_not_one(served: Served) -> None:
    with served.connect() as connection:
        auth = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
        connection.sendall(
            b"POST /v1/models/gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
            + auth
            + auth
            + b"\r\n{}"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_the_token_in_the_address_is_not_looked_at(served: Served) -> None:
    assert change(served, f"/v1/models/gc?token={TOKEN}&access_token={TOKEN}", {}, {})[0] == 401


@pytest.mark.parametrize("path", PATHS)
def test_without_a_configured_token_nobody_is_let_in(path: str) -> None:
    with running(token="") as served:
        for headers in ({}, {"Authorization": "Bearer "}, RIGHT):
            status, answer = change(served, path, {}, headers)
            assert (status, answer["error"]["code"]) == (403, "no_token_configured")
        assert served.store.done == []


def test_with_the_token_each_change_is_made_and_told() -> None:
    with running() as served:
        status, answer = change(served, PATHS[0], {"version": 7})
        assert (status, answer["kind"], answer["after"], answer["entry"]) == (200, "PROMOTE", 7, 5)
        assert change(served, PATHS[0], {"version": "best", "alias": "canary", "dry_run": True})[0] == 200
        assert change(served, PATHS[1], {"alias": "stable", "reason": "worse"})[0] == 200
        assert change(served, PATHS[2], {"alias": "keep", "version": 4})[0] == 200
        assert change(served, PATHS[2], {"alias": "keep", "version": None})[0] == 200
        assert change(served, PATHS[3], {"dry_run": True})[1]["gone"] == [1]
        lower = {"authorization": f"bearer {TOKEN}"}
        assert change(served, PATHS[3], {}, lower)[0] == 200
        said = "asked for over HTTP"
        assert served.store.done == [
            ("promote", 7, "stable", said, False),
            ("promote", "best", "canary", said, True),
            ("rollback", None, "stable", "worse", False),
            ("pin", 4, "keep", said, False),
            ("pin", None, "keep", said, False),
            ("gc", True),
            ("gc", False),
        ]


def test_what_may_not_be_done_is_409_with_the_remedy(served: Served) -> None:
    status, answer = change(served, PATHS[0], {"version": 99})
    assert status == 409
    assert answer["error"]["message"] == "there is no version 99"
    assert answer["error"]["remedy"] == "promote one that is there"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (PATHS[0], {}, "version"),
        (PATHS[0], {"version": 3, "force": True}, "force"),
        (PATHS[0], {"version": 1.5}, "version"),
        (PATHS[0], {"version": True}, "version"),
        (PATHS[0], {"version": 3, "alias": ""}, "alias"),
        (PATHS[0], {"version": 3, "alias": "a" * 65}, "alias"),
        (PATHS[0], {"version": 3, "reason": "r" * 501}, "reason"),
        (PATHS[1], {"to": [3]}, "to"),
        (PATHS[2], {"alias": "x"}, "version"),
        (PATHS[3], {"dry_run": 1}, "dry_run"),
        (PATHS[3], {"keep": 0}, "keep"),
        (PATHS[3], [], "body"),
    ],
)
def test_bad_changes_are_named(served: Served, path: str, body: Any, field: str) -> None:
    status, answer = change(served, path, body)
    assert (status, answer["error"]["field"]) == (422, field)
    assert served.store.done == []


def test_the_token_is_compared_in_constant_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = hmac.compare_digest

    def spy(given: bytes, right: bytes) -> bool:
        compared.append((given, right))
        return real(given, right)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    change(served, PATHS[3], {}, {"Authorization": "Bearer wrong"})
    assert compared == [(digest_of(b"wrong"), digest_of(TOKEN.encode()))]


def test_the_token_is_in_no_log_line_no_metric_and_no_answer(log: Callable[[], str]) -> None:
    with running() as served:
        told = []
        served.searcher.fails = lambda queries: RuntimeError("a bug")
        for headers in (RIGHT, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": f"Bearer {TOKEN}x"}):
            for path in (*PATHS, "/v1/similar", "/nowhere", f"/{TOKEN}", f"/v1/similar?id=o1&k={TOKEN}"):
                told.append(served.ask("POST", path, {"id": "o1"}, headers)[1])
        with served.connect() as connection:
            connection.sendall(b"NONSENSE " + TOKEN.encode() + b"\r\n\r\n")
            connection.recv(1000)
        told.append(served.ask("GET", "/metrics")[1])
        told.append(repr(TokenGuard(Gate(single=TOKEN))))
    lines = log()
    assert "a bug" in lines, "the log was not read"
    assert TOKEN not in lines
    assert TOKEN not in json.dumps(told)


def test_a_bug_is_in_the_log_under_the_id_that_was_answered(log: Callable[[], str]) -> None:
    with running() as served:
        served.searcher.fails = lambda queries: ZeroDivisionError("inside")
        status, answer = served.post({"id": "o1"})
    name = answer["error"]["message"].rsplit(" ", 1)[1]
    (line,) = [json.loads(one) for one in log().splitlines() if name in one]
    assert status == 500
    assert line["level"] == "error"
    assert "ZeroDivisionError: inside" in line["exception"]
