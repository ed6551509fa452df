"""Queries of another embedding model over the old objects: fitted on pairs, published, learned from, judged,
served and taken back, against plain NumPy.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoints.commit import WriterLock
from daemon.cli import main
from daemon.client import follow
from daemon.config import load_config
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, EX_USAGE
from learners.errors import BlockError
from learners.maps.queries import load_queries
from tests.daemon.serve.test_role import Role
from tests.daemon.test_own_ranking import DENSE, OBJECTS, Place, Roles, given
from tests.harness.waiting import until

NEW, PAIRS = 12, 400
_DRAW = np.random.default_rng(21)
_TURN = _DRAW.standard_normal((DENSE, NEW))


def both(count: int, seed: int) -> tuple[Any, Any]:
    """The same texts by the new and the old model."""
    draw = np.random.default_rng(seed)
    old = given()["text"][draw.integers(0, OBJECTS, count)] + 0.4 * draw.standard_normal((count, DENSE))
    new = old @ _TURN + 0.02 * draw.standard_normal((count, NEW))
    return new.astype(np.float32), old.astype(np.float32)


class Shop(Place):
    def __init__(self, folder: Path, more: str = "") -> None:
        super().__init__(folder, "cosine", {"text": 1.0}, more)
        self.pairs = folder / "pairs.npz"
        new, old = both(PAIRS, 2)
        np.savez(self.pairs, new=new, old=old)

    def models(self, *words: str, pairs: Path | None = None) -> int:
        return main(
            ["models", "migrate", "--pairs", str(pairs or self.pairs), *words, "--config", str(self.file)]
        )

    def matrix(self) -> Any:
        """M of the newest version, float64."""
        arrays = self.versions.load(self.newest().number).arrays
        return arrays["map.@new"].astype(np.float64)

    def feed(self, queries: Any, seed: int, *words: str) -> None:
        """Lists whose queries bring a vector."""
        draw, now, lines = np.random.default_rng(seed), int(1000 * time.time()), []
        for number, query in enumerate(queries):
            shown = [f"o{n}" for n in draw.choice(OBJECTS, 5, replace=False)]
            asked = {"id": f"q{seed}-{number}", "views": {"text": query.tolist()}}
            lines.append(
                json.dumps(
                    {"id": f"{seed}-{number}", "ts": now, "q": asked, "shown": shown, "clicked": [number % 5]}
                )
            )
        clicks = self.folder / f"new{seed}.jsonl"
        clicks.write_text("\n".join(lines))
        assert main(["feed", str(clicks), *words, "--config", str(self.file)]) == EX_OK

    def go_on(self) -> int:
        return main(["learn", "--exit-when-caught-up", "--config", str(self.file)])


def test_a_version_follows_whose_new_queries_are_answered_as_numpy_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    shop.learn(30)
    before = shop.newest()
    capsys.readouterr()
    assert shop.models("--dry-run", "--json") == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert told["version"] is None
    assert shop.newest().number == before.number
    assert shop.models("--json") == EX_OK
    assert json.loads(capsys.readouterr().out) == told | {"version": shop.newest().number}
    assert told["recall"] > 0.9
    after, arrays = shop.newest(), shop.versions.load(shop.newest().number).arrays
    assert after.number > before.number
    assert (after.parent, after.counters, after.positions) == (
        before.number,
        before.counters,
        before.positions,
    )
    assert after.map["id"] == before.map["id"]
    assert after.line == before.line
    np.testing.assert_array_equal(arrays["W"], shop.versions.load(before.number).arrays["W"])

    new, old = both(20, 9)
    M = shop.matrix()
    unit_new, unit_old = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (new, old))
    moved = new.astype(np.float64) @ M
    assert np.mean((moved / np.linalg.norm(moved, axis=1, keepdims=True) * unit_old).sum(axis=1)) > 0.99
    with follow(shop.file, "latest") as model:
        items = model.items(given()["text"].astype(np.float32))
        by_old = model.scores(moved.astype(np.float32), items)
        np.testing.assert_allclose(model.scores(new, items), by_old, atol=1e-6)
        np.testing.assert_allclose(model.scores({"new": unit_new}, items), by_old, atol=1e-5)
        assert model.similar(new[3], items).rows == model.similar(moved[3].astype(np.float32), items).rows
        np.testing.assert_allclose(
            model.fold(new).rows, model.fold(moved.astype(np.float32)).rows, rtol=1e-4, atol=1e-6
        )
        with pytest.raises(BlockError, match="a vector of new has 12"):
            model.scores({"new": new[:, 1:]}, items)
    capsys.readouterr()
    assert main(["models", "show", "latest", "--config", str(shop.file)]) == EX_OK
    assert "new: 12 numbers, to view text" in capsys.readouterr().out


def test_clicks_on_new_queries_teach_what_they_would_as_old_ones(tmp_path: Path) -> None:
    """The learner's W is that of the same lists whose queries were mapped before, bit for bit."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = Shop(tmp_path / "a"), Shop(tmp_path / "b")
    for shop in (one, other):
        shop.learn(10)
        assert shop.models() == EX_OK
    new, old = both(40, 5)
    M = one.matrix()
    np.testing.assert_array_equal(M, other.matrix())
    one.feed([*new, *old], 7)
    other.feed([*(new.astype(np.float64) @ M).astype(np.float32), *old], 7)
    for shop in (one, other):
        assert shop.go_on() == EX_OK
        assert shop.newest().counters.get("poison", 0) == 0
        assert shop.newest().counters["records"] > 90
    found, expected = (shop.versions.load(shop.newest().number).arrays["W"] for shop in (one, other))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(one.matrix(), M)
    words = ["--to", "latest", "--verify", "--config", str(one.file)]
    assert main(["replay", "--from", str(one.newest().parent), *words]) == EX_OK
    assert main(["replay", *words]) == EX_DATAERR, "no event leads to the map itself"


