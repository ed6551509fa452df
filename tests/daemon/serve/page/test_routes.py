"""The page's files and data over a real socket: what is there, what is refused, and the headers of both."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from daemon.look.overview import KeyRow
from daemon.replica.view import ReplicaStatus
from daemon.serve.page.routes import MOST_WAITING
from daemon.serve.page.sources import KeysShown, NearestObjects
from tests.daemon.serve.page.scene import OBJECTS, Lists, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.learn()
    made.run(10)
    return made


@pytest.fixture
def address(scene: Scene) -> Iterator[str]:
    with scene.page() as address:
        yield address


def ask(address: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body of a path that is sent as it is."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        connection.putrequest("GET", path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def data(address: str, path: str) -> Any:
    status, _, body = ask(address, f"/v1/page/{path}")
    assert status == 200, body
    return json.loads(body)


def test_the_page_and_all_it_names_is_there_and_may_load_nothing_else(address: str) -> None:
    status, headers, body = ask(address, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    named = [part.split('"')[0] for part in body.decode().split('="/page/')[1:]]
    assert {"main.js", "page.css", "vendor/uPlot.min.css", "vendor/uPlot.LICENSE.txt"} <= set(named)
    for name in named:
        status, headers, _ = ask(address, f"/page/{name}")
        assert status == 200, name
        assert "content-security-policy" in headers


@pytest.mark.parametrize(
    "path",
    [
        "/page/../endpoints.py",
        "/page/%2e%2e/endpoints.py",
        "/page/..%2fendpoints.py",
        "/page//etc/passwd",
        "/page/%00",
        "/page/vendor",
        "/page/",
        "/page/vendor/../../routes.py",
    ],
)
def test_no_request_names_a_file(address: str, path: str) -> None:
    status, _, body = ask(address, path)
    assert status == 404
    assert b"import" not in body


def test_what_did_not_change_is_not_sent_again(address: str) -> None:
    for path in ("/page/main.js", "/v1/page/curves"):
        _, headers, body = ask(address, path)
        again, _, nothing = ask(address, path, If_None_Match=headers["etag"])
        assert (again, nothing) == (304, b"")
        assert body


def test_curves_have_every_line_with_its_reference(address: str) -> None:
    told = data(address, "curves")
    by_name = {kind["name"]: kind for kind in told["kinds"]}
    current, behind = by_name["map_full"]["lines"]
    assert (current["current"], current["versions"]) == (True, [0, 1, 4, 5])
    assert (behind["current"], behind["versions"]) == (False, [1, 2, 3])
    assert current["reference"] == [0.2] * 4
    assert by_name["map_shown"]["lines"][0]["shown_order"] == [0.55] * 4
    assert by_name["training_loss"]["lines"][0]["versions"] == [1, 4, 5]
    assert told["best"] == {"version": 5, "events": 2800}
    assert told["marks"] == [
        {"version": 5, "kind": "PROMOTE", "alias": "best"},
        {"version": 1, "kind": "ROLLBACK", "alias": "stable"},
    ]
    assert told["own"] is None
    assert current["times"] == sorted(current["times"])
    assert all(abs(at - time.time()) < 600 for at in current["times"])
    status, headers, body = ask(address, "/v1/page/curves.csv")
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert body.decode().count("\n") == 7


def test_versions_come_newest_first_with_their_verdicts(address: str) -> None:
    told = data(address, "versions?limit=2")
    assert [(one["number"], one["names"]) for one in told["versions"]] == [
        (5, ["best", "latest"]),
        (4, []),
        (1, ["stable"]),
        (0, ["own"]),
    ], "the newest ones, and those that have a name"
    assert told["versions"][1]["marks"] == ["continued from version 1"]
    assert (told["more"], told["count"]) == (2, 6)
    assert [(move["kind"], move["alias"], move["by"]) for move in told["moves"]] == [
        ("ROLLBACK", "stable", "anna"),
        ("PROMOTE", "best", "test"),
    ]
    older = data(address, "versions?before=4&limit=3")["versions"]
    assert [(one["number"], one["behind"]) for one in older] == [(3, True), (2, True), (1, False)]


def test_live_numbers_come_once(address: str, scene: Scene) -> None:
    told = data(address, "series")
    assert len(told["times"]) == 10
    assert told["values"]["learn.events"][-1] == pytest.approx(200.0)
    assert data(address, f"series?after={told['times'][-1]!r}") == {"times": [], "values": {}}
    overview = data(address, "overview")
    assert [(one["role"], one["answers"]) for one in overview["roles"]] == [
        ("learn", True),
        ("validate", True),
        ("serve", True),
    ]
    assert overview["served"][0]["version"] == "5+340"
    assert overview["numbers"]["learn.dead.unknown_object"] == 7.0


def test_two_sides_tell_what_moved(address: str) -> None:
    told = data(address, "explore?id=object-0&left=0&right=1&k=4")
    assert [hit["id"] for hit in told["left"]["hits"]] == ["object-1", "object-2", "object-3", "object-4"]
    assert [hit["other_rank"] for hit in told["left"]["hits"]] == [None, 1, None, 2]
    assert [hit["other_rank"] for hit in told["right"]["hits"]] == [2, 4, None, None]
    assert told["shared"] == 2
    assert told["left"]["hits"][1]["shown"]["has_image"]


def test_one_side_without_an_answer_leaves_the_other(address: str) -> None:
    told = data(address, "explore?id=object-0&left=99&right=1&k=3")
    assert (told["left"]["code"], told["left"]["hits"]) == ("unknown_version", [])
    assert len(told["right"]["hits"]) == 3
    told = data(address, f"explore?id={quote('no such/../thing')}&left=0&right=1")
    assert told["left"]["code"] == "unknown_object"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("explore?id=object-1&left=0&right=1&k=0", "k"),
        ("explore?id=object-1&left=0&right=1&k=51", "k"),
        ("explore?id=object-1&left=0&right=1&k=1e3", "k"),
        ("explore?id=object-1&left=0&right=1&k=%d9%a1", "k"),
        (f"explore?id={'x' * 600}&left=0&right=1", "id"),
        ("versions?limit=99999999999999999999", "limit"),
        ("versions?before=-1", "before"),
        ("series?after=soon", "after"),
        ("series?after=nan", "after"),
        (f"objects?text={'x' * 600}", "text"),
        ("diff?left=0", "right"),
        ("diff?left=0&right=0", "right"),
        ("diff?left=nobody&right=0", "left"),
        ("diff?left=0&right=%d9%a1", "right"),
    ],
)
def test_a_bad_parameter_is_refused_by_its_name(address: str, path: str, field: str) -> None:
    status, _, body = ask(address, f"/v1/page/{path}")
    assert status == 422
    assert json.loads(body)["error"]["field"] == field


def test_pictures_come_by_id_with_the_type_of_their_bytes(address: str) -> None:
    status, headers, body = ask(address, "/v1/page/image?id=object-2")
    assert (status, headers["content-type"], body[:3]) == (200, "image/jpeg", b"\xff\xd8\xff")
    assert ask(address, "/v1/page/image?id=object-1")[0] == 404
    assert ask(address, f"/v1/page/image?id={quote('../../etc/passwd')}")[0] == 404


def test_an_empty_installation_has_answers_too(tmp_path: Path) -> None:
    with Scene(tmp_path / "none").page() as address:
        assert data(address, "curves")["best"] is None
        assert data(address, "versions")["versions"] == []
        assert data(address, "overview")["served"] == []
        assert data(address, "series") == {"times": [], "values": {}}


def test_a_store_that_cannot_be_read_is_told_and_not_a_stack_trace(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").write_text("not a folder")
    with scene.page() as address:
        status, _, body = ask(address, "/v1/page/versions")
        assert (status, json.loads(body)["error"]["code"]) == (503, "store")


def test_what_changed_is_made_once_asked_for_and_then_told(address: str, scene: Scene) -> None:
    status, _, body = ask(address, "/v1/page/diff?left=0&right=latest")
    assert (status, json.loads(body)["state"]) == (202, "working")
    told = data(address, "diff?left=0&right=latest")
    assert (told["state"], told["diff"]["before"], told["diff"]["after"]) == ("done", 0, 5)
    assert told["diff"]["steps"][0]["after"] == 1.5
    assert told["objects"]["object-12"]["has_image"]
    assert scene.compared.asked == [(0, 5), (0, 5)]


def test_versions_that_are_not_there_are_not_compared(address: str, scene: Scene) -> None:
    status, _, body = ask(address, "/v1/page/diff?left=0&right=99")
    assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_version")
    scene.served = [ReplicaStatus("latest", None, None, "", "versions")]
    status, headers, body = ask(address, "/v1/page/diff?left=0&right=latest")
    assert (status, json.loads(body)["error"]["code"]) == (503, "not_serving")
    assert headers["retry-after"] == "2"
    assert scene.compared.asked == []


def test_looks_that_hang_leave_the_rest_of_the_page(scene: Scene) -> None:
    """More look at what never ends than there are threads: the numbers go on, one too many is told."""
    over = threading.Event()

    class Stuck(Lists):
        def neighbours(self, side: str, query: str, k: int, key: str | None) -> NearestObjects:
            over.wait(60)
            return super().neighbours(side, query, k, key)

    with (
        scene.page(replace(scene.sources, explorer=Stuck())) as address,
        ThreadPoolExecutor(MOST_WAITING + 1) as people,
    ):
        path = "/v1/page/explore?id=object-1&left=0&right=1"
        looks = [people.submit(ask, address, path) for _ in range(MOST_WAITING + 1)]
        told = next(iter(wait(looks, 60, FIRST_COMPLETED).done)).result()
        assert (told[0], json.loads(told[2])["error"]["code"]) == (503, "busy")
        assert data(address, "overview")["objects"] == OBJECTS
        over.set()
        assert sorted(look.result()[0] for look in looks) == [200] * MOST_WAITING + [503]


def test_the_models_of_keys_are_told_most_events_first_where_there_are_any(scene: Scene) -> None:
    rows = (KeyRow("a", 9, "learned", 120, 0.9, 0.8), KeyRow("<b>", 4))
    with scene.page() as address:
        assert data(address, "keys") == {"model": None, "slots": 0, "used": 0, "keys": [], "more": 0}
    with scene.page(replace(scene.sources, keys=lambda: KeysShown("7", 5, 2, rows))) as address:
        told = data(address, "keys?limit=1")
        assert (told["model"], told["slots"], told["used"], told["more"]) == ("7", 5, 2, 1)
        assert told["keys"] == [asdict(rows[0])]
        assert data(address, "keys")["keys"] == [asdict(row) for row in rows]
        assert ask(address, "/v1/page/keys?limit=501")[0] == 422
