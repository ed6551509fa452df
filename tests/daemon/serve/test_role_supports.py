"""`tripletd serve` of OMKS over a support set: a shortlist by the cosine, ordered by the exact scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.catalogs import map_catalog
from daemon.cli import main
from daemon.client import follow
from daemon.config import load_config
from daemon.demo.report import retrieval
from daemon.exits import EX_OK
from daemon.validate.inputs import holdout_rule
from daemon.versions.algorithms import map_of
from daemon.versions.restore import learner_of, serving_form
from learners.block import Block
from learners.forms.quadratic import ServedForm
from learners.hedge import HedgeConfig, first_standing
from learners.multikernel import Omks
from streams.catalog import load_catalog
from tests.daemon.serve.test_role import OBJECTS, Place
from tests.harness.waiting import until

LEARNER = """
[learner]
algorithm = "omks"
triplets = 60
objects = 50
[[learner.kernels]]
kind = "rbf"
sigma = 0.5
[[learner.kernels]]
kind = "cosine"
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.file.write_text(made.file.read_text() + LEARNER)
    yield made
    made.end()


def offline(place: Place, number: int) -> tuple[ServedForm, Block]:
    """The form of a version and the mapped catalog, without a server."""
    config, version = load_config(place.file), place.versions.load(number)
    catalog = load_catalog(Path(config.catalog.path), config.space_spec())
    form = serving_form(place.versions, version, config.serving, keep=False)
    return form, map_catalog(catalog, map_of(version))


def expected(form: ServedForm, objects: Block, own: int, k: int, shortlist: int) -> list[tuple[str, float]]:
    """The k best by the form's own scores among the objects nearest by the cosine."""
    values = np.asarray(objects.kernel_rows(), np.float64)
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    near = np.argsort(-(units @ units[own]), kind="stable")[: shortlist + 1]
    scores = form.scores(objects.take([own]), objects)[0]
    best = [row for row in sorted(near.tolist(), key=lambda row: -scores[row]) if row != own]
    return [(f"o{row}", float(scores[row])) for row in best[:k]]


def asked(role: Any, query: str) -> tuple[list[tuple[str, float]], Any]:
    status, body = role.get(f"/v1/similar?{query}")
    assert status == 200, body
    return [(hit["id"], hit["score"]) for hit in body["results"]], body


def test_answers_are_those_of_the_form_of_the_version(place: Place) -> None:
    place.feed(80, seed=1)
    place.learn()
    number = place.newest().number
    role, short = place.start("serve"), place.start("serve", "--set", "serve.shortlist=7")
    form, objects = offline(place, number)
    first, _ = offline(place, 0)
    for one, shortlist in ((role, OBJECTS), (short, 7)):
        until(lambda one=one: one.get("/v1/similar?id=o3&alias=latest")[0] == 200, one.said)  # type: ignore[misc]
        for own in (3, 11, 30):
            hits, body = asked(one, f"id=o{own}&k=5&alias=latest")
            assert body["version"] == str(number)
            assert body["exact"] is (shortlist == OBJECTS)
            assert hits == expected(form, objects, own, 5, shortlist)
    untrained, body = asked(role, "id=o3&k=5&alias=stable")
    assert body["version"] == "0"
    assert untrained == expected(first, objects, 3, 5, OBJECTS)
    assert untrained != asked(role, "id=o3&k=5&alias=latest")[0]
    assert (role.stop(), short.stop()) == (EX_OK, EX_OK)
    assert "Traceback" not in role.said() + short.said()


def test_the_kernels_of_a_version_are_judged_one_by_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.feed(80, seed=1)
    place.learn()
    labels = np.array([f"class{n % 4}" for n in range(OBJECTS)])
    (place.folder / "labels.tsv").write_text("".join(f"o{n}\t{one}\n" for n, one in enumerate(labels)))
    settings: dict[str, Any] = {
        "validate.judgments": f"labels:{place.folder}/labels.tsv",
        "feed.holdout_share": 0.5,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    capsys.readouterr()
    asked = ["models", "kernels", "latest", "--config", str(place.file), "--json", *words]
    assert main(asked) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["kernels"]] == ["x rbf 0.5", "x cosine"]
    assert sum(one["theta"] for one in told["kernels"]) == pytest.approx(1)
    _, objects = offline(place, told["version"])
    own = holdout_rule(load_config(place.file, settings))
    rows = np.array([n for n in range(OBJECTS) if own(f"o{n}")])
    learner: Any = learner_of(place.versions.load(told["version"]))
    for place_of, one in enumerate(told["kernels"]):
        config = replace(learner.config, hedge=HedgeConfig("given", weights=tuple(np.eye(2)[place_of])))
        standing = first_standing(config.hedge, 2)
        form = Omks.from_state({**learner.state(), "standing": standing}, config).form()
        scores = form.scores(objects, objects)
        assert one["map"] == pytest.approx(retrieval(lambda own: scores[own], labels, rows).map, abs=1e-6)
        assert one["weight"] == pytest.approx(np.exp(one["map"]))
    assert main([*asked[:4], *asked[4:5], *words]) == EX_OK
    assert 'learner.combine = "given", learner.weights = [' in capsys.readouterr().out
    assert main([*asked[:5], "--set", "learner.algorithm=oks"]) == EX_OK  # the version says what it is


def test_a_program_that_follows_gets_the_same(place: Place) -> None:
    place.feed(80, seed=1)
    place.learn()
    form, objects = offline(place, place.newest().number)
    values = np.asarray(objects.kernel_rows())
    with follow(place.folder / "checkpoints", "latest") as model:
        items = model.items(values, [f"o{row}" for row in range(OBJECTS)])
        found = model.similar(values[3], items, k=6)
        scores = model.scores(values[:4], items)
    own, *others = zip(found.ids, found.scores, strict=True)
    assert own[0] == "o3"
    assert others == expected(form, objects, 3, 5, OBJECTS)
    assert scores.tobytes() == form.scores(objects.take([0, 1, 2, 3]), objects).tobytes()


def test_two_versions_are_compared_by_their_queries(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.feed(80, seed=1)
    place.learn()
    capsys.readouterr()
    assert main(["models", "diff", "0", "latest", "--config", str(place.file), "--json"]) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["spectra"], told["relative"], told["steps"]) == ([], None, [])
    assert told["skipped"] == [
        "W: this learner has none, and its similarity is no matrix; the queries tell what changed"
    ]
    assert told["queries"]["sampled"] == OBJECTS
    moved = told["queries"]["moved"][0]
    own = int(moved["id"].removeprefix("o"))
    tops = []
    for number in (0, place.newest().number):
        form, objects = offline(place, number)
        tops.append({name for name, _ in expected(form, objects, own, 10, OBJECTS)})
    assert set(moved["entered"]) == tops[1] - tops[0]
    assert set(moved["left"]) == tops[0] - tops[1]
    assert main(["models", "diff", "0", "latest", "--config", str(place.file)]) == EX_OK
    assert "spectrum" not in capsys.readouterr().out
