"""Two tenants with opposite tastes on one topic: each is judged on its own clicks and answered by its own
model; whoever has none, or nothing learned, is answered by version 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.catalogs import map_catalog
from daemon.cli import main
from daemon.client import follow
from daemon.config import load_config
from daemon.exits import EX_OK, EX_USAGE
from daemon.look.overview import KeyRow, key_rows, read_events
from daemon.versions.algorithms import map_of
from daemon.versions.contents import APPLIED, counted
from daemon.versions.forms import KeyedForm
from daemon.versions.key_verdicts import COSINE, KEYS, LEARNED, KeyVerdicts
from daemon.versions.restore import serving_form
from learners.block import Block
from learners.forms.quadratic import ServedForm
from streams.catalog import load_catalog
from tests.daemon.serve.test_role import Place, Role
from tests.harness.waiting import until

SHAPES = COLOURS = 4
EACH = 4
OBJECTS = SHAPES * COLOURS * EACH
CONFIG = """
[stream]
address = "log:clicks.log"
[space.views.x]
dim = 8
map = "unit"
[catalog]
path = "catalog.jsonl"
[feed]
holdout_share = 0.4
[learner]
algorithm = "{algorithm}"
[keys]
slots = 5
[validate]
min_impressions = 100
[checkpoints]
every = "1h"
every_events = 0
[serve]
aliases = ["stable", "latest"]
look_every = "50ms"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


class Shop(Place):
    """Things of a shape and a colour. One tenant's people click on equal shapes, another's on equal colours,
    a third's on anything; of a fourth there are a few."""

    def __init__(self, folder: Path, algorithm: str) -> None:
        super().__init__(folder)
        self.file.write_text(CONFIG.format(algorithm=algorithm))
        draw = np.random.default_rng(11)
        self.shape, self.colour = np.arange(OBJECTS) % SHAPES, np.arange(OBJECTS) // SHAPES % COLOURS
        marks = np.hstack([np.eye(SHAPES)[self.shape], np.eye(COLOURS)[self.colour]])
        self.rows = marks + 0.1 * draw.normal(size=marks.shape)
        lines = [json.dumps({"id": f"o{n}", "x": row.tolist()}) for n, row in enumerate(self.rows)]
        (folder / "catalog.jsonl").write_text("\n".join(lines))
        clicks = [*self.clicks("shapes", 600, self.shape), *self.clicks("colours", 600, self.colour)]
        clicks += [*self.clicks("anything", 600, None), *self.clicks("few", 30, self.shape)]
        draw.shuffle(clicks)
        source = folder / "lists.jsonl"
        source.write_text("\n".join(clicks))
        assert main(["feed", str(source), "--config", str(self.file)]) == EX_OK

    def clicks(self, key: str, count: int, taste: np.ndarray | None) -> Iterator[str]:
        draw = np.random.default_rng(len(key))
        for number in range(count):
            query, *shown = draw.choice(OBJECTS, 9, replace=False).tolist()
            wanted = draw.random(8) < 0.3 if taste is None else taste[shown] == taste[query]
            clicked = np.flatnonzero(wanted).tolist()
            refs = {"q": {"id": f"o{query}"}, "shown": [f"o{n}" for n in shown], "clicked": clicked}
            yield json.dumps({"id": f"{key}-{number}", "ts": 1_000_000 + number, "key": key, **refs})

    def role(self, name: str) -> None:
        assert main([name, "--exit-when-caught-up", "--config", str(self.file)]) == EX_OK

    def rows_of_keys(self) -> list[KeyRow]:
        number = self.newest().number
        return key_rows(
            read_events(self.versions, number) or {}, KeyVerdicts.of(self.ledger.entries()).at(number)
        )

    def offline(self) -> tuple[KeyedForm, Block]:
        """The newest version as it is served, and the mapped catalog, without a server."""
        config, version = load_config(self.file), self.versions.load(self.newest().number)
        form = serving_form(self.versions, version, config.serving)
        assert isinstance(form, KeyedForm)
        catalog = load_catalog(Path(config.catalog.path), config.space_spec())
        return form, map_catalog(catalog, map_of(version))


