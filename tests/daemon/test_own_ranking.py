"""Version 0 answers with what the user's own index computes, by NumPy on the vectors as they were given: as
it is judged, as a client has it, and as `tripletd serve` answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from daemon.checks import run_checks
from daemon.cli import main
from daemon.client import follow
from daemon.config import load_config, schema
from daemon.config.schema import ServingConfig
from daemon.exits import EX_CONFIG, EX_OK
from daemon.learn.resume.fitting import space_map
from daemon.look.status import collect
from daemon.replica.form_updates import FORM_UPDATERS
from daemon.replica.loading import BufferArrays
from daemon.validate.evaluator import CandidateCache
from daemon.versions.algorithms import map_of
from daemon.versions.forms import CARRIED, KeyedForms, MatrixForms
from daemon.versions.reference import reference_of
from daemon.versions.restore import learner_of, serving_form
from learners import Keyed, KeyedConfig, Oasis, OasisConfig
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import DiagonalForm
from learners.forms.serving import ServingForm
from learners.maps.base import OwnRanking, first_diagonal
from streams.catalog import Catalog, load_catalog
from streams.event import ObjectRef
from tests.daemon.kept import Kept
from tests.daemon.serve.test_role import Place as RolePlace
from tests.harness.waiting import until

Doubles = NDArray[np.float64]
OBJECTS = 60
DENSE, WIDE, TERMS = 8, 5, 12

CONFIG = """
[stream]
address = "log:clicks.log"
[space]
{space}
[space.views.text]
dim = 8
{text}
{views}
[catalog]
path = "catalog.jsonl"
[feed]
holdout_share = 0.0
random_negatives = 1
[checkpoints]
every = "1h"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
up_port = 0
[serve]
aliases = ["stable", "latest"]
look_every = "50ms"
{more}
"""
SHAPE = "[space.views.shape]\ndim = 5\nweight = 2.5\n"
WORDS = '[space.views.words]\nkind = "sparse"\ndim = 12\nweight = 0.4\n'


def given() -> dict[str, Doubles]:
    """Embeddings that all point one way, histograms, and counts of terms."""
    draw = np.random.default_rng(8)
    mixed = draw.standard_normal((OBJECTS, DENSE)) @ draw.standard_normal((DENSE, DENSE)) + 1.5
    words = draw.poisson(0.7, (OBJECTS, TERMS)).astype(float)
    words[:, 0] += 1
    return {"text": mixed, "shape": draw.random((OBJECTS, WIDE)) ** 3, "words": words}


def own(similarity: str, weights: dict[str, float]) -> Doubles:
    """The scores of every object with every other, as an index of the given vectors computes them."""
    total = np.zeros((OBJECTS, OBJECTS))
    for name, weight in weights.items():
        rows = given()[name].astype(np.float32).astype(np.float64)
        if similarity == "cosine":
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        if similarity == "euclidean":
            total -= weight * np.square(rows[:, None] - rows[None]).sum(axis=2)
        else:
            total += weight * (rows @ rows.T)
    return total / sum(weights.values()) if similarity == "cosine" else total


class Place(Kept):
    """A folder with a configuration, a catalog and clicks, learned in this process."""

    def __init__(
        self, folder: Path, similarity: str, weights: dict[str, float], more: str = "", text: str = ""
    ) -> None:
        self.folder, self.file = folder, folder / "tripletd.toml"
        views = (SHAPE if "shape" in weights else "") + (WORDS if "words" in weights else "")
        space = f'similarity = "{similarity}"' if similarity else ""
        self.file.write_text(CONFIG.format(space=space, views=views, more=more, text=text))
        rows = given()
        lines = []
        for number in range(OBJECTS):
            one: dict[str, Any] = {"id": f"o{number}", "text": rows["text"][number].tolist()}
            one["shape"] = rows["shape"][number].tolist()
            held = np.flatnonzero(rows["words"][number])
            one["words"] = {"indices": held.tolist(), "values": rows["words"][number][held].tolist()}
            lines.append(json.dumps({"id": one["id"], "views": {name: one[name] for name in weights}}))
        (folder / "catalog.jsonl").write_text("\n".join(lines))

    def learn(self, lists: int, seed: int = 1) -> None:
        draw, now = np.random.default_rng(seed), int(1000 * time.time())
        lines: list[str] = []
        for number in range(lists):
            query, *shown = (f"o{n}" for n in draw.choice(OBJECTS, 6, replace=False))
            lines.append(
                json.dumps({"id": f"{seed}-{number}", "ts": now, "q": query, "shown": shown, "clicked": [3]})
            )
        clicks = self.folder / f"clicks{seed}.jsonl"
        clicks.write_text("\n".join(lines))
        assert main(["feed", str(clicks), "--config", str(self.file)]) == EX_OK
        assert main(["learn", "--exit-when-caught-up", "--config", str(self.file)]) == EX_OK

    def form(self, number: int) -> Any:
        config = load_config(self.file)
        return serving_form(self.versions, self.versions.load(number), config.serving, keep=False)


def vectors_of(views: Iterable[str]) -> dict[str, Any]:
    """The given vectors as a client has them."""
    rows = {name: given()[name].astype(np.float32) for name in views}
    return {name: csr_array(one) if name == "words" else one for name, one in rows.items()}


CASES: dict[str, tuple[str, dict[str, float], str]] = {
    "by default": ("", {"text": 1.0}, ""),
    "by default, several": ("", {"text": 1.0, "shape": 2.5, "words": 0.4}, ""),
    "cosine, not preconditioned": ("cosine", {"text": 1.0}, 'map = "unit"'),
    "cosine, from the own metric": ("cosine", {"text": 1.0, "shape": 2.5}, '[learner]\nstart = "own"'),
    "cosine, raw when learned": ("cosine", {"text": 1.0}, '[serving]\nscore = "raw"'),
    "inner product": ("inner_product", {"text": 1.0}, ""),
    "inner product, several": ("inner_product", {"text": 1.0, "shape": 2.5, "words": 0.4}, ""),
    "distance": ("euclidean", {"text": 1.0, "shape": 2.5}, ""),
    "distance, sparse": ("euclidean", {"text": 1.0, "words": 0.4}, '[learner]\nstart = "mean"'),
    "dissim": ("cosine", {"text": 1.0}, '[learner]\nalgorithm = "dissim-oasis"'),
    "lego": ("euclidean", {"text": 1.0}, '[learner]\nalgorithm = "lego"\nstart = "own"'),
    "averaged": ("cosine", {"text": 1.0}, '[learner]\nalgorithm = "oasis-averaged"\nstart = "own"'),
    "softmax too": ("cosine", {"text": 1.0}, '[learner]\nalgorithm = "oasis-softmax"\nstart = "own"'),
    "soml": ("cosine", {"text": 1.0, "words": 0.4}, '[learner]\nalgorithm = "soml-da"\nstart = "own"'),
    "blocks": ("cosine", {"text": 1.0, "shape": 2.5}, '[learner]\nalgorithm = "omks-maps"\nstart = "own"'),
    "blocks by distance": ("euclidean", {"text": 1.0, "shape": 2.5}, '[learner]\nalgorithm = "omks-maps"'),
    "pulled back": ("cosine", {"text": 1.0}, '[learner]\nstart = "own"\npull_every = 7\ndecay = 0.1'),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Doubles]:
    similarity, weights, more = CASES[request.param]
    mapped = more if more.startswith("map") else ""
    place = Place(tmp_path, similarity, weights, "" if mapped else more, mapped)
    return place, own(similarity or "cosine", weights)


def judged_scores(place: Place) -> tuple[Catalog, Any]:
    """The catalog, and the scores of every object with every other by version 0 as it is judged."""
    config = load_config(place.file)
    space = config.space_spec()
    catalog = load_catalog(Path(config.catalog.path), space)
    judged = CandidateCache(place.versions, space, catalog, config.serving).open(0)
    folded = judged.scorer.fold([ObjectRef(id=name) for name in catalog.ids])
    return catalog, judged.scorer.catalog(folded)


def test_version_0_is_judged_and_given_to_clients_as_numpy_has_it(case: tuple[Place, Doubles]) -> None:
    place, expected = case
    place.learn(20)
    config = load_config(place.file)
    assert reference_of(place.newest().map).own
    catalog, scores = judged_scores(place)
    if config.space.own_similarity == "euclidean":  # minus a distance, but for what is the query's alone
        scores = scores - scores.diagonal()[:, None]
    size = np.abs(expected).max()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=5e-6 * size)
    learned = place.form(place.newest().number)
    assert not isinstance(learned, DiagonalForm) or "soml" in config.learner.algorithm
    with follow(place.file, "stable") as model:
        assert str(model.model) == "0"
        vectors = vectors_of(catalog.views)
        items = model.items(vectors)
        found = model.scores({name: rows[:4] for name, rows in vectors.items()}, items)
        np.testing.assert_allclose(found, expected[:4], rtol=0, atol=5e-6 * size)
        hits = model.similar({name: rows[5:6] for name, rows in vectors.items()}, items, k=10)
        assert list(hits.rows) == np.argsort(-expected[5], kind="stable")[:10].tolist()


def test_what_version_0_is_is_told_before_and_after(tmp_path: Path) -> None:
    place = Place(tmp_path, "cosine", {"text": 1.0, "shape": 2.5})
    config = load_config(place.file)
    told = "version 0 is your own ranking: the cosine of text (weight 1) and shape (weight 2.5), added up"
    (found,) = (one for one in run_checks(config) if one.key == "space.similarity")
    assert (found.grade, found.text) == ("ok", told)
    assert collect(config)["reference"] == ""
    place.learn(2)
    assert collect(config)["reference"] == told


@pytest.mark.parametrize(
    ("similarity", "text", "lost"),
    [
        ("cosine", 'map = "whiten"', "the map whiten of view text drops directions and moves the origin"),
        ("", "components = 4", "the map whiten of view text drops directions and moves the origin"),
        ("inner_product", 'map = "unit"', "the map unit of view text changes the lengths of vectors"),
        ("", 'map = ["unit", "standardise"]', "the map standardise of view text moves the origin"),
    ],
)
def test_maps_that_lose_the_own_ranking_are_named(
    tmp_path: Path, similarity: str, text: str, lost: str
) -> None:
    place = Place(tmp_path, similarity, {"text": 1.0}, text=text)
    config = load_config(place.file)
    (found,) = (one for one in run_checks(config) if one.key == "space.similarity")
    assert found.grade == "note"
    assert found.text.startswith(f"version 0 is not your own ranking but the cosine after the maps: {lost}")
    assert not space_map(config).similarity
    place.learn(2)
    reference = reference_of(place.newest().map)
    assert reference.own == (text == 'map = "unit"')  # of which the cosine is what it is
    assert map_of(place.versions.load(0)).own is None


@pytest.mark.parametrize("most", [2048, DENSE - 1], ids=["within reach", "wide"])
def test_a_folder_goes_on_with_the_map_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What a configuration leaves out meant whiten once; a folder made so is no other one now."""
    monkeypatch.setattr(schema, "MOST_PRECONDITIONED", most)
    place = Place(tmp_path, "", {"text": 1.0}, text='map = "whiten"')
    place.learn(5)
    place.file.write_text(place.file.read_text().replace('map = "whiten"', ""))
    assert load_config(place.file).space.views["text"].map == ("precondition" if most >= DENSE else "unit")
    place.learn(5, seed=2)
    newest = place.newest()
    assert newest.number > 1
    assert newest.learner["config"]["views"]["text"]["map"] == "whiten"
    assert map_of(place.versions.load(newest.number)).own is None
    place.file.write_text(place.file.read_text().replace("[space]", '[space]\nsimilarity = "cosine"'))
    assert main(["learn", "--exit-when-caught-up", "--config", str(place.file)]) == EX_CONFIG


