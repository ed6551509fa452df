"""Impressions and clicks over HTTP: who may write, in which forms, and what is said when not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from daemon.runtime.doors import Gate
from daemon.serve.http import Writes
from daemon.serve.http.schemas import MAX_IMPRESSION_BYTES
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.serve.writes.spool import SpoolFull, SpoolRecord
from streams.event import Impression, ObjectRef
from streams.signed_lists import LONGEST_ID, read_signed
from tests.daemon.serve.http.test_by_chance import SECRET, made_with
from tests.daemon.serve.http.toy import Served, running

SHOP = "https://shop.example.org"
TOKEN = "write-key-of-the-shop"
LIST = {"impression": "l1", "query": "lamp", "shown": ["o1", "o2"]}
CLICK = {"impression": "l1", "object": "o2"}


class Kept:
    """A spool in memory."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.fails: Exception | None = None
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def append(self, records: Sequence[SpoolRecord]) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        if self.fails is not None:
            raise self.fails
        self.records += [json.loads(record.line) for record in records]

    def close(self) -> None: ...


@contextmanager
def writing(token: str = "", most: int = 100, lists: Any = None) -> Iterator[tuple[Served, Kept]]:
    kept, metrics = Kept(), WriteMetrics(CollectorRegistry())
    queue = WriteQueue(kept, most, metrics)
    try:
        with running(
            writes=Writes(queue, metrics, [SHOP], 5), lists=lists, gate=Gate(writes=token)
        ) as served:
            yield served, kept
    finally:
        kept.gate.set()
        queue.stop()
        assert queue.ended(30)


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Served, Kept]]:
    with writing() as made:
        yield made


@pytest.fixture
def kept(shop: tuple[Served, Kept]) -> Kept:
    shop[1].records.clear()
    return shop[1]