def test_the_validator_reads_them_and_a_name_goes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path, "[validate]\nmin_impressions = 10\n")
    shop.learn(20)
    before = shop.newest().number
    assert shop.models() == EX_OK
    new, _ = both(120, 6)
    shop.feed(new, 8, "--set", "feed.holdout_share=0.8")
    assert shop.go_on() == EX_OK
    after = shop.newest().number
    assert main(["validate", "--exit-when-caught-up", "--config", str(shop.file)]) == EX_OK
    (kept,) = [one for one in shop.ledger.entries() if one.kind == "KEEP" and one.version == after]
    assert kept.measures["impressions"] > 40
    assert not kept.measures.get("refused")
    for words in (["promote", str(before)], ["promote", str(after)], ["rollback"]):
        assert main(["models", *words, "--config", str(shop.file)]) == EX_OK
    with follow(shop.file, "stable") as model:
        until(lambda: str(model.model) == str(before))
        with pytest.raises(Exception, match="12"):
            model.scores(new, given()["text"].astype(np.float32))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Shop, Roles]]:
    shop, roles = Shop(tmp_path, ""), Roles(tmp_path)
    text = shop.file.read_text().replace('["stable", "latest"]', '["latest", "stable"]')
    shop.file.write_text(text.replace('look_every = "50ms"\n', ""))
    yield shop, roles
    roles.end()