def test_so_does_one_with_a_whitened_view_beside_another_map(tmp_path: Path) -> None:
    place = Place(tmp_path, "", {"text": 1.0, "shape": 2.5}, text='map = "standardise"')
    named = place.file.read_text().replace("dim = 5\n", 'dim = 5\nmap = "whiten"\n')
    plain = place.file.read_text()
    place.file.write_text(named)
    place.learn(5)
    place.file.write_text(plain)
    place.learn(5, seed=2)
    newest = place.newest()
    assert newest.number > 1
    assert newest.learner["config"]["views"]["shape"]["map"] == "whiten"


def test_a_wide_space_begins_as_the_users_ranking_and_loses_no_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MOST_PRECONDITIONED", DENSE)
    weights = {"text": 1.0, "shape": 2.5}
    place = Place(tmp_path, "", weights)
    assert [view.map for view in load_config(place.file).space.views.values()] == ["unit", "unit"]
    place.learn(5)
    assert place.versions.load(0).arrays["W"].shape == (DENSE + WIDE, DENSE + WIDE)
    _, scores = judged_scores(place)
    np.testing.assert_allclose(scores, own("cosine", weights), rtol=0, atol=5e-6)


def test_views_beside_one_that_names_a_map_lose_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, "", {"text": 1.0, "shape": 2.5}, text='map = "standardise"')
    assert load_config(place.file).space.views["shape"].map == "unit"


