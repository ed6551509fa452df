"""`tripletd serve` in front of a real pgvector: what it answers in each mode, and without the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_OK
from daemon.index.verdicts import IndexVerdict, ModeVerdict, keep_verdict
from learners.maps.linear import linear_space
from tests.daemon.models.test_vectors import Shop, post
from tests.daemon.serve.test_role import Role
from tests.daemon.test_own_ranking import OBJECTS, Roles, given
from tests.harness.postgres import Postgres
from tests.harness.waiting import until

pytestmark = pytest.mark.xdist_group("postgres")
TABLE = "served_items"


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    started = Roles(tmp_path)
    yield started
    started.end()


@pytest.fixture
def shop(tmp_path: Path, postgres: Postgres) -> Shop:
    """Learned, and its vectors in Postgres as they were given."""
    made = Shop(tmp_path, {"text": 1.0})
    made.choose()
    tags = [["even"] if number % 2 == 0 else ["odd"] for number in range(OBJECTS)]
    postgres.table(TABLE, units(), tags=tags, index="vector_ip_ops")
    return made


def units() -> np.ndarray:
    rows = given()["text"].astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def serving(shop: Shop, roles: Roles, postgres: Postgres, more: str) -> Role:
    """A server of the learned version with [index]."""
    section = f'\n[index]\nstore = "pgvector"\naddress = "{postgres.uri}"\ncollection = "{TABLE}"\n'
    shop.file.write_text(shop.file.read_text() + section + 'tags = "tags"\ntimeout = "5s"\n' + more)
    assert main(["models", "promote", "latest", "--config", str(shop.file)]) == EX_OK
    server = roles.start("serve")
    number = shop.newest().number
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == number, server.said)
    return server


def hits(answer: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in answer["results"]]


def folded_by(server: Role, name: str) -> np.ndarray:
    made = post(server, "/v1/fold", {"queries": [{"id": name}], "mode": "folded"})[1]
    return np.array(made["vectors"][0]["vector"])


def ranked(scores: np.ndarray, left_out: int, among: np.ndarray | None = None) -> list[str]:
    scores = scores.astype(np.float64).copy()
    scores[left_out] = -np.inf
    if among is not None:
        scores[~among] = -np.inf
    return [f"o{row}" for row in np.argsort(-scores, kind="stable") if np.isfinite(scores[row])]


def test_rescored_answers_are_the_served_ones(shop: Shop, roles: Roles, postgres: Postgres) -> None:
    server, scores = serving(shop, roles, postgres, 'mode = "rescored"\ncandidates = 59'), shop.scores()
    for asked in (3, 17, 40):
        status, answer = server.get(f"/v1/similar?id=o{asked}&k=12")
        assert (status, hits(answer)) == (200, ranked(scores[asked], asked)[:12])
        found = [scores[asked][int(hit["id"][1:])] for hit in answer["results"]]
        np.testing.assert_allclose([hit["score"] for hit in answer["results"]], found, atol=2e-6)
        assert not answer["exact"]
        told = answer["index"]
        assert (told["store"], told["mode"]) == (f"pgvector {TABLE}", "rescored")
        assert told["candidates"] == OBJECTS
    even = np.arange(OBJECTS) % 2 == 0
    body: dict[str, Any] = {"id": "o3", "k": 5, "filter": {"tags": ["even"]}}
    assert hits(post(server, "/v1/similar", body)[1]) == ranked(scores[3], 3, even)[:5]
    best = ranked(scores[3], 3)
    body = {"id": "o3", "k": 5, "filter": {"exclude": best[:2]}}
    assert hits(post(server, "/v1/similar", body)[1]) == best[2:7]
    body = {"id": "o3", "k": 5, "filter": {"include": best[4:6]}}
    answer = post(server, "/v1/similar", body)[1]
    assert (hits(answer), "index" in answer) == (best[4:6], False)
    queries = [{"id": "o3"}, {"id": "nobody"}, {"id": "o9", "k": 3}]
    several = post(server, "/v1/similar/batch", {"queries": [*queries[:2], {"id": "o9", "k": 3}]})[1][
        "answers"
    ]
    assert [hit["id"] for hit in several[0]["results"]] == best[:10]
    assert several[1]["error"]["code"] == "unknown_object"
    assert (len(several[2]["results"]), several[2]["index"]["mode"]) == (3, "rescored")
    status, answer = server.get("/v1/similar?id=o3&explain=true&k=2")
    assert (status, answer["results"][0]["why"]["version_0"]["rank"] > 0) == (200, True)
    assert 'tripletd_index_seconds_count{mode="rescored"}' in server.get("/metrics")[1]


def test_few_candidates_are_put_in_the_served_order(shop: Shop, roles: Roles, postgres: Postgres) -> None:
    server, scores = serving(shop, roles, postgres, 'mode = "rescored"\ncandidates = 7'), shop.scores()
    folded = post(server, "/v1/fold", {"queries": [{"id": "o3"}], "mode": "folded"})[1]["vectors"][0][
        "vector"
    ]
    candidates = ranked(units() @ folded, 3)[:7]
    expected = sorted(candidates, key=lambda name: -scores[3][int(name[1:])])
    assert hits(server.get("/v1/similar?id=o3&k=7")[1]) == expected
    assert expected != candidates


def test_nothing_changes_before_a_verdict_and_then_what_it_holds_up(
    shop: Shop, roles: Roles, postgres: Postgres
) -> None:
    server, number = serving(shop, roles, postgres, ""), shop.newest().number
    own = units() @ units().T
    answer = server.get("/v1/similar?id=o3&k=12")[1]
    assert hits(answer) == ranked(own[3], 3)[:12]
    np.testing.assert_allclose(
        [hit["score"] for hit in answer["results"]], np.sort(own[3])[::-1][1:13], atol=1e-5
    )
    assert answer["index"]["mode"] == "own"
    assert "no verdict on pgvector served_items yet" in answer["index"]["why"]
    status, answer = server.get("/v1/similar?id=o3&explain=true")
    assert (status, answer["error"]["code"]) == (422, "not_explained")
    below, above = ModeVerdict(-0.1, 0.02, 300), ModeVerdict(0.1, 0.02, 300)
    name = f"pgvector {TABLE}"
    keep_verdict(shop.versions, IndexVerdict("another", 200, number, {"rescored": above}, 1.0))
    keep_verdict(shop.versions, IndexVerdict(name, 200, number, {"rescored": below, "folded": above}, 2.0))
    until(lambda: server.get("/v1/similar?id=o3")[1]["index"]["mode"] == "folded", server.said)
    answer = server.get("/v1/similar?id=o3&k=12")[1]
    version = shop.versions.load(number)
    folded = post(server, "/v1/fold", {"queries": [{"id": "o3"}], "mode": "folded"})[1]["vectors"][0][
        "vector"
    ]
    assert hits(answer) == ranked(units() @ folded, 3)[:12]
    assert hits(answer) != ranked(own[3], 3)[:12]
    assert version.manifest.number == number
    keep_verdict(shop.versions, IndexVerdict(name, 200, number, {"rescored": below, "folded": below}, 3.0))
    until(lambda: server.get("/v1/similar?id=o3")[1]["index"]["mode"] == "own", server.said)
    assert "holds in no mode: rescored -0.1000" in server.get("/v1/similar?id=o3")[1]["index"]["why"]


def test_embedded_vectors_are_asked_by_their_own_version(
    shop: Shop, roles: Roles, postgres: Postgres
) -> None:
    documents, told = shop.vectors("d.npy")
    postgres.table(TABLE, documents, told["ids"], index="vector_ip_ops")
    server = serving(shop, roles, postgres, f'mode = "embedded"\nversion = {told["version"]}')
    scores = shop.scores()
    for asked in (3, 17):
        answer = server.get(f"/v1/similar?id=o{asked}&k=12")[1]
        assert answer["index"]["mode"] == "embedded"
        assert hits(answer) == ranked(scores[asked], asked)[:12]
    assert main(["models", "promote", "own", "--config", str(shop.file)]) == EX_OK
    until(lambda: server.get("/v1/similar?id=o3")[0] == 503, server.said)
    problem = server.get("/v1/similar?id=o3")[1]["error"]
    assert problem["code"] == "other_version"
    assert f"the store holds vectors of version {told['version']}, and stable is at 0" in problem["message"]


def test_exported_vectors_are_asked_where_a_verdict_holds_them_up(
    shop: Shop, roles: Roles, postgres: Postgres
) -> None:
    documents, told = shop.vectors("d.npy")
    postgres.table(
        TABLE, documents[::-1].copy(), told["ids"], index="vector_ip_ops"
    )  # found is another than asked
    version, scores = told["version"], shop.scores()
    server = serving(shop, roles, postgres, f"version = {version}")
    catalog = server.get("/v1/similar?id=o3&k=12")[1]
    assert (catalog["index"]["mode"], catalog["exact"]) == ("catalog", True)
    assert "no verdict on pgvector served_items yet" in catalog["index"]["why"]
    assert hits(catalog) == ranked(scores[3], 3)[:12]
    above, below = ModeVerdict(0.1, 0.02, 300), ModeVerdict(-0.1, 0.02, 300)
    name = f"pgvector {TABLE}"
    keep_verdict(shop.versions, IndexVerdict(name, 200, version, {"embedded": above}, 1.0))
    until(lambda: server.get("/v1/similar?id=o3")[1]["index"]["mode"] == "embedded", server.said)
    assert hits(server.get("/v1/similar?id=o3&k=12")[1]) != hits(catalog)
    keep_verdict(shop.versions, IndexVerdict(name, 200, version, {"embedded": below}, 2.0))
    until(lambda: server.get("/v1/similar?id=o3")[1]["index"]["mode"] == "catalog", server.said)
    assert hits(server.get("/v1/similar?id=o3&k=12")[1]) == hits(catalog)
    assert main(["models", "promote", "own", "--config", str(shop.file)]) == EX_OK
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == 0, server.said)
    told = server.get("/v1/similar?id=o3")[1]["index"]
    assert (told["mode"], "no verdict" in told["why"]) == ("catalog", True)


@pytest.mark.parametrize("fallback", ["none", "catalog"])
def test_without_the_store(shop: Shop, roles: Roles, postgres: Postgres, fallback: str) -> None:
    section = '\n[index]\nstore = "pgvector"\naddress = "postgresql://nobody@127.0.0.1:1/none"\n'
    more = f'collection = "items"\nmode = "rescored"\nfallback = "{fallback}"\n'
    shop.file.write_text(shop.file.read_text() + section + more)
    assert main(["models", "promote", "latest", "--config", str(shop.file)]) == EX_OK
    server = roles.start("serve")
    until(lambda: server.get("/readyz")[0] == 200, server.said)
    status, answer = server.get("/v1/similar?id=o3&k=12")
    if fallback == "none":
        assert (status, answer["error"]["code"]) == (503, "index_away")
        assert answer["error"]["remedy"] == "start the database, or correct index.address"
    else:
        assert (status, hits(answer)) == (200, ranked(shop.scores()[3], 3)[:12])
        assert (answer["exact"], answer["index"]["mode"]) == (True, "catalog")
        assert "does not answer" in answer["index"]["why"]
    assert "the store cannot be used" in server.said()
    assert 'tripletd_index_failures_total{kind="away"}' in server.get("/metrics")[1]


def test_an_own_query_is_the_given_vector(shop: Shop) -> None:
    """Whatever the map does to it on the way."""
    from daemon.replica.vectors import VectorMaker
    from daemon.replica.view import ModelId, View
    from daemon.versions.algorithms import map_of

    fitted = map_of(shop.versions.load(shop.newest().number))
    assert linear_space(fitted) is not None
    view = View(ModelId(1), fitted.id, shop.served, 0)

    class Reading:
        def __enter__(self) -> View:
            return view

        def __exit__(self, *error: object) -> None:
            """Nothing is held."""

    made = VectorMaker(fitted).make(Reading, shop.objects(), "own")  # type: ignore[arg-type]
    np.testing.assert_allclose(made.rows.values, units(), atol=2e-5)
    assert load_config(shop.file).index.store == ""
    assert json.dumps(load_config(shop.file).values()["index"])