def post(role: Role, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        role.url() + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_server_takes_the_map_with_the_version_and_gives_it_back(served: tuple[Shop, Roles]) -> None:
    shop, roles = served
    shop.learn(30)
    before = shop.newest().number
    assert main(["models", "promote", str(before), "--config", str(shop.file)]) == EX_OK
    role = roles.start("serve")
    until(lambda: role.get("/v1/similar?id=o3&alias=stable")[0] == 200, role.said)
    new, _ = both(5, 11)
    body = {"views": {"text": new[0].tolist()}, "k": 10, "alias": "stable"}
    status, said = post(role, "/v1/similar", body)
    assert status == 422
    assert said["error"]["code"] == "wrong_dim"
    assert shop.models() == EX_OK
    after = shop.newest().number
    assert post(role, "/v1/similar", body)[0] == 422, "stable points where it did"
    assert main(["models", "promote", str(after), "--config", str(shop.file)]) == EX_OK
    until(lambda: post(role, "/v1/similar", body)[0] == 200, role.said)
    for row in new:
        moved = row.astype(np.float64) @ shop.matrix()
        wanted = post(role, "/v1/similar", body | {"views": {"text": moved.tolist()}})[1]
        for asked in ({"text": row.tolist()}, {"new": row.tolist()}):
            found = post(role, "/v1/similar", body | {"views": asked})[1]
            assert found["version"] == str(after)
            assert [hit["id"] for hit in found["results"]] == [hit["id"] for hit in wanted["results"]]
            np.testing.assert_allclose(
                [hit["score"] for hit in found["results"]],
                [hit["score"] for hit in wanted["results"]],
                atol=1e-6,
            )
        folded = [
            post(role, "/v1/fold", {"queries": [{"views": {name: one}}], "alias": "stable", "mode": "folded"})
            for name, one in (("text", moved.tolist()), ("text", row.tolist()), ("new", row.tolist()))
        ]
        assert {one[0] for one in folded} == {200}, folded
    both_given = {"views": {"text": moved.tolist(), "new": row.tolist()}}
    status, said = post(role, "/v1/similar", body | both_given)
    assert (status, said["error"]["code"]) == (422, "wrong_view")
    assert main(["models", "rollback", "--config", str(shop.file)]) == EX_OK
    until(lambda: post(role, "/v1/similar", body)[0] == 422, role.said)


def test_what_cannot_be_used_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    shop.learn(3)
    number = shop.newest().number
    new, old = both(PAIRS, 2)

    def refused(code: int, told: str, *words: str, **arrays: Any) -> None:
        path = shop.folder / "other.npz"
        if arrays:
            np.savez(path, **arrays)
        capsys.readouterr()
        assert shop.models(*words, pairs=path if arrays else None) == code
        assert told in capsys.readouterr().err
        assert shop.newest().number == number

    refused(EX_DATAERR, "20 pairs are too few", new=new[:20], old=old[:20])
    refused(
        EX_DATAERR, "pair 3: its new vector is not finite", new=np.where(new == new[3], np.nan, new), old=old
    )
    refused(EX_DATAERR, "the old vectors have 7 numbers, view text 8", new=new, old=old[:, 1:])
    refused(EX_DATAERR, "for 399 old ones", new=new, old=old[1:])
    refused(EX_DATAERR, "cannot be read", new=new, elder=old)
    shuffled = np.random.default_rng(0).permutation(old)
    refused(EX_DATAERR, "nothing is written", "--least-recall", "0.6", new=new, old=shuffled)
    refused(EX_USAGE, "cannot be the name", "--name", "text")
    refused(EX_USAGE, "has no view", "--view", "image")
    lock = WriterLock(shop.folder / "checkpoints")
    assert lock.take()
    try:
        refused(EX_TEMPFAIL, "stop `tripletd learn`")
    finally:
        lock.release()
    table = shop.folder / "pairs.parquet"
    pq.write_table(pa.table({"new": new.tolist(), "old": old.tolist()}), table)
    assert shop.models("--method", "ridge", "--name", "other", pairs=table) == EX_OK
    assert shop.models() == EX_OK
    manifest = shop.newest()
    held = load_queries(
        manifest.map["spec"]["queries"],
        {name.removeprefix("map."): one for name, one in shop.versions.load(manifest.number).arrays.items()},
    )
    assert {name: (one.view, one.dim) for name, one in held.items()} == {
        "other": ("text", 12),
        "new": ("text", 12),
    }
    with (
        follow(shop.file, "latest") as model,
        pytest.raises(BlockError, match="several models have vectors of 12: name one"),
    ):
        model.scores(new, given()["text"].astype(np.float32))
    assert load_config(shop.file).space.views["text"].dim == DENSE
