"""The serving form of a distance: exact scores, and a fold with one offset per item that ranks alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import BlockError
from learners.distance import Dissim, DissimConfig
from learners.forms.carried import CarriedForm, carried_error
from learners.forms.quadratic import apply_terms, by_distance, terms_of
from learners.forms.serving import ServingForm
from learners.psd import factor

from .examples import block, dense, rows, triplets
from .oracle import psd

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
DIM = 14


def learned(seed: int = 0) -> Dissim:
    """Trained until sym(W) is indefinite."""
    learner = Dissim(DIM, DissimConfig(C=0.3))
    learner.learn_many(triplets(seed, 1500, DIM, "sparse"))
    assert np.linalg.eigvalsh(learner.W.astype(float))[0] < -0.05
    return learner


def form_of(W: np.ndarray, full_up_to: int = 100, pairs: int = 5) -> ServingForm:
    return replace(ServingForm.from_matrix(W, False, full_up_to, pairs), distance=True)


def distances(S: np.ndarray, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    return np.array([[-(q - p) @ S @ (q - p) for p in items] for q in queries])


@KINDS
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_scores_are_minus_the_distances_of_the_psd_part(kind: str, seed: int) -> None:
    rng, W = np.random.default_rng(seed), learned(seed % 5).W
    queries, items = (block(rows(rng, n, DIM), kind) for n in (6, 9))
    form = form_of(W)
    expected = distances(psd(W.astype(float)), dense(queries), dense(items))
    scores = form.scores(queries, items)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=2e-4)
    assert scores.max() <= 1e-4
    np.testing.assert_allclose(np.diag(form.scores(queries, queries)), 0, atol=1e-4)


@KINDS
def test_folded_queries_and_offsets_rank_by_the_distance(kind: str) -> None:
    rng, form = np.random.default_rng(3), form_of(learned().W)
    queries, items = (block(rows(rng, n, DIM, 1.0), kind) for n in (8, 60))
    found = form.fold(queries) @ dense(items).astype(np.float32).T + terms_of(form, form.self_scores(items))
    exact = distances(psd(learned().W.astype(float)), dense(queries), dense(items))
    np.testing.assert_array_equal(np.argsort(-found, axis=1), np.argsort(-exact, axis=1))
    inner = np.argsort(-(form.fold(queries) @ dense(items).T), axis=1)
    assert not np.array_equal(inner, np.argsort(-exact, axis=1)), "items whose offsets decide"


@KINDS
def test_the_distance_is_euclidean_between_embeddings(kind: str) -> None:
    W, items = learned().W, block(rows(np.random.default_rng(4), 20, DIM, 1.0), kind)
    A, form = factor(W).astype(float), form_of(W)
    np.testing.assert_allclose(A.T @ A, psd(W.astype(float)), atol=1e-4)
    at = dense(items) @ A.T
    expected = -np.square(at[:, None] - at).sum(axis=2)
    np.testing.assert_allclose(form.scores(items, items), expected, atol=1e-3)


def test_beyond_the_full_decomposition_the_most_negative_pairs_go() -> None:
    W, items = learned().W, block(rows(np.random.default_rng(4), 20, DIM, 1.0), "dense")
    form = form_of(W, full_up_to=0, pairs=DIM - 1)
    assert form.matrix is None
    full = form_of(W).scores(items, items)
    np.testing.assert_allclose(form.scores(items, items), full, atol=1e-3)


@pytest.mark.parametrize("full_up_to", [0, 100])
def test_carried_on_behind_its_state_it_is_a_distance_still(full_up_to: int) -> None:
    learner, items = learned(), block(rows(np.random.default_rng(4), 20, DIM, 1.0), "dense")
    form = form_of(learner.W, full_up_to)
    carried = CarriedForm.of(form, learner.W)
    assert by_distance(carried)
    np.testing.assert_allclose(carried.scores(items, items), form.scores(items, items), atol=1e-4)
    learner.learn_many(triplets(9, 3, DIM, "sparse"))
    behind = carried.scores(items, items)
    assert np.median(np.abs(np.diag(behind))) < 1e-6  # a few fall below 0 and are clipped
    assert (
        np.abs(behind - form_of(learner.W, full_up_to).scores(items, items)).mean()
        < np.abs(behind).mean() / 4
    )
    same = carried_error(form.fold(items), form.self_scores(items), form, (items, items))
    assert (same.fold, same.norms, same.overlap) == (0.0, 0.0, 1.0)
    found = form.fold(items) @ dense(items).astype(np.float32).T
    inner = np.argsort(-found, axis=1)[:, 0]
    moved = apply_terms(form, found, terms_of(form, form.self_scores(items)))
    assert np.argsort(-moved, axis=1)[:, 0].tolist() == list(range(20)) != inner.tolist()


def test_it_refuses_what_does_not_fit() -> None:
    with pytest.raises(BlockError, match="dimensions"):
        form_of(learned().W).scores(np.ones((1, 3), np.float32), np.ones((1, DIM), np.float32))