def post(served: Served, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
    return served.ask("POST", path, body, headers)


FORMS = {
    "one": lambda name, one: one,
    "a list": lambda name, one: [one],
    "an object with a list": lambda name, one: {name: [one]},
    "on several lines": lambda name, one: json.dumps(one, indent=2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["application/json", "text/plain;charset=UTF-8"])
def test_one_or_several_in_any_type_of_body(
    shop: tuple[Served, Kept], kept: Kept, form: str, kind: str
) -> None:
    for name, one in (("impressions", LIST), ("clicks", CLICK)):
        body = FORMS[form](name, one)
        status, answer, _ = post(shop[0], f"/v1/{name}", body, {"Content-Type": kind})
        assert (status, answer) == (202, {"accepted": 1})
    shown, clicked = kept.records
    assert shown.pop("ts") > 1_700_000_000_000
    assert shown == {"event": "impression", **LIST}
    assert clicked.pop("ts") > 1_700_000_000_000
    assert clicked == {"event": "click", **CLICK}


def test_several_may_come_one_per_line(shop: tuple[Served, Kept], kept: Kept) -> None:
    lines = [json.dumps({**LIST, "impression": f"l{n}", "ts": n}) for n in range(3)]
    body = "\r\n".join([*lines[:2], "", lines[2], ""])
    status, answer, _ = post(shop[0], "/v1/impressions", body, {"Content-Type": "application/x-ndjson"})
    assert (status, answer) == (202, {"accepted": 3})
    assert [one["impression"] for one in kept.records] == ["l0", "l1", "l2"]


@pytest.mark.parametrize(
    ("last", "status", "field"),
    [
        ('{"impression": "l1"}', 422, "clicks[1].object"),
        ('{"impression": "l1", "object": ', 400, "body"),
        ("3", 422, "clicks[1]"),
        ("\n".join([json.dumps(CLICK)] * 5), 422, "clicks"),
    ],
)
def test_of_lines_of_which_one_is_wrong_none_is_kept(
    shop: tuple[Served, Kept], kept: Kept, last: str, status: int, field: str
) -> None:
    found, answer, _ = post(shop[0], "/v1/clicks", f"{json.dumps(CLICK)}\n{last}\n")
    assert (found, answer["error"]["field"]) == (status, field)
    assert kept.records == []


def test_an_id_may_be_as_long_as_the_longest_that_is_signed() -> None:
    assert MAX_IMPRESSION_BYTES == LONGEST_ID


def test_what_is_said_of_a_list_is_kept(shop: tuple[Served, Kept], kept: Kept) -> None:
    said = {**LIST, "ts": 5, "propensity": [1.0, 0.25], "source": "search", "key": "de"}
    assert post(shop[0], "/v1/impressions", said)[0] == 202
    assert kept.records == [{"event": "impression", **said}]


BAD: list[tuple[str, Any, str]] = [
    ("impressions", {**LIST, "shown": []}, "impressions[0].shown"),
    ("impressions", {**LIST, "shown": ["a", "a"]}, "impressions[0].shown"),
    ("impressions", {**LIST, "query": "  "}, "impressions[0].query"),
    ("impressions", {**LIST, "impression": "x" * 481}, "impressions[0].impression"),
    ("impressions", {**LIST, "propensity": [1.0]}, "impressions[0]"),
    ("impressions", {**LIST, "propensity": [1.0, 0]}, "impressions[0].propensity[1]"),
    ("impressions", {**LIST, "clicked": [0]}, "impressions[0].clicked"),
    ("clicks", [CLICK, {"impression": "l1"}], "clicks[1].object"),
    ("clicks", {**CLICK, "ts": -1}, "clicks[0].ts"),
    ("clicks", {**CLICK, "ts": "yesterday"}, "clicks[0].ts"),
    ("clicks", [CLICK] * 6, "clicks"),
    ("clicks", [], "clicks"),
]


@pytest.mark.parametrize(("name", "body", "field"), BAD)
def test_what_is_wrong_is_named_and_nothing_of_it_is_kept(
    shop: tuple[Served, Kept], kept: Kept, name: str, body: Any, field: str
) -> None:
    status, answer, _ = post(shop[0], f"/v1/{name}", body)
    assert (status, answer["error"]["field"]) == (422, field)
    assert kept.records == []


def test_pages_of_allowed_origins_may_write_and_others_not(shop: tuple[Served, Kept], kept: Kept) -> None:
    served = shop[0]
    status, _, headers = post(served, "/v1/clicks", CLICK, {"Origin": SHOP})
    assert (status, headers["access-control-allow-origin"], headers["vary"]) == (202, SHOP, "Origin")
    own = f"http://127.0.0.1:{served.port}"
    assert post(served, "/v1/clicks", CLICK, {"Origin": own})[0] == 202
    for origin in ("https://evil.example.org", "null", "http://shop.example.org", f"{SHOP}.evil.org"):
        status, answer, headers = post(served, "/v1/clicks", CLICK, {"Origin": origin})
        assert (status, answer["error"]["code"]) == (403, "unknown_origin")
        assert "access-control-allow-origin" not in headers
    assert len(kept.records) == 2


def test_a_browser_that_asks_first_is_answered(shop: tuple[Served, Kept]) -> None:
    asking = {"Origin": SHOP, "Access-Control-Request-Method": "POST"}
    with shop[0].connect() as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in asking.items())
        connection.sendall(f"OPTIONS /v1/clicks HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        answer = connection.recv(2000).decode().lower()
    assert answer.startswith("http/1.1 204")
    assert f"access-control-allow-origin: {SHOP}" in answer
    assert "access-control-allow-headers: authorization, content-type" in answer
    status, error, _ = shop[0].ask("OPTIONS", "/v1/clicks", None, {**asking, "Origin": "https://other.org"})
    assert (status, error["error"]["code"]) == (403, "unknown_origin")
    assert shop[0].ask("OPTIONS", "/v1/similar", None, asking)[0] == 405


def test_the_token_may_stand_in_the_header_or_in_the_body() -> None:
    with writing(TOKEN) as (served, kept):
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert post(served, "/v1/clicks", CLICK, right)[0] == 202
        assert post(served, "/v1/clicks", {**CLICK, "token": TOKEN})[0] == 202
        assert post(served, "/v1/clicks", {"clicks": [CLICK], "token": TOKEN})[0] == 202
        for body, headers, code in (
            (CLICK, {}, "missing_token"),
            (CLICK, {"Authorization": f"Bearer {TOKEN}x"}, "wrong_token"),
            ({**CLICK, "token": TOKEN[:-1]}, {}, "wrong_token"),
            ({**CLICK, "token": "ö"}, right, "wrong_token"),
        ):
            status, answer, _ = post(served, "/v1/clicks", body, headers)
            assert (status, answer["error"]["code"]) == (401, code)
            assert TOKEN[:-1] not in json.dumps(answer)
        assert len(kept.records) == 3
        assert all("token" not in record for record in kept.records)


def test_nothing_is_confirmed_before_it_is_kept_and_a_full_queue_says_later() -> None:
    with writing(most=5) as (served, kept):
        kept.gate.clear()
        answers: list[int] = []

        def send() -> None:
            answers.append(post(served, "/v1/clicks", [CLICK] * 4)[0])

        waiting = threading.Thread(target=send)
        waiting.start()
        assert kept.entered.wait(30)
        status, answer, headers = post(served, "/v1/clicks", [CLICK] * 2)
        assert (status, answer["error"]["code"]) == (503, "writes_full")
        assert int(headers["retry-after"]) >= 1
        assert answers == []
        kept.gate.set()
        waiting.join(30)
        assert answers == [202]


@pytest.mark.parametrize(
    ("error", "code"),
    [(SpoolFull("full"), "writes_spool_full"), (OSError(28, "no space left"), "writes_unavailable")],
)
def test_what_cannot_be_kept_is_answered_503(error: Exception, code: str) -> None:
    with writing() as (served, kept):
        kept.fails = error
        status, answer, headers = post(served, "/v1/impressions", LIST)
        assert (status, answer["error"]["code"]) == (503, code)
        assert int(headers["retry-after"]) >= 1


def test_where_it_is_off_it_says_so() -> None:
    with running() as served:
        status, answer, _ = post(served, "/v1/clicks", CLICK)
        assert (status, answer["error"]["code"]) == (403, "writes_off")
        status, answer, _ = post(served, "/v1/similar", {"id": "o1", "log": True})
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (422, "not_logged", "log")


def test_an_answer_logs_what_it_showed_and_the_click_closes_the_loop(
    shop: tuple[Served, Kept], kept: Kept
) -> None:
    served = shop[0]
    status, answer, _ = served.ask("POST", "/v1/similar", {"id": "o1", "k": 3, "log": True})
    assert status == 200
    assert answer["logged"]
    (record,) = kept.records
    record.pop("ts")
    shown = [hit["id"] for hit in answer["results"]]
    assert record == {
        "event": "impression",
        "impression": answer["impression"],
        "query": "o1",
        "shown": shown,
    }
    again = served.post({"id": "o1", "k": 3, "log": True})[1]
    assert again["impression"] != answer["impression"]
    status, error = served.post({"x": [1, 2, 3, 4], "log": True})
    assert (status, error["error"]["code"]) == (422, "not_logged")
    refused = {"Origin": "https://evil.example.org"}
    assert post(served, "/v1/similar", {"id": "o1", "log": True}, refused)[0] == 403
    assert served.ask("GET", "/v1/similar?id=o1&log=true")[0] == 422  # what is read may be read ahead
    plain = served.post({"id": "o1", "k": 3})[1]
    assert {"logged", "impression"} & {name for name, value in plain.items() if value is not None} == set()


def test_a_logged_list_is_signed_where_there_is_a_key() -> None:
    with writing(lists=made_with()) as (served, kept):
        for question in ({"id": "o1", "k": 4}, {"id": "o1", "k": 4, "interleave": "stable,latest"}):
            answer = served.post({**question, "log": True, "source": "visitor 7"})[1]
            assert answer["logged"]
            record = kept.records.pop()
            assert record["source"] == "visitor 7"
            shown = tuple(ObjectRef(one) for one in record["shown"])
            assert [hit["id"] for hit in answer["results"]] == record["shown"]
            assert record["impression"] == answer["impression"]
            logged = Impression(record["impression"], record["ts"], ObjectRef(record["query"]), shown, ())
            said = read_signed(SECRET, logged)
            assert said.draft.models[0].name == "stable"


def test_an_answer_goes_out_though_it_cannot_be_logged() -> None:
    with writing() as (served, kept):
        kept.fails = OSError(28, "no space left")
        status, answer = served.post({"id": "o1", "k": 3, "log": True})
        assert (status, answer["logged"], len(answer["results"])) == (200, False, 3)
