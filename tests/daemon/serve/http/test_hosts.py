"""A web page of a stranger neither reads answers nor changes anything through a browser that reaches us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.serve.http.guard import AllowedHosts
from tests.daemon.serve.http.toy import TOKEN, Served, error_of, read_all, running

NAMES = ["tripletd", "*.shop.example.org"]
OURS = [
    "localhost",
    "LocalHost:9103",
    "localhost.:9103",
    "127.0.0.1",
    "127.0.0.1:9103",
    "10.244.0.7:9103",
    "[::1]",
    "[::1]:9103",
    "tripletd:9103",
    "Tripletd",
    "a.shop.example.org",
    "a.b.shop.example.org:80",
]
STRANGE = [
    "rebound.example.com",
    "rebound.example.com:9103",
    "localhost.example.com",
    "127.0.0.1.example.com",
    "shop.example.org",
    "eshop.example.org",
    "a.shop.example.org.example.com",
    "tripletd.example.com",
    "nottripletd",
    "0x7f.1",
    "[example.com]",
    "::1",
    "localhost:9103:80",
    "localhost@example.com",
    "example.com@localhost",
    "localhost, example.com",
    "localhost example.com",
    "*",
    "",
    ":9103",
]
PATHS = ["/", "/v1/similar?id=o1", "/v1/versions", "/v1/openapi.json", "/metrics", "/nowhere"]


@pytest.fixture(scope="module")
def named() -> Iterator[Served]:
    with running(hosts=NAMES) as one:
        yield one


@pytest.mark.parametrize("host", OURS)
def test_by_an_address_or_a_name_of_ours_it_answers(named: Served, host: str) -> None:
    status, answer, _ = named.ask("GET", "/v1/similar?id=o1", headers={"Host": host})
    assert (status, answer["alias"]) == (200, "stable")


@pytest.mark.parametrize("host", STRANGE)
def test_by_another_name_nothing_is_told(named: Served, host: str) -> None:
    passes = len(named.searcher.passes)
    status, answer, _ = named.ask("POST", "/v1/similar", {"id": "o1"}, {"Host": host})
    error = answer["error"]
    assert (status, error["code"], error["field"]) == (421, "unknown_host", "Host")
    assert "http.hosts" in error["remedy"]
    assert len(named.searcher.passes) == passes


@pytest.mark.parametrize("path", PATHS)
def test_that_holds_for_every_path(named: Served, path: str) -> None:
    status, answer, _ = named.ask("GET", path, headers={"Host": "rebound.example.com"})
    assert (status, answer["error"]["code"]) == (421, "unknown_host")


def test_with_the_token_too(named: Served) -> None:
    right = {"Authorization": f"Bearer {TOKEN}", "Host": "rebound.example.com"}
    assert named.ask("POST", "/v1/models/gc", {}, right)[0] == 421
    assert named.store.done == []


def test_whoever_runs_us_may_ask_for_health_by_any_name(named: Served) -> None:
    named.health.started()
    named.health.set_ready(None)
    for path in ("/livez", "/readyz", "/startupz"):
        assert named.ask("GET", path, headers={"Host": "pod.example.com"})[0] == 200


def test_a_star_lets_every_name_in() -> None:
    with running(hosts=["*"]) as served:
        assert served.ask("GET", "/v1/similar?id=o1", headers={"Host": "rebound.example.com"})[0] == 200
    assert not AllowedHosts().know("rebound.example.com")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/versions HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (
            b"GET /v1/versions HTTP/1.1\r\nHost: localhost\r\nHost: example.com\r\nConnection: close\r\n\r\n",
            400,
        ),
        (b"GET /v1/versions HTTP/1.0\r\nHost: example.com\r\n\r\n", 421),
        (b"GET /v1/versions HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_one_host_is_said(named: Served, head: bytes, status: int) -> None:
    with named.connect() as connection:
        connection.sendall(head)
        answer = read_all(connection)
    assert int(answer.split()[1]) == status
    if status == 400:
        assert error_of(answer)[1]["code"] == "bad_host"


ABSOLUTE = [
    (b"GET http://rebound.example.com/v1/versions", b"Host: localhost\r\n", 421),
    (b"GET HTTPS://rebound.example.com:9103/v1/versions?a=b", b"Host: 127.0.0.1:9103\r\n", 421),
    (b"GET http://rebound.example.com", b"Host: localhost\r\n", 421),
    (b"GET http://localhost@rebound.example.com/v1/versions", b"Host: localhost\r\n", 421),
    (b"GET http:///v1/versions", b"Host: localhost\r\n", 421),
    (b"GET http://localhost:9103/v1/versions", b"Host: rebound.example.com\r\n", 200),
    (b"GET http://127.0.0.1/v1/similar?id=o1", b"Host: 127.0.0.1\r\n", 200),
    (b"GET http://localhost?id=o1", b"Host: localhost\r\n", 404),
    (b"GET http://rebound.example.com/livez", b"Host: localhost\r\n", 200),
    (b"GET http://localhost/v1/versions", b"", 400),
    (b"GET http://localhost/v1/versions", b"Host: localhost\r\nHost: localhost\r\n", 400),
    (b"GET /http://rebound.example.com/v1/versions", b"Host: localhost\r\n", 404),
]


@pytest.mark.parametrize(("line", "host", "status"), ABSOLUTE)
def test_the_name_in_the_request_line_counts_and_not_host(
    named: Served, line: bytes, host: bytes, status: int
) -> None:
    named.health.started()
    named.health.set_ready(None)
    for upgrade in (b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n"):
        with named.connect() as connection:
            connection.sendall(line + b" HTTP/1.1\r\n" + host + upgrade + b"\r\n")
            assert int(connection.recv(100).split()[1]) == status


def test_a_name_in_the_request_line_counts_where_host_may_be_left_out(named: Served) -> None:
    for name, status in ((b"rebound.example.com", 421), (b"localhost", 200)):
        with named.connect() as connection:
            connection.sendall(b"GET http://%s/v1/versions HTTP/1.0\r\n\r\n" % name)
            assert int(read_all(connection).split()[1]) == status


# What a page may send to another origin without being asked first (Fetch standard: CORS-safelisted).
SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("verb", ["promote", "rollback", "pin", "gc"])
def test_a_page_of_another_origin_changes_nothing(named: Served, verb: str, kind: str) -> None:
    headers = {"Content-Type": kind, "Origin": "https://rebound.example.com", "Cookie": f"token={TOKEN}"}
    body = {"version": 3, "alias": "stable", "token": TOKEN}
    status, answer, _ = named.ask("POST", f"/v1/models/{verb}", body, headers)
    assert (status, answer["error"]["code"]) == (401, "missing_token")
    assert named.store.done == []


@pytest.mark.parametrize("path", [*PATHS, "/v1/models/promote", "/livez"])
def test_no_page_of_another_origin_is_let_in_or_allowed_a_token(named: Served, path: str) -> None:
    origin = {"Origin": "https://rebound.example.com"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for method, headers in (("GET", origin), ("OPTIONS", origin | asks)):
        sent = named.ask(method, path, headers=headers)[2]
        assert not [name for name in sent if name.lower().startswith("access-control-")]