def test_learning_begins_where_the_settings_say_and_goes_on_from_there(tmp_path: Path) -> None:
    for start in ("identity", "own", "mean"):
        (tmp_path / start).mkdir()
        more = f'[learner]\nstart = "{start}"\npull_every = 3\nradius = 1e-3'
        place = Place(tmp_path / start, "cosine", {"text": 1.0}, more)
        place.learn(3)
        ranking = map_of(place.versions.load(0)).own
        assert ranking is not None
        wanted = {"identity": np.ones(DENSE), "own": ranking.scaled(), "mean": (ranking.scaled() + 1) / 2}
        np.testing.assert_allclose(place.versions.load(0).arrays["W"], np.diag(wanted[start]), rtol=1e-6)
        place.learn(6, seed=2)
        newest: Any = learner_of(place.versions.load(place.newest().number))
        away = np.linalg.norm(newest.W - np.diag(wanted[start]))
        assert 0 < away < 0.5, "pulled to where it began, after a restart too"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Place, Roles]]:
    place, roles = Place(tmp_path, "cosine", {"text": 1.0, "shape": 2.5}), Roles(tmp_path)
    yield place, roles
    roles.end()


class Roles(RolePlace):
    """Processes over a folder that is there already."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.running = folder, folder / "tripletd.toml", []


def test_a_server_answers_with_it_by_id_and_by_vectors(served: tuple[Place, Roles]) -> None:
    place, roles = served
    place.learn(30)
    expected, role = own("cosine", {"text": 1.0, "shape": 2.5}), roles.start("serve")
    until(lambda: role.get("/v1/similar?id=o3")[0] == 200, role.said)
    for row in (3, 17, 40):
        status, body = role.get(f"/v1/similar?id=o{row}&k=10")
        assert status == 200
        assert body["version"] == "0"
        best = [other for other in np.argsort(-expected[row], kind="stable").tolist() if other != row][:10]
        assert [hit["id"] for hit in body["results"]] == [f"o{other}" for other in best]
        np.testing.assert_allclose([hit["score"] for hit in body["results"]], expected[row, best], atol=5e-6)


def test_keys_without_a_model_are_answered_by_it() -> None:
    ranking = OwnRanking("cosine", np.array([2.0, 1, 0.5], np.float32))
    learner = Keyed(3, KeyedConfig.of(Oasis, slots=2))
    learner.learn_one([1, 0, 1], [0, 1, 0], [1, 1, 0], "a")
    form = KeyedForms(MatrixForms()).make(learner, 3, ServingConfig(), ranking)
    assert isinstance(form.base, DiagonalForm)
    np.testing.assert_array_equal(form.base.weights, ranking.metric)
    model = form.model_of("a")
    assert model is not None
    assert isinstance(model.form(), ServingForm)


@pytest.mark.parametrize("start", ["identity", "own"])
@pytest.mark.parametrize("psd", ["auto", "off"])
def test_steps_behind_version_0_change_it_to_first_order_and_then_it_is_made_anew(
    start: Any, psd: str
) -> None:
    """What follows the learner answers with the own ranking before any step, and at once to the first."""
    draw, dim = np.random.default_rng(5), 6
    ranking = OwnRanking("cosine", draw.uniform(0.5, 2, dim).astype(np.float32), 1.3)
    learner = Oasis(dim, OasisConfig(C=0.01, start=first_diagonal(ranking, start)))
    serving = ServingConfig(power=1.0, psd=psd)
    room = np.empty((2, dim, dim), np.float32) if psd == "auto" else (None, None)
    buffers = BufferArrays({"W": learner.W}, *room)
    updater = FORM_UPDATERS[CARRIED](MatrixForms(), serving, ranking)
    form = updater.follow(updater.exact(learner, 0), learner, buffers)
    items = draw.standard_normal((9, dim)).astype(np.float32)
    np.testing.assert_allclose(form.scores(items, items), ranking.form().scores(items, items), atol=1e-6)
    np.testing.assert_allclose(form.self_scores(items), ranking.form().self_scores(items), rtol=1e-5)
    assert updater.to_install(updater.exact(learner, 0), learner) is None
    before = learner.W.copy()
    learner.learn_one(items[0], items[1], items[2])
    if psd == "off":
        assert isinstance(form, DiagonalForm), "kept until the next form, where it is no function of W"
    else:
        change = (learner.W - before).astype(np.float64)
        expected = np.diag(ranking.metric) + 1.3 * (change + change.T) / 2
        np.testing.assert_allclose(form.fold(items), items @ expected, atol=1e-5)  # type: ignore[attr-defined]
    exact = updater.exact(learner, 1)
    assert isinstance(exact, ServingForm)
    np.testing.assert_allclose(exact.fold(items), items @ (learner.W + learner.W.T) / 2, atol=1e-5)
    assert isinstance(updater.to_install(exact, learner), CarriedForm)
