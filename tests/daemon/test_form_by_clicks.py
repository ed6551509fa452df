"""The form of a version where clicks decide: with it the version is judged, kept, followed and told of."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.client import follow
from daemon.config import load_config
from daemon.config.schema import ServingConfig
from daemon.exits import EX_OK
from daemon.look.status import collect
from daemon.replica.form_updates import FORM_UPDATERS
from daemon.replica.loading import BufferArrays
from daemon.versions.algorithms import map_of
from daemon.versions.forms import CARRIED, DEFAULT_FORM, FormByChoice, FormChoice, MatrixForms, as_scored
from daemon.versions.restore import (
    choice_at,
    choice_of,
    described,
    digest_of,
    learner_of,
    serving_form,
)
from learners import Oasis, OasisConfig
from learners.forms.carried import CarriedForm
from learners.forms.serving import BackoffForm, ServingForm
from learners.maps.base import OwnRanking
from tests.daemon.test_own_ranking import OBJECTS, Place, vectors_of

RAW = FormChoice(1.0, 0.0, raw=True)
"""What earlier releases could choose, so that versions have it."""


class Judged(Place):
    """Half of the queries are never learned from, and clicks come at any rank."""

    def __init__(self, folder: Path, similarity: str, more: str = "") -> None:
        super().__init__(folder, similarity, {"text": 1.0}, more)
        self.file.write_text(self.file.read_text().replace("holdout_share = 0.0", "holdout_share = 0.5"))

    def learn(self, lists: int, seed: int = 1) -> None:
        draw, now = np.random.default_rng(seed), int(1000 * time.time())
        clicks = self.folder / f"clicks{seed}.jsonl"
        with clicks.open("w") as file:
            for number in range(lists):
                query, *shown = (f"o{n}" for n in draw.choice(OBJECTS, 6, replace=False))
                one = {"id": f"{seed}-{number}", "ts": now, "q": query, "shown": shown}
                file.write(json.dumps(one | {"clicked": [int(draw.integers(5))]}) + "\n")
        assert main(["feed", str(clicks), "--config", str(self.file)]) == EX_OK
        assert main(["learn", "--exit-when-caught-up", "--config", str(self.file)]) == EX_OK


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Judged(tmp_path, "cosine")


def judged(place: Place, seed: int) -> int:
    """Another 300 lists, learned and judged; the version."""
    place.learn(300, seed=seed)
    assert main(["validate", "--exit-when-caught-up", "--config", str(place.file)]) == EX_OK
    return place.newest().number


def scores_by_hand(place: Place, number: int, choice: FormChoice) -> Any:
    """Of all pairs, from the version's W alone."""
    version = place.versions.load(number)
    fitted, learner = map_of(version), learner_of(version)
    own = fitted.own
    assert own is not None
    W = np.asarray(learner.W, np.float64)  # type: ignore[attr-defined]
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    S = vectors @ np.diag(values.max() * (np.maximum(values, 0) / values.max()) ** choice.power) @ vectors.T
    M = choice.usual * np.trace(S) / len(S) * np.diag(own.metric.astype(np.float64))
    Z = np.asarray(fitted.transform(vectors_of(["text"])).values, np.float64)  # type: ignore[union-attr]
    of_s, of_m = (np.einsum("nd,de,ne->n", Z, one, Z) for one in (S, M))
    g = np.minimum(1, of_s / (choice.familiar * of_m)) ** choice.backoff
    both = of_s + choice.own_share * of_m
    scale = both / (g * of_s + choice.own_share * of_m)
    folded = scale[:, None] * (g[:, None] * (Z @ S) + choice.own_share * (Z @ M))
    return folded @ Z.T / np.sqrt(np.outer(both, both))


