"""What docs/your-own-index.md gives for each store works as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psycopg
import pytest

from daemon.catalogs import learner_catalog
from daemon.cli import main
from daemon.config import load_config
from daemon.config.services import IndexConfig
from daemon.exits import EX_OK
from daemon.index import open_index
from streams.foreign_http import ForeignAnswer
from streams.items import Display, unpack_display
from tests.daemon.index.test_served import hits, ranked, units
from tests.daemon.models.test_vectors import Shop, post
from tests.daemon.test_own_ranking import OBJECTS, Roles, given
from tests.harness.postgres import Postgres
from tests.harness.waiting import until

pytestmark = pytest.mark.xdist_group("postgres")
PAGE = (Path(__file__).parents[3] / "docs" / "your-own-index.md").read_text()
SECTION = PAGE.partition("### In your own code, store by store")[2].partition("### As a linear adapter")[0]


def blocks(kind: str, text: str = SECTION) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    started = Roles(tmp_path)
    yield started
    started.end()


def test_pgvector_in_python_and_in_sql(tmp_path: Path, roles: Roles, postgres: Postgres) -> None:
    shop = Shop(tmp_path, {"text": 1.0})
    shop.choose()
    documents, told = shop.vectors("items.npy")
    scores = shop.scores()
    assert main(["models", "promote", "latest", "--config", str(shop.file)]) == EX_OK
    server = roles.start("serve")
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == told["version"], server.said)
    postgres.table("items", units(), index="vector_ip_ops")
    features = given()["text"][3].tolist()
    names: dict[str, Any] = {"server": server.url(), "address": postgres.uri, "features": features}
    names |= {"json": json, "urlopen": urlopen}
    (making,) = (block for block in blocks("python", PAGE) if "def vectors(" in block)
    exec(making.partition("version, (document")[0], names)
    (python,) = blocks("python")
    exec(python.replace('"x": features', '"views": {"text": features}'), names)
    best = ranked(scores[3], 3)
    assert [hit["id"] for hit in names["hits"]] == ["o3", *best[:9]]
    (sql,) = blocks("sql")
    postgres.execute("DROP FUNCTION IF EXISTS similar_items", sql)
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        for row, name in zip(documents, told["ids"], strict=True):
            connection.execute(
                "UPDATE items SET learned = %s::vector WHERE id = %s", [str(row.tolist()), name]
            )
        made = [
            post(server, "/v1/fold", {"queries": [{"id": "o3"}], "mode": mode})[1]["vectors"][0]["vector"]
            for mode in ("folded", "embedded")
        ]
        asked = "SELECT * FROM similar_items(%s::vector, %s::vector)"
        found = connection.execute(asked, [str(one) for one in made]).fetchall()
    assert [name for name, _ in found] == ["o3", *best[:9]]
    served = hits(server.get("/v1/similar?id=o3&k=9")[1])
    assert served == best[:9]
    np.testing.assert_allclose([score for _, score in found[1:]], np.sort(scores[3])[::-1][1:10], atol=1e-5)
    assert len(best) == OBJECTS - 1


@pytest.mark.parametrize("store", ["qdrant", "elasticsearch", "opensearch"])
def test_the_requests_are_those_that_the_server_sends(store: str) -> None:
    sent: list[tuple[str, str, bytes | None]] = []

    class Recording:
        def ask(self, method: str, path: str, body: bytes | None = None) -> ForeignAnswer:
            sent.append((method, path, body))
            about = {"mappings": {"embedding": {"mapping": {"embedding": {"similarity": "cosine"}}}}}
            told = {"result": {"points": []}, "hits": {"hits": []} if body else about}
            return ForeignAnswer(200, {}, json.dumps(told).encode())

        def close(self) -> None:
            """Nothing is open."""

    given_settings = {"store": store, "address": "http://store:1", "collection": "items", "tags": "tags"}
    index = open_index(
        IndexConfig.model_validate(given_settings | ({"id": "sku"} if store == "qdrant" else {})),
        Recording(),
    )
    assert index is not None
    index.search([3.0, 4.0], 200, ["red"])
    place = ["qdrant", "elasticsearch", "opensearch"].index(store)
    written = blocks("json")[place].replace("FOLDED", "[3.0, 4.0]").replace("UNIT", "[0.6, 0.8]")
    method, path, body = sent[-1]
    assert json.loads(written) == json.loads(body or b"")
    assert f"`{method} {path}`" in SECTION


@pytest.mark.parametrize("asked", ["public.items", "SELECT * FROM items WHERE embedding IS NOT NULL"])
def test_objects_of_a_table_are_read_where_they_are(tmp_path: Path, postgres: Postgres, asked: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "your-own-data.md").read_text()
    (block,) = re.findall(r"```toml\n(\[catalog\]\npath = \"postgresql.*?)```", page, re.DOTALL)
    assert asked in block
    rows = units()
    tags = [["lamps", 'a "b", c'], [], *[["red"]] * (OBJECTS - 2)]
    names = [f"Näme, {number}" for number in range(OBJECTS)]
    postgres.table("items", rows, tags=tags, more={"name": names})
    postgres.execute("ALTER TABLE items RENAME id TO sku")
    if "NOT NULL" in asked:
        postgres.execute("INSERT INTO items VALUES ('none', NULL, '{}', 'x')")
    path = json.dumps(f"{postgres.uri}#{asked}")
    block = re.sub("path = .*", lambda _: f"path = {path}", block)
    (tmp_path / "tripletd.toml").write_text(f"[space.views.text]\ndim = 8\n{block}")
    catalog = learner_catalog(load_config(tmp_path / "tripletd.toml", environ={}))
    assert catalog is not None
    order = [int(name[1:]) for name in catalog.ids]
    assert sorted(order) == list(range(OBJECTS))
    np.testing.assert_array_equal(catalog.views["text"].values, rows[order])
    assert catalog.shown is not None
    assert unpack_display(catalog.shown[order.index(0)]) == Display("Näme, 0", tags=("lamps", 'a "b", c'))