@pytest.fixture(params=["soml-da", "oasis"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    made = Shop(tmp_path, request.param)
    made.role("learn")
    made.role("validate")
    yield made
    made.end()


def expected(form: ServedForm, objects: Block, own: int, k: int) -> list[tuple[str, float]]:
    scores = form.scores(objects.take([own]), objects)[0]
    best = [row for row in np.argsort(-scores, kind="stable").tolist() if row != own]
    return [(f"o{row}", float(scores[row])) for row in best[:k]]


def asked(role: Role, query: str) -> tuple[list[tuple[str, float]], Any]:
    status, body = role.get(f"/v1/similar?{query}")
    assert status == 200, body
    return [(hit["id"], hit["score"]) for hit in body["results"]], body


def equal(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> bool:
    """The same objects, and their scores to the rounding of float32."""
    scores = [[score for _, score in hits] for hits in (found, wanted)]
    return [name for name, _ in found] == [name for name, _ in wanted] and np.allclose(*scores, atol=1e-6)


def test_each_tenant_gets_its_own_answers(shop: Shop) -> None:
    number = shop.newest().number
    verdicts = next(entry for entry in shop.ledger.entries() if entry.version == number).measures[KEYS]
    assert {key: one["verdict"] for key, one in verdicts.items()} == {
        "shapes": LEARNED,
        "colours": LEARNED,
        "anything": COSINE,
    }
    role = shop.start("serve")
    form, objects = shop.offline()
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    until(lambda: role.get("/v1/similar?id=o3")[1]["base"] == number, role.said)  # best: some keys are better
    answers = {}
    for key, taste in (("shapes", shop.shape), ("colours", shop.colour)):
        model = form.model_of(key)
        assert model is not None
        for own in (3, 21):
            found, body = asked(role, f"id=o{own}&k=5&key={key}")
            assert body["key"] == {"name": key, "model": "own", "why": None, "formed": body["records"]}
            assert equal(found, expected(model.form(), objects, own, 5))
            assert {taste[int(name[1:])] for name, _ in found} == {taste[own]}
            answers[key] = found
    assert {name for name, _ in answers["shapes"]} != {name for name, _ in answers["colours"]}
    untrained, body = asked(role, "id=o3&k=5")
    assert "key" not in body
    assert equal(untrained, expected(form.base, objects, 3, 5))
    for key, why in (("nobody", "unknown_key"), ("anything", "not_learned"), ("few", "not_learned")):
        found, body = asked(role, f"id=o3&k=5&key={key}")
        told = {"name": key, "model": "version_0", "why": why, "formed": None}
        assert (found, body["key"]) == (untrained, told)
    table = role.get("/v1/page/keys?limit=2")[1]
    assert (table["model"], table["slots"], table["used"], table["more"]) == (str(number), 5, 4, 2)
    assert [(row["key"], row["verdict"]) for row in table["keys"]] == [
        (row.key, row.verdict) for row in shop.rows_of_keys()[:2]
    ]
    page = role.get("/metrics")[1]
    assert 'tripletd_key_answers_total{model="own"} 4.0' in page
    assert "tripletd_key_models_made_total 2.0" in page
    assert role.stop() == EX_OK
    assert "Traceback" not in role.said(), role.said()


def test_people_see_each_key(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        capsys.readouterr()
        assert main([*words, "--config", str(shop.file)]) == EX_OK
        return capsys.readouterr().out

    told = json.loads(shown("models", "show", "best", "--json"))["keys"]
    assert {row["key"]: row["verdict"] for row in told} == {
        "shapes": LEARNED,
        "colours": LEARNED,
        "anything": COSINE,
        "few": "",
    }
    assert sum(row["events"] for row in told) == counted(shop.newest().counters, *APPLIED)
    one = shown("models", "show", "best", "--key", "anything")
    assert "anything" in one
    assert "shapes" not in one
    assert "cosine: its gain" in one
    assert main(["models", "show", "best", "--key", "nobody", "--config", str(shop.file)]) == EX_USAGE
    assert "has no model of the key 'nobody'" in capsys.readouterr().err
    assert main(["models", "diff", "0", "best", "--config", str(shop.file)]) == EX_USAGE
    assert "has one model per key" in capsys.readouterr().err
    moved = json.loads(shown("models", "diff", "0", "best", "--key", "shapes", "--json"))
    assert moved["relative"] > 0.1
    assert moved["queries"]["shared"] < 0.9
    alike = json.loads(shown("models", "diff", "0", "best", "--key", "nobody", "--json"))
    assert (alike["relative"], alike["queries"]["shared"]) == (0, 1)
    assert shown("curves", "--csv", "-").count("\n") == 3
    assert "best" in shown("models", "list")
    assert "Traceback" not in shown("status")


def test_a_program_gets_the_same_by_key(shop: Shop) -> None:
    form, objects = shop.offline()
    with follow(shop.file, "stable") as model:
        items = model.items(shop.rows, [f"o{row}" for row in range(OBJECTS)])
        until(lambda: model.similar(shop.rows[3], items, key="shapes").by == "own", "a verdict")
        for key in ("shapes", "colours"):
            own = form.model_of(key)
            assert own is not None
            found = model.similar(shop.rows[3], items, k=6, key=key)
            assert equal(
                list(zip(found.ids, found.scores, strict=True))[1:], expected(own.form(), objects, 3, 5)
            )
            wanted = own.form().scores(objects.take([3, 4]), objects)
            assert np.allclose(model.scores(shop.rows[3:5], items, key=key), wanted, atol=1e-6)
        untrained = model.similar(shop.rows[3], items)
        for key, why in (("nobody", "unknown_key"), ("anything", "not_learned")):
            found = model.similar(shop.rows[3], items, key=key)
            assert (found.scores, found.by) == (untrained.scores, why)