def test_a_judged_version_has_its_form_everywhere(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    first = judged(place, 1)
    chosen = choice_of(place.versions, first)
    assert chosen is not None
    assert replace(chosen, usual=1.0, why="") == DEFAULT_FORM
    assert chosen.usual != 1
    second = judged(place, 2)
    chosen = choice_of(place.versions, second)
    assert chosen is not None
    assert replace(chosen, usual=1.0, why="") == DEFAULT_FORM, "the same for each version"
    expected = scores_by_hand(place, second, chosen)
    form = place.form(second)
    assert isinstance(form, BackoffForm)
    mapped = map_of(place.versions.load(second)).transform(vectors_of(["text"]))
    np.testing.assert_allclose(form.scores(mapped, mapped), expected, atol=2e-4)
    for where in (place.folder / "checkpoints", place.file):  # as the folder says, and by the configuration
        with follow(where, str(second)) as model:
            found = model.scores(vectors_of(["text"]), model.items(vectors_of(["text"])))
        np.testing.assert_allclose(found, form.scores(mapped, mapped), atol=1e-5)
    (told,) = (one for one in place.ledger.entries() if one.kind == "KEEP" and one.version == second)
    assert told.measures["form"] == chosen.to_json()
    assert f"served with {chosen.why}" in told.reason
    factor = place.folder / "A.npy"
    assert (
        main(["models", "export", str(second), "--factor", str(factor), "--config", str(place.file)]) == EX_OK
    )
    assert json.loads(factor.with_name("A.npy.json").read_text())["form"] == chosen.told
    capsys.readouterr()
    assert main(["models", "show", str(second), "--config", str(place.file)]) == EX_OK
    assert "power 1.5 with" in capsys.readouterr().out
    assert collect(load_config(place.file))["form"] is None, "version 0 is best"


def test_what_was_not_judged_has_the_form_of_what_was_before_it(place: Place) -> None:
    first = judged(place, 1)
    place.learn(40, seed=2)
    newest = place.newest().number
    assert newest > first
    assert choice_of(place.versions, newest) is None
    chosen = choice_of(place.versions, first)
    assert chosen is not None
    assert choice_at(place.versions, newest) == chosen
    assert choice_at(place.versions, 0) is None
    expected = scores_by_hand(place, newest, chosen)
    mapped = map_of(place.versions.load(newest)).transform(vectors_of(["text"]))
    np.testing.assert_allclose(place.form(newest).scores(mapped, mapped), expected, atol=2e-4)
    with follow(place.file, "latest") as model:
        found = model.scores(vectors_of(["text"]), model.items(vectors_of(["text"])))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_what_an_earlier_release_chose_stands_and_is_not_handed_on(place: Place) -> None:
    place.learn(40)
    number, serving = place.newest().number, load_config(place.file).serving
    other = FormChoice(1.0, 1.0, why="users prefer it")
    made = serving_form(place.versions, place.versions.load(number), serving, chooser=lambda *_: other)
    place.learn(40, seed=3)
    later = place.newest().number
    assert choice_at(place.versions, later) == other, "as long as it is not judged"
    early = serving_form(place.versions, place.versions.load(later), serving)
    assert isinstance(early, BackoffForm)
    assert early.share == 1.0
    assert place.versions.attached_meta(later, "serving") is None, "nobody but its judge gives it a form"
    later = judged(place, 2)
    kept = place.form(number)
    assert isinstance(kept, BackoffForm)
    assert isinstance(made, BackoffForm)
    assert kept.share == made.share == 1.0
    assert choice_of(place.versions, number) == other
    chosen = choice_of(place.versions, later)
    assert chosen is not None
    assert replace(chosen, usual=1.0, why="") == DEFAULT_FORM


def test_a_form_that_was_kept_before_forms_were_chosen_stands(place: Place) -> None:
    place.learn(40)
    number, config = place.newest().number, load_config(place.file)
    older = config.serving.model_copy(update={"form": "fixed", "power": 1.2})
    made = serving_form(place.versions, place.versions.load(number), older)
    assert isinstance(made, ServingForm)
    again = judged(place, 2)
    assert isinstance(place.form(again), BackoffForm)
    kept = place.form(number)
    assert isinstance(kept, ServingForm)
    np.testing.assert_array_equal(kept.matrix, made.matrix)


@pytest.mark.parametrize("written", ["power = 1.5", "own_share = 0.5", 'form = "fixed"'])
def test_who_writes_a_form_gets_it(tmp_path: Path, written: str) -> None:
    place = Judged(tmp_path, "cosine", f"[serving]\n{written}")
    number = judged(place, 1)
    assert choice_of(place.versions, number) is None
    assert isinstance(place.form(number), ServingForm)
    meta = place.versions.attached_meta(number, "serving")
    assert meta is not None
    own_share = {"own_share": 0.5} if "own_share" in written else {}
    assert meta["settings"].items() >= ({"power": 1.5} | own_share).items()
    assert "form" not in meta["settings"]


def test_who_writes_both_chooses_what_is_taken_before_anything_was_judged() -> None:
    assert ServingConfig.model_validate({"power": 1.0}).form == "fixed"
    assert ServingConfig.model_validate({"power": 1.0, "form": "judged"}).form == "judged"
    assert ServingConfig().form == "judged"


@pytest.mark.parametrize(
    ("similarity", "more"),
    [
        ("inner_product", ""),
        ("euclidean", ""),
        ("cosine", '[serving]\nscore = "raw"'),
        ("cosine", '[serving]\npsd = "off"'),
        ("cosine", '[learner]\nalgorithm = "soml-da"'),
    ],
)
def test_other_forms_stay_as_configured(tmp_path: Path, similarity: str, more: str) -> None:
    place = Judged(tmp_path, similarity, more)
    number = judged(place, 1)
    assert choice_of(place.versions, number) is None
    assert not isinstance(place.form(number), BackoffForm)


def test_steps_behind_a_version_are_followed_in_its_form() -> None:
    draw, dim = np.random.default_rng(5), 6
    ranking = OwnRanking("cosine", draw.uniform(0.5, 2, dim).astype(np.float32), 1.3)
    learner = Oasis(dim, OasisConfig(C=0.1))
    items = 0.3 * draw.standard_normal((9, dim)).astype(np.float32)
    learner.learn_one(items[0], items[1], items[2])
    choices = {1: FormChoice(1.0, 0.3, 0.85, 0.7), 2: FormChoice(1.5, 1.0, 0.85, 0.7)}
    room = np.empty((2, dim, dim), np.float32)
    buffers = BufferArrays({"W": learner.W}, *room)
    kind, serving = MatrixForms(), ServingConfig()
    updater = FORM_UPDATERS[CARRIED](kind, serving, ranking, choices.get)
    exact = updater.exact(learner, 1)
    assert isinstance(exact, BackoffForm)
    form = updater.follow(exact, learner, buffers)
    assert isinstance(form, BackoffForm)
    assert isinstance(form.learned, CarriedForm)
    np.testing.assert_allclose(form.fold(items), exact.fold(items), atol=1e-4)
    learner.learn_one(items[3], items[4], items[5])
    anew = updater.exact(learner, 1)
    assert isinstance(anew, BackoffForm)
    gone, left = (np.linalg.norm(one.fold(items) - anew.fold(items)) for one in (exact, form))
    assert left < gone / 10, "what was learned is followed exactly at power 1"
    # the other side, and what a refinement brings, in the form of the version by then
    other = Oasis.from_state({name: one.copy() for name, one in learner.state().items()}, OasisConfig(C=0.1))
    beside = BufferArrays({"W": other.W}, *np.empty((2, dim, dim), np.float32))
    updater.bring(form, beside)
    there = updater.like(form, 1, other, beside)
    np.testing.assert_array_equal(there.scores(items, items), form.scores(items, items))
    later = updater.to_install(updater.exact(learner, 2), learner)
    assert isinstance(later, BackoffForm)
    assert later.share == 1.0
    expected = kind.make(learner, 2, serving, ranking, choices[2])
    np.testing.assert_allclose(later.scores(items, items), expected.scores(items, items), atol=1e-4)


def test_raw_scores_are_followed_without_norms() -> None:
    draw, dim = np.random.default_rng(5), 6
    ranking = OwnRanking("cosine", draw.uniform(0.5, 2, dim).astype(np.float32), 1.3)
    learner = Oasis(dim, OasisConfig(C=0.1))
    items = 0.3 * draw.standard_normal((9, dim)).astype(np.float32)
    learner.learn_one(items[0], items[1], items[2])
    buffers = BufferArrays({"W": learner.W}, *np.empty((2, dim, dim), np.float32))
    updater = FORM_UPDATERS[CARRIED](MatrixForms(), ServingConfig(), ranking, {1: RAW}.get)
    form = updater.follow(updater.exact(learner, 1), learner, buffers)
    assert isinstance(form, CarriedForm)
    learner.learn_one(items[3], items[4], items[5])
    anew = updater.exact(learner, 1)
    assert isinstance(anew, ServingForm)
    assert not anew.normalised
    for one in (form, updater.to_install(anew, learner)):
        assert one is not None
        np.testing.assert_allclose(one.scores(items, items), anew.scores(items, items), atol=1e-4)


def take_raw(now: FormChoice | None, learned: FormByChoice, own: OwnRanking) -> FormChoice:
    assert learned(RAW).matrix is learned(FormChoice(1.0, 1.0)).matrix, "decomposed once"
    return replace(RAW, why=f"{RAW.told}: because")


def raw_by_hand(place: Place, number: int) -> Any:
    """Of all pairs, from the version's W alone."""
    version = place.versions.load(number)
    W = np.asarray(learner_of(version).W, np.float64)  # type: ignore[attr-defined]
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    Z = np.asarray(map_of(version).transform(vectors_of(["text"])).values, np.float64)  # type: ignore[union-attr]
    return Z @ vectors @ np.diag(np.maximum(values, 0)) @ vectors.T @ Z.T


def test_raw_scores_are_the_same_everywhere(place: Place) -> None:
    place.learn(60)
    number, serving = place.newest().number, load_config(place.file).serving
    made = serving_form(place.versions, place.versions.load(number), serving, chooser=take_raw)
    chosen = choice_of(place.versions, number)
    assert chosen is not None
    assert chosen.raw
    mapped = map_of(place.versions.load(number)).transform(vectors_of(["text"]))
    for form in (made, place.form(number)):
        assert not form.normalised
        np.testing.assert_allclose(form.scores(mapped, mapped), raw_by_hand(place, number), atol=2e-4)
    for where in (place.folder / "checkpoints", place.file):
        with follow(where, str(number)) as model:
            found = model.scores(vectors_of(["text"]), model.items(vectors_of(["text"])))
        np.testing.assert_allclose(found, raw_by_hand(place, number), atol=2e-4)
    place.learn(40, seed=2)
    newest = place.newest().number
    assert newest > number
    with follow(place.file, "latest") as model:
        found = model.scores(vectors_of(["text"]), model.items(vectors_of(["text"])))
    np.testing.assert_allclose(found, raw_by_hand(place, newest), atol=2e-4)


def test_a_chosen_form_has_a_digest_of_its_own() -> None:
    """So that nobody who means a fixed form takes it for theirs."""
    config = as_scored(ServingConfig(), None)
    fixed, chosen = described(config), described(config, DEFAULT_FORM)
    assert digest_of(fixed) != digest_of(chosen)
    assert digest_of(chosen) != digest_of(described(config, replace(DEFAULT_FORM, usual=2.0)))
    assert json.loads(json.dumps(chosen)) == chosen
