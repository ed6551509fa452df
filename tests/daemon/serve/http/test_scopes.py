"""Which token opens which route, for which keys; and that none is told to anybody."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from daemon.runtime import logs
from daemon.runtime.doors import SCOPES, Gate, TokenFile, add_token, remove_token
from daemon.serve.http import Writes
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from tests.daemon.serve.http.test_writes import CLICK, LIST, Kept
from tests.daemon.serve.http.toy import Served, running

ROUTES: list[tuple[str, str, Any, str | None]] = [
    ("GET", "/v1/similar?id=o1", None, "ask"),
    ("POST", "/v1/similar", {"id": "o1"}, "ask"),
    ("POST", "/v1/similar/batch", {"queries": [{"id": "o1"}]}, "ask"),
    ("POST", "/v1/fold", {"queries": [{"id": "o1"}], "mode": "folded"}, "ask"),
    ("POST", "/v1/embed", {"objects": [{"id": "o1"}]}, "ask"),
    ("GET", "/v1/versions", None, "ask"),
    ("GET", "/v1/openapi.json", None, "ask"),
    ("POST", "/v1/embeddings", {"model": "shop-doc", "input": "a"}, "ask"),
    ("POST", "/v2/rerank", {"model": "shop", "query": "a", "documents": ["b"]}, "ask"),
    ("GET", "/v1/models", None, "ask"),
    ("GET", "/v1/models/shop-query", None, "ask"),
    ("POST", "/v1/impressions", LIST, "click"),
    ("POST", "/v1/clicks", CLICK, "click"),
    ("POST", "/v1/models/promote", {"version": 3}, "promote"),
    ("POST", "/v1/models/rollback", {}, "promote"),
    ("POST", "/v1/models/pin", {"alias": "a", "version": 3}, "promote"),
    ("POST", "/v1/models/gc", {"dry_run": True}, "promote"),
    ("GET", "/v1/page/ratings/next?rater=anna", None, "ask"),
    ("GET", "/v1/page/ratings/report", None, "metrics"),
    ("GET", "/metrics", None, "metrics"),
    ("GET", "/status", None, "metrics"),
    ("GET", "/livez", None, None),
    ("GET", "/startupz", None, None),
]


class Door:
    """A server behind tokens: one of each scope, one of questions and clicks of the key de."""

    def __init__(self, served: Served, path: Path, kept: Kept) -> None:
        self.served, self.path, self.kept = served, path, kept
        self.token = {scope: add_token(path, f"only-{scope}", [scope]) for scope in SCOPES}
        self.token["de"] = add_token(path, "german", ["ask", "click"], ["de", "at"])

    def ask(self, method: str, path: str, body: Any, who: str | None) -> tuple[int, Any]:
        headers = {} if who is None else {"Authorization": f"Bearer {self.token.get(who, who)}"}
        return self.served.ask(method, path, body, headers)[:2]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    path = tmp_path / "tokens.json"
    add_token(path, "first", ["ask"])
    metrics = WriteMetrics(CollectorRegistry())
    kept = Kept()
    queue = WriteQueue(kept, 100, metrics)
    gate = Gate(TokenFile(path))
    with running(gate=gate, writes=Writes(queue, metrics)) as served:
        made = Door(served, path, kept)
        gate.reload()
        yield made
    queue.close()


def test_each_route_is_opened_by_its_scope_alone(door: Door) -> None:
    for method, path, body, needed in ROUTES:
        for scope in SCOPES:
            status, answer = door.ask(method, path, body, scope)
            if needed is None or scope == needed:
                assert status not in (401, 403), (path, scope)
            else:
                assert (status, answer["error"]["code"]) == (403, "wrong_scope"), (path, scope)
        for who, code in ((None, "missing_token"), ("tpd_wrong", "wrong_token")):
            status, answer = door.ask(method, path, body, who)
            if needed is None:
                assert status not in (401, 403)
            else:
                assert (status, answer["error"]["code"]) == (401, code), path


def test_a_list_is_logged_for_who_may_write_alone(door: Door) -> None:
    status, answer = door.ask("POST", "/v1/similar", {"id": "o1", "log": True}, "ask")
    assert (status, answer["error"]["code"]) == (403, "wrong_scope")
    status, answer = door.ask("POST", "/v1/similar", {"id": "o1", "log": True, "key": "de"}, "de")
    assert (status, answer["logged"]) == (200, True)


def test_a_token_of_some_keys_opens_these_alone(door: Door) -> None:
    for key in ("de", "at"):
        assert door.ask("POST", "/v1/similar", {"id": "o1", "key": key}, "de")[0] == 200
        assert door.ask("GET", f"/v1/similar?id=o1&key={key}", None, "de")[0] == 200
        assert door.ask("POST", "/v1/impressions", {**LIST, "key": key}, "de")[0] == 202
    assert door.ask("POST", "/v1/clicks", CLICK, "de")[0] == 202
    others: list[tuple[str, str, Any, str]] = [
        ("POST", "/v1/similar", {"id": "o1", "key": "fr"}, "key"),
        ("POST", "/v1/similar", {"id": "o1"}, "key"),
        ("GET", "/v1/similar?id=o1&key=fr", None, "key"),
        ("GET", "/v1/similar?id=o1", None, "key"),
        (
            "POST",
            "/v1/similar/batch",
            {"queries": [{"id": "o1", "key": "de"}, {"id": "o1"}]},
            "queries[1].key",
        ),
        ("POST", "/v1/impressions", [{**LIST, "key": "de"}, {**LIST, "key": "fr"}], "impressions[1].key"),
        ("POST", "/v1/clicks", [{**CLICK, "key": "de"}, {**CLICK, "key": "fr"}], "clicks[1].key"),
    ]
    for method, path, body, field in others:
        status, answer = door.ask(method, path, body, "de")
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (403, "wrong_key", field), path
    for path in ("/v1/versions", "/v1/openapi.json", "/v1/nowhere"):  # about all keys, as the page is
        status, answer = door.ask("GET", path, None, "de")
        assert (status, answer["error"]["code"]) == (403, "limited_to_keys")
    assert door.ask("POST", "/v1/fold", {"queries": [{"id": "o1"}], "mode": "folded"}, "de")[0] == 403
    assert door.ask("POST", "/v1/similar", {"id": "o1", "key": "fr"}, "ask")[0] == 200


def test_a_list_without_a_source_is_of_who_the_token_was_given_to(door: Door) -> None:
    """Where it is a token of the file: others are shared by many."""
    question = {"id": "o1", "key": "de", "log": True}
    for path, body in (("/v1/impressions", {**LIST, "key": "de"}), ("/v1/similar", question)):
        for said, kept in ((None, "german"), ("visitor 7", "visitor 7")):
            body = body if said is None else {**body, "source": said}
            assert door.ask("POST", path, body, "de")[0] in (200, 202)
            assert door.kept.records.pop()["source"] == kept
    door.ask("POST", "/v1/impressions", [{**LIST, "source": "anna"}, LIST], "click")
    assert [one.get("source") for one in door.kept.records[-2:]] == ["anna", "only-click"]


@pytest.mark.parametrize("shared", ["single", "writes"])
def test_a_token_that_many_share_is_no_source(tmp_path: Path, shared: str) -> None:
    add_token(tmp_path / "tokens.json", "anna", ["click"])
    kept, metrics, secret = Kept(), WriteMetrics(CollectorRegistry()), "of-the-shops-own-page"
    queue = WriteQueue(kept, 100, metrics)
    gate = Gate(TokenFile(tmp_path / "tokens.json"), **{shared: secret})
    with running(gate=gate, writes=Writes(queue, metrics)) as served:
        headers = {"Authorization": f"Bearer {secret}"}
        assert served.ask("POST", "/v1/impressions", LIST, headers)[0] == 202
    queue.close()
    assert "source" not in kept.records[0]


def test_a_click_is_kept_with_the_keys_that_its_sender_may_write_for(door: Door) -> None:
    """So that it is joined to lists of these keys alone."""
    for who, key in (("de", None), ("de", "at"), ("click", None), ("click", "fr")):
        body = CLICK if key is None else {**CLICK, "key": key}
        assert door.ask("POST", "/v1/clicks", body, who)[0] == 202
    assert [one.get("key") for one in door.kept.records] == [["at", "de"], ["at"], None, ["fr"]]


def test_who_asked_is_in_what_is_written(tmp_path: Path) -> None:
    told: list[str] = []

    class Watching:
        def move(self, *wish: Any, by: str) -> dict[str, Any]:
            told.append(by)
            moved = {"kind": "PROMOTE", "alias": "stable", "before": 1, "after": 3, "by": by}
            return {**moved, "reason": "r", "entry": 5, "notes": []}

    path = tmp_path / "tokens.json"
    headers = {"Authorization": f"Bearer {add_token(path, 'release-train', ['promote'])}"}
    with running(gate=Gate(TokenFile(path)), store=Watching()) as served:
        for path_of, body in (
            ("promote", {"version": 3}),
            ("rollback", {}),
            ("pin", {"alias": "a", "version": 3}),
        ):
            assert served.ask("POST", f"/v1/models/{path_of}", body, headers)[0] == 200
    assert told == ["release-train by HTTP from 127.0.0.1"] * 3


def test_a_browser_is_asked_for_a_password_and_that_only_reads(door: Door) -> None:
    status, _, headers = door.served.ask("GET", "/")
    assert (status, headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")

    def prompt(token: str) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()}

    given = prompt(door.token["ask"])
    assert door.served.ask("GET", "/v1/similar?id=o1", None, given)[0] == 200
    assert door.served.ask("GET", "/v1/versions", None, prompt("wrong"))[0] == 401
    assert door.served.ask("GET", "/v1/versions", None, {"Authorization": "Basic !"})[0] == 401
    assert door.served.ask("POST", "/v1/similar", {"id": "o1"}, given)[0] == 401
    promoting = prompt(door.token["promote"])
    assert door.served.ask("POST", "/v1/models/promote", {"version": 3}, promoting)[0] == 401
    assert door.served.ask("POST", "/v1/clicks", CLICK, prompt(door.token["click"]))[0] == 401


def test_a_token_that_is_taken_back_opens_nothing_without_a_restart(tmp_path: Path) -> None:
    path, now = tmp_path / "tokens.json", [0.0]
    old = add_token(path, "old", ["ask"])
    with running(gate=Gate(TokenFile(path, clock=lambda: now[0]))) as served:

        def status(token: str) -> int:
            return served.ask("GET", "/v1/versions", None, {"Authorization": f"Bearer {token}"})[0]

        assert status(old) == 200
        new = add_token(path, "new", ["ask"])
        now[0] += 1.0
        assert (status(old), status(new)) == (200, 200)
        remove_token(path, "old")
        now[0] += 1.0
        assert (status(old), status(new)) == (401, 200)


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    logs.configure("debug", "json", "serve")
    return lambda: capfd.readouterr().err


def test_no_token_is_in_a_log_line_or_an_answer(log: Callable[[], str], door: Door) -> None:
    told = []
    door.served.searcher.fails = lambda queries: RuntimeError("a bug")
    for method, path, body, _ in ROUTES:
        for scope, token in door.token.items():
            told.append(door.ask(method, path, body, scope)[1])
            if method == "POST":
                told.append(door.served.ask(method, path, {**body, "token": token})[1])
    lines = log()
    assert "a bug" in lines, "the log was not read"
    for token in door.token.values():
        assert token not in lines
        assert token not in json.dumps(told)


def test_our_own_page_rates_with_a_token_that_may_click(door: Door) -> None:
    """The toy has no page: 404 is what a rating gets that is let in."""

    def rate(who: str, scheme: str = "Bearer", **others: str) -> tuple[int, Any]:
        token = door.token[who]
        told = token if scheme == "Bearer" else base64.b64encode(f"anna:{token}".encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"{scheme} {told}", **others}
        status, answer, _ = door.served.ask("POST", "/v1/page/ratings", "{}", headers)
        return status, answer["error"]["code"]

    assert rate("click") == rate("click", "Basic") == (404, "not_found")
    assert rate("ask") == (403, "wrong_scope")
    assert rate("de") == (403, "limited_to_keys")
    own = f"http://127.0.0.1:{door.served.port}"
    assert rate("click", "Basic", Origin=own) == (404, "not_found")
    for origin in ("https://elsewhere.example", "null"):
        assert rate("click", "Basic", Origin=origin) == (403, "unknown_origin")
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert rate("click", "Basic", **{"Content-Type": kind}) == (415, "not_json")
