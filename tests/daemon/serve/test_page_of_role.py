"""The page of a real `serve` in a real browser: its data are those of the API, its pictures those allowed."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from daemon.cli import main
from daemon.exits import EX_OK
from tests.daemon.serve.page.opening import wait_for_pictures
from tests.daemon.serve.page.scene import picture
from tests.daemon.serve.test_role import OBJECTS, Place, Role
from tests.harness.chromium import PATIENCE_MS, ChromiumMissing, browser
from tests.harness.waiting import until


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("served")
    place = Place(folder)
    place.file.write_text(place.file.read_text().replace("[serve]\n", '[serve]\ndisplay = "display.jsonl"\n'))
    with place.file.open("a") as settings:
        settings.write("\n[serve.ratings]\nenabled = true\nqueries = 5\n")
    lines = [{"id": f"o{n}", "text": f"coat {n}", "image": f"photos/{n}.jpg"} for n in range(OBJECTS)]
    lines[5]["image"] = "../secret.jpg"
    (folder / "display.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "photos").mkdir()
    for number in range(OBJECTS):
        (folder / "photos" / f"{number}.jpg").write_bytes(picture((number * 6, 100, 100)))
    (folder.parent / "secret.jpg").write_bytes(picture((0, 0, 0)))
    place.feed(80, seed=3)
    place.learn()
    started = place.start("serve")
    until(lambda: started.get("/readyz")[0] == 200, started.said)
    # Readiness is that of the first alias; an answer of one that is still loading has no base.
    until(lambda: started.get("/v1/similar?id=o1&alias=latest")[1].get("base", 0) > 0, started.said)
    yield started
    place.end()


def test_a_side_is_what_the_api_answers(role: Role) -> None:
    _, told = role.get("/v1/page/explore?id=o3&left=0&right=latest&k=5")
    _, answer = role.get("/v1/similar?id=o3&k=5&alias=latest")
    assert [hit["id"] for hit in told["right"]["hits"]] == [hit["id"] for hit in answer["results"]]
    assert told["right"]["model"] == answer["version"]
    assert (told["left"]["model"], len(told["left"]["hits"])) == ("0", 5)
    assert told["query"]["text"] == "coat 3"


@pytest.mark.parametrize(
    ("side", "code"), [("999", "not_serving"), ("nobody", "unknown_alias"), ("", "unknown_alias")]
)
def test_a_side_that_is_not_there_is_told(role: Role, side: str, code: str) -> None:
    _, told = role.get(f"/v1/page/explore?id=o3&left={side}&right=latest&k=5")
    assert told["left"]["code"] == code
    assert len(told["right"]["hits"]) == 5


def test_what_changed_is_that_of_the_command(role: Role, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/v1/page/diff?left=0&right=latest"
    until(lambda: role.get(path)[0] == 200, role.said)
    _, told = role.get(path)
    file = role.log.parent / "tripletd.toml"
    assert main(["models", "diff", "0", "1", "--json", "--most", "12", "--config", str(file)]) == EX_OK
    same = json.loads(capsys.readouterr().out)
    for name in ("before", "after", "steps", "relative", "spectra"):
        assert told["diff"][name] == same[name], name
    queries = told["diff"]["queries"]
    assert queries["sampled"] == OBJECTS, "all of a small catalog"
    assert queries["unchanged"] == same["queries"]["unchanged"]
    assert queries["shared"] == pytest.approx(same["queries"]["shared"])
    moved = {one["id"]: set(one["entered"]) for one in queries["moved"]}
    assert moved == {one["id"]: set(one["entered"]) for one in same["queries"]["moved"]}
    assert told["objects"]["o3"]["text"] == "coat 3"


def test_objects_are_found_by_text_and_by_id(role: Role) -> None:
    _, told = role.get("/v1/page/objects?text=COAT%201&limit=3")
    assert [one["id"] for one in told["objects"]] == ["o1", "o10", "o11"]
    _, told = role.get("/v1/page/objects?text=o7")
    assert told["objects"][0] == {"id": "o7", "text": "coat 7", "has_image": True, "tags": []}
    _, told = role.get("/v1/page/objects?limit=7")
    assert len({one["id"] for one in told["objects"]}) == 7


def test_a_picture_outside_the_folder_is_not_given(role: Role) -> None:
    assert role.get("/v1/page/image?id=o5")[0] == 404
    assert role.get("/v1/page/image?id=nobody")[0] == 404


def test_people_rate_what_both_rankings_find(role: Role, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = role.get("/v1/page/ratings/next?rater=Anna")
    assert (told["done"], told["of"], len(told["results"])) == (0, 5, len({*map(str, told["results"])}))
    query, shown = told["query"]["id"], [one["id"] for one in told["results"]]
    explored = [
        role.get(f"/v1/page/explore?id={query}&left={side}&right=0&k=10")[1] for side in ("stable", "0")
    ]
    lists = [[hit["id"] for hit in one["left"]["hits"]] for one in explored]
    assert set(shown) == {*lists[0], *lists[1]}
    body = json.dumps({"rater": "Anna", "query": query, "relevant": [lists[0][0]]}).encode()
    request = urllib.request.Request(
        f"{role.url()}/v1/page/ratings", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer) == {"kept": True, "done": 1, "of": 5}
    _, report = role.get("/v1/page/ratings/report")
    same_first = float(lists[0][0] == lists[1][0])
    assert [one["precision"][0]["mean"] for one in report["systems"]] == [1, same_first]
    file = role.log.parent / "tripletd.toml"
    assert main(["ratings", "report", "--json", "--config", str(file)]) == EX_OK
    same = json.loads(capsys.readouterr().out)
    assert same["systems"] == report["systems"]
    assert main(["ratings", "report", "--config", str(file)]) == EX_OK
    assert "Anna" in capsys.readouterr().out
    assert main(["ratings", "export", "--config", str(file)]) == EX_OK
    assert f"{query} 0 {lists[0][0]} 1" in capsys.readouterr().out.splitlines()


def test_the_overview_tells_this_role_and_those_that_are_not_there(role: Role) -> None:
    until(lambda: role.get("/v1/page/overview")[1]["sampled"] is not None, role.said)
    _, told = role.get("/v1/page/overview")
    assert {one["role"]: one["answers"] for one in told["roles"]} == {
        "learn": False,
        "validate": False,
        "serve": True,
    }
    assert told["objects"] == OBJECTS
    assert [one["alias"] for one in told["served"]] == ["stable", "latest"]


def test_the_page_shows_it(role: Role) -> None:
    complaints: list[str] = []
    try:
        with browser() as chromium:
            page = chromium.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.on("console", lambda said: complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{role.url()}/")
            expect(page.locator(".side .hit")).to_have_count(20)
            wait_for_pictures(page)
            expect(page.locator("#served-table tbody tr")).to_have_count(2)
            expect(page.locator("#loss-chart")).to_have_attribute("data-points", re.compile("[1-9]"))
            expect(page.locator("#measure-chart")).to_contain_text("begins with the first judged version")
    except ChromiumMissing as problem:
        pytest.skip(str(problem))
    # The one picture that may not be shown is the only thing that the browser misses.
    assert [said for said in complaints if "404" not in said] == []
