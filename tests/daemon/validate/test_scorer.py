"""The scorer gives the form's own scores; version 0's form needs no matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sparse_module

from daemon.validate.evaluator import is_identity
from daemon.validate.scorer import Scorer
from learners.block import as_block
from learners.forms.quadratic import IdentityForm
from learners.forms.serving import ServingForm
from learners.maps import SpaceMap, ViewConfig
from learners.multikernel import Omks, OmksConfig, ViewKernels
from tests.daemon.validate.helpers import judge_of, plain
from tests.learners.examples import triplets


@pytest.mark.parametrize("score", ["normalised", "raw", "distance"])
def test_the_scorer_gives_the_serving_forms_own_scores(world, score):
    world.learn(3000)
    _, objects = judge_of(world)
    form = ServingForm.from_matrix(world.learner.W, score == "normalised")
    form = replace(form, distance=score == "distance")
    scorer, rows = Scorer(form, objects), np.array([5, 3, 99])
    asked = world.mapped.take([1, 2])
    want = form.scores(asked, world.mapped)
    if score == "distance":  # but for what is the query's alone
        want += form.self_scores(asked)[:, None]
    folded = scorer.fold([world.ref(1), world.ref(2, True)])
    np.testing.assert_allclose(scorer.catalog(folded), want, rtol=1e-4, atol=1e-5)
    each = scorer.rows(folded, np.array([[5, 3], [99, 4]]))
    np.testing.assert_allclose(each, [want[0, [5, 3]], want[1, [99, 4]]], rtol=1e-4, atol=1e-5)
    mixed = [world.ref(5), world.ref(3, True), world.ref(99)]
    pairs = scorer.pairs(folded, np.array([1, 0, 1]), scorer.items(mixed))
    np.testing.assert_allclose(pairs, want[[1, 0, 1], rows], rtol=1e-4, atol=1e-5)
    items = scorer.items(mixed)
    np.testing.assert_allclose(scorer.against(folded, items), want[:, rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_form_without_a_matrix_is_the_one_of_the_unit_matrix(world, normalised):
    form, slim = plain(12, normalised), IdentityForm(12, normalised)
    sparse = SpaceMap({"x": ViewConfig("unit")}).fit({"x": csr(world)}).transform({"x": csr(world)})
    for block in (world.mapped, sparse):
        np.testing.assert_allclose(slim.fold(block), form.fold(block), atol=1e-6)
        np.testing.assert_allclose(slim.self_scores(block), form.self_scores(block), atol=1e-6)
    assert is_identity(np.eye(3, dtype=np.float32))
    assert not is_identity(np.eye(3, dtype=np.float32) * 2)
    assert not is_identity(np.array([[1, 0.1], [0, 1]], np.float32))


def csr(world):
    kept = sparse_module.csr_array(np.where(np.abs(world.values) > 1, world.values, 0))
    return as_block(kept)


@pytest.mark.parametrize("power", [1.5, None], ids=["form", "as-learned"])
def test_a_form_that_does_not_fold_is_asked_itself(world, power):
    _, objects = judge_of(world)
    learner = Omks(12, OmksConfig((ViewKernels(0, 12),), triplets=40, objects=64))
    learner.learn_many(triplets(3, 60, 12, "dense"))
    form = learner.form(True, power)
    scorer, rows = Scorer(form, objects), np.array([5, 3, 99])
    want = form.scores(world.mapped.take([1, 2]), world.mapped)
    folded = scorer.fold([world.ref(1), world.ref(2, True)])
    np.testing.assert_allclose(scorer.catalog(folded), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        scorer.rows(folded, np.stack([rows, rows])), want[:, rows], rtol=1e-5, atol=1e-6
    )
    items = scorer.items([world.ref(5), world.ref(3, True), world.ref(99)])
    np.testing.assert_allclose(scorer.against(folded, items), want[:, rows], rtol=1e-5, atol=1e-6)
    pairs = scorer.pairs(folded, np.array([1, 0]), scorer.items([world.ref(5, True), world.ref(3)]))
    np.testing.assert_allclose(pairs, [want[1, 5], want[0, 3]], rtol=1e-5, atol=1e-6)
