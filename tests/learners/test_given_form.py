"""A form in the columns of given vectors folds as the form behind the map does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from learners import DenseBlock, ServingForm
from learners.forms.embedding import given_form
from learners.forms.quadratic import DiagonalForm, FoldingForm, inverse_roots
from learners.forms.serving import BackoffForm
from learners.maps.base import ViewConfig
from learners.maps.linear import linear_space
from learners.maps.space import FittedSpaceMap, SpaceMap

DIM = 24
RNG = np.random.default_rng(3)
OBJECTS = (RNG.standard_normal((400, DIM)) * np.linspace(0.2, 3, DIM) + 0.5).astype(np.float32)


def fitted(kind: str) -> FittedSpaceMap:
    return SpaceMap({"text": ViewConfig(kind, {})}, similarity="cosine").fit(OBJECTS)


def learned() -> ServingForm:
    W = (np.eye(DIM) + 0.3 * RNG.standard_normal((DIM, DIM))).astype(np.float32)
    return ServingForm.from_matrix(W)


def through_the_map(form: FoldingForm, space: FittedSpaceMap, rows: np.ndarray) -> np.ndarray:
    linear, mapped = linear_space(space), space.transform(rows)
    assert linear is not None
    return linear.back(form.fold(mapped) * inverse_roots(form.self_scores(mapped))[:, None])


@pytest.mark.parametrize("kind", ["precondition", "unit", "identity"])
@pytest.mark.parametrize("which", ["learned", "own", "gives way", "gives way by another"])
def test_queries_fold_alike(kind: str, which: str) -> None:
    space = fitted(kind)
    own = space.own
    form: FoldingForm = learned()
    if which == "own":
        assert own is not None
        form = own.form()
    elif which != "learned":
        metric = np.ones(space.dim, np.float32) if own is None else own.metric
        form = BackoffForm.beside(learned(), metric, 0.3, 3.0)
        if which == "gives way by another":
            form = replace(form, familiarity=np.diag(np.linspace(0.1, 9, space.dim)).astype(np.float32))
    linear = linear_space(space)
    assert linear is not None
    made = given_form(form, linear)
    assert made is not None
    rows = OBJECTS[:7].copy()
    rows[3] = 0
    wanted = through_the_map(form, space, rows)
    np.testing.assert_allclose(made.fold(rows), wanted, atol=2e-5 * np.abs(wanted).max())
    assert np.abs(wanted).max() > 0.01


def test_what_has_no_such_form_is_left_to_the_map() -> None:
    linear, shifted = linear_space(fitted("precondition")), linear_space(_shifted())
    assert linear is not None
    assert shifted is not None
    assert given_form(learned(), shifted) is None
    assert (
        given_form(ServingForm.from_matrix(np.eye(DIM, dtype=np.float32), normalised=False), linear) is None
    )
    uneven = DiagonalForm(np.linspace(1, 9, DIM, dtype=np.float32), True)
    assert given_form(uneven, linear) is None  # no diagonal metric of given vectors


def _shifted() -> FittedSpaceMap:
    return SpaceMap({"text": ViewConfig("standardise", {})}).fit(DenseBlock(OBJECTS))
