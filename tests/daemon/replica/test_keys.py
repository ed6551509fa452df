"""Models of single keys: chosen by verdict, independent of the version they came from, bounded in number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from daemon.config.schema import ServingConfig
from daemon.replica.keys import NOT_LEARNED, SHARE, UNKNOWN, ChosenModel, HeldModel, KeyModels
from daemon.replica.view import ModelId, View
from daemon.versions.forms import FormKind, KeyedForms, MatrixForms, UnstoredForms
from daemon.versions.key_verdicts import COSINE, LEARNED, KeyVerdict, KeyVerdicts
from learners.block import DenseBlock, TripletBatch
from learners.keyed import Keyed, KeyedConfig
from learners.oasis import Oasis, OasisConfig
from learners.soml import SomlDa, SomlDaConfig

DIM = 5
SERVING = ServingConfig.model_validate({})
OASIS, DA = OasisConfig(C=0.1), SomlDaConfig()
Kind = tuple[Callable[[], Keyed], FormKind]

KINDS: dict[str, Kind] = {
    "oasis": (
        lambda: Keyed(
            DIM,
            KeyedConfig(
                lambda dim: Oasis(dim, OASIS), lambda arrays: Oasis.from_state(arrays, OASIS, copy=False), 4
            ),
        ),
        MatrixForms(),
    ),
    "soml-da": (
        lambda: Keyed(
            DIM,
            KeyedConfig(
                lambda dim: SomlDa(dim, DA), lambda arrays: SomlDa.from_state(arrays, DA, copy=False), 4
            ),
        ),
        UnstoredForms(lambda made, serving: made.form(serving.score == "normalised")),
    ),
}


def rows(count: int, seed: int) -> DenseBlock:
    return DenseBlock(np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32))


def learn(learner: Keyed, key: str, seed: int, count: int = 50) -> None:
    parts = (rows(count, 3 * seed + part) for part in range(3))
    learner.learn_many(TripletBatch(*parts, keys=np.full(count, key.encode(), "S64")))


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def view_of(learner: Keyed, kind: Kind, version: int = 1, behind: int = 0) -> View:
    form, total = KeyedForms(kind[1]).make(learner, version, SERVING), 10 * version + behind
    return View(ModelId(version, behind, total=total), "map", form, total)


def held(found: ChosenModel | str) -> HeldModel:
    assert isinstance(found, ChosenModel)
    return found.model


def test_a_key_is_answered_by_its_own_model_or_told_why_not(kind: Kind) -> None:
    learner, verdicts = kind[0](), KeyVerdicts()
    learn(learner, "a", 1)
    learn(learner, "b", 2)
    models = KeyModels(lambda: verdicts, 4)
    view = view_of(learner, kind)
    own = held(models.choose(view, "a")).form
    wanted = kind[1].make(learner.learner_of("a"), 1, SERVING)  # type: ignore[arg-type]
    assert np.array_equal(own.scores(rows(3, 9), rows(4, 8)), wanted.scores(rows(3, 9), rows(4, 8)))
    assert models.choose(view, "c") == UNKNOWN
    learned, cosine = KeyVerdict(9, 1, 0, LEARNED), KeyVerdict(9, 0, 1, COSINE)
    verdicts = KeyVerdicts((1,), {"a": ((1,), (learned,)), "b": ((1,), (cosine,))})
    assert held(models.choose(view, "a")).form is own
    assert models.choose(view, "b") == NOT_LEARNED


def test_without_a_key_version_0_answers(kind: Kind) -> None:
    learner = kind[0]()
    learn(learner, "a", 1)
    untrained = kind[1].make(kind[0]().untrained, 0, SERVING)
    found, wanted = (form.scores(rows(3, 9), rows(4, 8)) for form in (view_of(learner, kind).form, untrained))
    assert np.array_equal(found, wanted)


def test_a_model_outlives_the_buffers_it_was_read_from(kind: Kind) -> None:
    learner, plain = kind[0](), ServingConfig.model_validate({"psd": "off"})  # such a form reads W itself
    learn(learner, "a", 1)
    view = replace(view_of(learner, kind), form=KeyedForms(kind[1]).make(learner, 1, plain))
    form = held(KeyModels(KeyVerdicts, 4).choose(view, "a")).form
    before = form.scores(rows(3, 9), rows(4, 8))
    learn(learner, "a", 7)
    assert np.array_equal(form.scores(rows(3, 9), rows(4, 8)), before)


def test_a_version_that_leaves_a_model_as_it_was_leaves_what_was_prepared_of_it(kind: Kind) -> None:
    learner, made = kind[0](), []
    learn(learner, "a", 1)
    learn(learner, "b", 2)
    models = KeyModels(KeyVerdicts, 4, made.append)
    old = {key: held(models.choose(view_of(learner, kind), key)) for key in "ab"}
    learn(learner, "b", 3)
    new = {key: held(models.choose(view_of(learner, kind, 2), key)) for key in "ab"}
    assert new["a"] is old["a"]
    assert new["b"] is not old["b"]
    assert held(models.choose(view_of(learner, kind, 2), "b")) is new["b"]
    assert made == [1, 2, 3]


def test_no_more_models_are_held_than_there_is_room_for(kind: Kind) -> None:
    learner, made = kind[0](), []
    for number, key in enumerate("abc"):
        learn(learner, key, number)
    view, models = view_of(learner, kind), KeyModels(KeyVerdicts, 2, made.append)
    first = [held(models.choose(view, key)) for key in "aba"]
    assert first[0] is first[2]
    models.choose(view, "c")  # b was not asked for longest
    assert held(models.choose(view, "a")) is first[0]
    assert held(models.choose(view, "b")) is not first[1]
    assert (made, len(models.held())) == ([1, 2, 2, 2], 2)


def test_behind_a_version_a_model_answers_for_a_while_and_says_how_old_it_is(kind: Kind) -> None:
    learner, now = kind[0](), [100.0]
    models = KeyModels(KeyVerdicts, 4, hold_s=2.0, clock=lambda: now[0])

    def asked(behind: int, version: int = 1) -> ChosenModel:
        learn(learner, "a", behind)
        found = models.choose(view_of(learner, kind, version, behind), "a")
        assert isinstance(found, ChosenModel)
        return found

    first = asked(1)
    now[0] += 1.9
    second = asked(2)
    assert (second.model is first.model, second.formed) == (True, 11)
    now[0] += 0.1
    third = asked(3)
    assert (third.model is first.model, third.formed) == (False, 13)
    assert asked(0, version=2).formed == 20  # a version is answered as it is
    third.model.seconds = 5.0
    models.choose(view_of(learner, kind, 1, 11), "a")
    now[0] += 2.0 + 3 * 5.0 / SHARE
    assert asked(15).formed == 25
