"""Rating over a real socket: what a rater is told and not told, what is kept, and what is refused."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from daemon.ratings.kept import read_ratings
from daemon.ratings.study import Study
from daemon.serve.page.answers import CannotAnswer
from tests.daemon.ratings.made import study
from tests.daemon.serve.page.rated import FOUND, rated_sources
from tests.daemon.serve.page.scene import Scene

RATINGS = "/v1/page/ratings"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def address(scene: Scene) -> Iterator[str]:
    with scene.page(rated_sources(scene)) as address:
        yield address


def ask(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text
    finally:
        connection.close()


def following(address: str, rater: str = "Anna") -> Any:
    status, told = ask(address, "GET", f"{RATINGS}/next?rater={quote(rater)}")
    assert status == 200, told
    return told


def rate(address: str, query: str, relevant: list[str], rater: str = "Anna") -> tuple[int, Any]:
    return ask(address, "POST", RATINGS, {"rater": rater, "query": query, "relevant": relevant})


def test_a_rater_is_asked_about_every_query_once_and_then_no_more(address: str) -> None:
    for done, query in enumerate(FOUND):
        told = following(address)
        assert (told["query"]["id"], told["done"], told["of"]) == (query, done, 3)
        assert {one["id"] for one in told["results"]} == {*FOUND[query][0], *FOUND[query][1]}
        assert len(told["results"]) == len({one["id"] for one in told["results"]})
        assert rate(address, query, []) == (200, {"kept": True, "done": done + 1, "of": 3})
    told = following(address, "anna")
    assert (told["query"], told["results"], told["done"]) == (None, [], 3)
    assert following(address, "Ben")["done"] == 0


def test_nothing_that_a_rater_is_told_depends_on_who_found_what(tmp_path: Path) -> None:
    """Neither the two systems exchanged nor other ranks change a single byte."""
    told = []
    backwards = {query: (other[::-1], one[::-1]) for query, (one, other) in FOUND.items()}
    for number, made in enumerate((study(FOUND), study(backwards))):
        scene = Scene(tmp_path / str(number))
        with scene.page(rated_sources(scene, made=made)) as address:
            status, body = ask(address, "GET", f"{RATINGS}/next?rater=Anna")
            kept = rate(address, "object-10", ["object-16"])
        assert status == 200
        told.append((body, kept))
    assert told[0] == told[1]
    words = json.dumps(told[0])
    assert not [word for word in ("stable", "12+340", "system", "rank", "version", "first") if word in words]


def test_what_is_kept_says_who_rated_what_of_which_versions_at_which_ranks(
    address: str, scene: Scene
) -> None:
    following(address)
    assert rate(address, "object-10", ["object-16", "object-11", "object-16"])[0] == 200
    (said,) = read_ratings(scene.folder / "ratings.jsonl").of("first")
    assert (said.rater, said.query, said.relevant) == ("Anna", "object-10", {"object-16", "object-11"})
    assert [(one.name, one.model) for one in said.systems] == [("stable", "12+340"), ("0", "0")]
    ranks = {one.id: one.ranks for one in said.results}
    assert (ranks["object-16"], ranks["object-11"], ranks["object-25"]) == ((6, 1), (1, None), (None, 10))
    assert said.at > 1_700_000_000_000


def test_a_double_submit_counts_once(address: str, scene: Scene) -> None:
    following(address)
    assert rate(address, "object-10", ["object-16"])[1]["kept"]
    assert rate(address, "object-10", ["object-16"]) == (200, {"kept": False, "done": 1, "of": 3})
    status, told = rate(address, "object-10", [])
    assert (status, told["error"]["code"]) == (409, "rated_before")
    assert len(read_ratings(scene.folder / "ratings.jsonl").of()) == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"no json", 400, "bad_json", "body"),
        ({"rater": "a", "query": "object-10"}, 422, "missing_field", "relevant"),
        ({"rater": "a", "query": "object-10", "relevant": [], "system": 1}, 422, "unknown_field", "system"),
        ({"rater": " ", "query": "object-10", "relevant": []}, 422, "bad_value", "rater"),
        ({"rater": "a" * 41, "query": "object-10", "relevant": []}, 422, "bad_value", "rater"),
        ({"rater": "a", "query": "object-7", "relevant": []}, 422, "unknown_query", "query"),
        ({"rater": "a", "query": "object-10", "relevant": ["object-1"]}, 422, "not_shown", "relevant"),
        ({"rater": "a", "query": "object-10", "relevant": ["object-1"] * 21}, 422, "bad_value", "relevant"),
        ({"rater": "a", "query": "object-10", "relevant": [1]}, 422, "bad_value", "relevant[0]"),
        (b" " * 70_000, 413, "body_too_large", "Content-Length"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_is_wrong_is_told_and_not_kept(
    address: str, scene: Scene, body: Any, status: int, code: str, field: str
) -> None:
    following(address)
    found, told = ask(address, "POST", RATINGS, body)
    assert (found, told["error"]["code"], told["error"]["field"]) == (status, code, field)
    assert told["error"]["message"]
    assert read_ratings(scene.folder / "ratings.jsonl").of() == []


@pytest.mark.parametrize("rater", ["", "%00", "a" * 41, "a" * 201, "%E2%80%AE"])
def test_a_name_that_is_none_is_refused(address: str, rater: str) -> None:
    status, told = ask(address, "GET", f"{RATINGS}/next?rater={rater}")
    assert (status, told["error"]["code"], told["error"]["field"]) == (422, "bad_value", "rater")


def test_a_rating_before_there_is_a_study_is_refused(address: str) -> None:
    status, told = rate(address, "object-10", [])
    assert (status, told["error"]["code"]) == (422, "unknown_query")


def test_the_report_says_what_came_of_it(address: str) -> None:
    status, told = ask(address, "GET", f"{RATINGS}/report")
    assert (status, told["began"], told["systems"], told["named"]) == (200, None, None, ["stable", "0"])
    following(address)
    rate(address, "object-10", FOUND["object-10"][0])
    rate(address, "object-10", FOUND["object-10"][0], "Ben")
    _, told = ask(address, "GET", f"{RATINGS}/report")
    assert [one["precision"][9]["mean"] for one in told["systems"]] == [1.0, 0.5]
    assert told["raters"] == {"Anna": 1, "Ben": 1}
    assert told["agreement"]["cohen"] == 1.0


def test_why_a_study_cannot_begin_is_not_told_to_raters(scene: Scene) -> None:
    def fail() -> Study:
        raise CannotAnswer("unknown_version", "version 7 cannot be opened")

    sources = rated_sources(scene)
    assert sources.ratings is not None
    sources = replace(sources, ratings=replace(sources.ratings, make=fail))
    with scene.page(sources) as address:
        status, told = ask(address, "GET", f"{RATINGS}/next?rater=Anna")
    assert (status, told["error"]["code"]) == (503, "not_prepared")
    assert "7" not in told["error"]["message"]


def test_a_file_that_is_full_or_broken_is_told_without_its_name(scene: Scene) -> None:
    with scene.page(rated_sources(scene, full=True)) as address:
        following(address)
        status, told = rate(address, "object-10", [])
        assert (status, told["error"]["code"]) == (503, "ratings_unavailable")
        assert "jsonl" not in json.dumps(told)
        (scene.folder / "ratings.jsonl").write_text("something else\n")
        assert ask(address, "GET", f"{RATINGS}/next?rater=Anna")[0] == 503


def test_rating_is_off_by_default(scene: Scene) -> None:
    with scene.page() as address:
        for path in ("/rate", "/rate/report"):
            status, told = ask(address, "GET", path)
            assert (status, told["error"]["code"]) == (403, "ratings_off")
            assert "serve.ratings.enabled" in told["error"]["remedy"]
        assert ask(address, "GET", f"{RATINGS}/next?rater=Anna")[0] == 404
        assert not ask(address, "GET", "/v1/page/overview")[1]["ratings"]


def test_the_pages_may_load_nothing_else(address: str) -> None:
    for path in ("/rate", "/rate/report"):
        status, body = ask(address, "GET", path)
        assert status == 200
        named = [part.split('"')[0] for part in body.decode().split('="/page/')[1:]]
        assert {"page.css"} < set(named)
        for name in named:
            assert ask(address, "GET", f"/page/{name}")[0] == 200, name
