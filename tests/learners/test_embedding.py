"""Vectors for an index that is not ours: their inner product is the served score, by brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from learners.block import Block, SparseBlock, as_block
from learners.errors import ConfigError
from learners.forms.blocks import BlocksForm
from learners.forms.carried import CarriedForm
from learners.forms.embedding import Embedding, root_of
from learners.forms.quadratic import DiagonalForm, IdentityForm, ServedForm
from learners.forms.serving import BackoffForm, ServingForm, usual_ratio
from learners.maps.linear import linear_space
from learners.maps.space import FittedSpaceMap, SpaceMap, ViewConfig
from learners.multikernel.form import AsLearned

DIM, QUERIES, ITEMS = 12, 9, 40


def rows(count: int, seed: int, thin: bool = False, dim: int = DIM) -> Any:
    made = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    if not thin:
        return made
    made[np.random.default_rng(seed + 1).random(made.shape) < 0.6] = 0
    return sparse.csr_array(made)


def learned(normalised: bool = True, power: float = 1.5, noise: float = 0.6, **more: Any) -> ServingForm:
    W = np.eye(DIM) + noise * np.random.default_rng(7).standard_normal((DIM, DIM))
    return ServingForm.from_matrix(W.astype(np.float32), normalised, power=power, **more)


def unprojected(normalised: bool, distance: bool = False) -> ServingForm:
    """sym(W) with negative eigenvalues left in it, as psd = "off" serves it."""
    W = (np.eye(DIM) + np.random.default_rng(8).standard_normal((DIM, DIM))).astype(np.float32)
    none = np.zeros((DIM, 0), np.float32), np.zeros(0, np.float32)
    return ServingForm(None, *none, normalised, W, distance=distance)


def beside_own(familiar: float = 0.85) -> BackoffForm:
    metric = np.random.default_rng(5).uniform(0.2, 3, DIM).astype(np.float32)
    form = learned()
    return BackoffForm.beside(form, metric, 0.3, usual_ratio(form, metric, rows(30, 1)), familiar)


def shown_by_another() -> BackoffForm:
    """A form that gives way by what another matrix shows."""
    shows = np.random.default_rng(11).standard_normal((DIM, DIM)).astype(np.float32)
    return replace(beside_own(), familiarity=shows @ shows.T / np.float32(DIM))


def blocks(normalised: bool, power: float | None = 1.5) -> BlocksForm:
    widths = (5, 4, 3)
    W = np.random.default_rng(9).standard_normal(sum(width**2 for width in widths)).astype(np.float32)
    return BlocksForm.from_blocks(widths, W, np.array([0.5, 0.3, 0.2]), normalised, power)


def plain(block: Block) -> np.ndarray:
    dense = block.checked_csr().toarray() if isinstance(block, SparseBlock) else block.values
    return dense.astype(np.float64)


def brute_force(embedding: Embedding, queries: Any, items: Any) -> np.ndarray:
    asked, held = plain(embedding.queries(queries)), plain(embedding.documents(items))
    if embedding.similarity == "inner_product":
        return asked @ held.T
    return -np.square(asked[:, None] - held[None]).sum(axis=2)


WEIGHTS = np.random.default_rng(6).uniform(0, 2, DIM).astype(np.float32)
ONE_VECTOR: dict[str, ServedForm] = {
    "cosine": IdentityForm(DIM, True),
    "inner product": IdentityForm(DIM, False),
    "diagonal": DiagonalForm(WEIGHTS, True),
    "diagonal, by distance": DiagonalForm(WEIGHTS, False, True),
    "sharpened": learned(),
    "untrained": learned(noise=0.0),
    "raw": learned(normalised=False),
    "distance": replace(learned(normalised=False), distance=True),
    "blocks": blocks(True),
    "blocks, raw": blocks(False),
    "blocks, distance": replace(blocks(False), distance=True),
}
TWO_VECTORS: dict[str, ServedForm] = {
    "gives way": beside_own(),
    "gives way, to all": beside_own(3.0),
    "gives way, by another": shown_by_another(),
    "indefinite": unprojected(True),
    "indefinite, raw": unprojected(False),
    "indefinite, distance": unprojected(False, True),
    "the ends removed": learned(noise=1.0, full_up_to=0, pairs=1),
    "indefinite blocks": blocks(True, None),
}


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", [*ONE_VECTOR, *TWO_VECTORS])
def test_the_product_of_two_vectors_is_the_score(name: str, thin: bool) -> None:
    form = (ONE_VECTOR | TWO_VECTORS)[name]
    queries, items = rows(QUERIES, 2, thin), rows(ITEMS, 3, thin)
    embedding, scores = Embedding.of(form), form.scores(queries, items)
    found = brute_force(embedding, queries, items)
    np.testing.assert_allclose(found, scores, atol=2e-5 * np.abs(scores).max())
    assert embedding.symmetric == (name in ONE_VECTOR)
    assert embedding.documents(items).dim == embedding.queries(queries).dim == embedding.dim


@pytest.mark.parametrize("name", ["cosine", "diagonal", "sharpened", "blocks", "gives way"])
def test_vectors_of_a_normalised_form_have_unit_length(name: str) -> None:
    vectors = plain(Embedding.of((ONE_VECTOR | TWO_VECTORS)[name]).documents(rows(ITEMS, 3)))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_what_is_sparse_and_has_a_diagonal_root_stays_sparse() -> None:
    items = rows(ITEMS, 3, thin=True)
    for name in ("cosine", "diagonal", "untrained"):
        assert isinstance(Embedding.of(ONE_VECTOR[name]).documents(items), SparseBlock)
    assert isinstance(Embedding.of(TWO_VECTORS["the ends removed"]).documents(items), SparseBlock)


def test_nothing_is_written_into_what_is_given() -> None:
    for form in (ONE_VECTOR | TWO_VECTORS).values():
        for thin in (False, True):
            given = as_block(rows(ITEMS, 3, thin))
            before = given.values.copy()
            Embedding.of(form).documents(given)
            Embedding.of(form).queries(given)
            np.testing.assert_array_equal(given.values, before)


def test_the_two_sides_differ_only_where_a_query_gives_way() -> None:
    items, form = rows(200, 4), beside_own()
    embedding = Embedding.of(form)
    gives = embedding.given_way(items)
    assert 0 < gives.sum() < len(gives)
    asked, held = plain(embedding.queries(items)), plain(embedding.documents(items))
    apart = np.abs(asked - held).max(axis=1)
    assert apart[~gives].max() < 1e-5 < apart[gives].max()
    swapped = form.scores(items, items)
    assert np.abs(swapped - swapped.T).max() > 0.01, "no one vector for each object gives these scores"
    assert not Embedding.of(learned()).given_way(items).any()


def test_objects_without_anything_score_nothing() -> None:
    nothing = np.zeros((2, DIM), np.float32)
    for form in (ONE_VECTOR | TWO_VECTORS).values():
        embedding = Embedding.of(form)
        if embedding.similarity == "inner_product":
            assert np.isfinite(brute_force(embedding, nothing, rows(ITEMS, 3))).all()


def test_the_root_is_the_one_of_the_form_however_it_was_found() -> None:
    form = learned()
    root, made = root_of(form), form.matrix
    assert root is not None
    assert made is not None
    R = np.asarray(root.matrix, np.float64)
    np.testing.assert_allclose(R, R.T, atol=1e-6)
    np.testing.assert_allclose(R @ R, made, atol=1e-5)
    assert np.linalg.eigvalsh(R)[0] > -1e-5
    moved = root_of(replace(form, matrix=(made * np.float32(1.001)).astype(np.float32)))
    assert moved is not None
    assert np.abs(np.asarray(moved.matrix) - R).max() < 1e-2, "the next version lies near"


def test_what_is_no_inner_product_is_refused() -> None:
    class Pairs:
        dim, normalised = DIM, True

    with pytest.raises(ConfigError, match="omks-maps"):
        Embedding.of(Pairs())  # type: ignore[arg-type]
    assert not hasattr(AsLearned, "fold"), "what stands for the forms of OKS and OMKS above"
    form = learned()
    assert form.matrix is not None
    assert root_of(CarriedForm.of(form, np.eye(DIM, dtype=np.float32))) is None


MAPS = {
    "as given": SpaceMap({"x": ViewConfig("identity")}, unit=False),
    "unit": SpaceMap({"x": ViewConfig("unit")}),
    "own": SpaceMap(
        {"x": ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig("precondition")]})},
        similarity="cosine",
    ),
    "whitened": SpaceMap({"x": ViewConfig("whiten", {"components": 7})}),
    "standardised": SpaceMap({"x": ViewConfig("standardise")}),
    "whitened unit rows": SpaceMap(
        {"x": ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig("whiten")]})}
    ),
    "several": SpaceMap(
        {
            "x": ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig("precondition")]}),
            "y": ViewConfig("unit"),
        },
        similarity="cosine",
        weights={"y": 2.0},
    ),
    "several, unit": SpaceMap({"x": ViewConfig("unit"), "y": ViewConfig("unit")}),
}
NOT_LINEAR = {
    "rff": SpaceMap({"x": ViewConfig("rff", {"components": 16})}),
    "whitened unit rows": MAPS.pop("whitened unit rows"),
    "several, whitened row by row": SpaceMap({"x": ViewConfig("whiten"), "y": ViewConfig("whiten")}),
}


def fitted(plan: SpaceMap) -> tuple[FittedSpaceMap, dict[str, Any]]:
    given = {name: rows(ITEMS, 20 + place) + 0.3 for place, name in enumerate(plan.views)}
    return plan.fit(given), given


@pytest.mark.parametrize("name", MAPS)
def test_a_folded_query_finds_in_the_given_vectors_what_it_finds_in_mapped_ones(name: str) -> None:
    space, given = fitted(MAPS[name])
    linear = linear_space(space)
    assert linear is not None
    mapped = space.transform(given)
    W = np.random.default_rng(3).standard_normal((space.dim, space.dim)) / 3 + np.eye(space.dim)
    form = ServingForm.from_matrix(W.astype(np.float32))
    folded = form.fold(mapped.slice(0, 6))
    back, held = linear.back(folded).astype(np.float64), plain(linear.given(given))
    assert back.shape == (6, linear.dim)
    inside, outside = folded @ plain(mapped).T, back @ held.T
    for view in linear.views:  # what a shift adds is the query's own
        if view.linear.shift is not None:
            outside -= (back[:, view.columns] @ view.linear.shift)[:, None]
    own = (outside / inside).mean(axis=0)  # the object's own factor
    np.testing.assert_allclose(outside, inside * own, atol=1e-3 * np.abs(outside).max())
    assert (own > 0).all()


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_space_that_is_not_linear_says_so(name: str) -> None:
    assert linear_space(fitted(NOT_LINEAR[name])[0]) is None


def test_terms_are_taken_back_by_their_idf() -> None:
    given = abs(rows(ITEMS, 5, thin=True))
    space = SpaceMap({"x": ViewConfig("tfidf")}).fit(given)
    linear = linear_space(space)
    assert linear is not None
    assert linear.sparse
    folded = learned().fold(space.transform(given).slice(0, 4))
    inside = folded @ plain(space.transform(given)).T
    outside = linear.back(folded) @ given.toarray().T
    own = (outside / inside).mean(axis=0)
    np.testing.assert_allclose(outside, inside * own, rtol=1e-3, atol=1e-4)
