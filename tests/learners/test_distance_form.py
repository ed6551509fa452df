"""The serving form of a distance: exact scores, and a fold with one offset per item that ranks alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import BlockError, ConfigError, StateError
from learners.dissim import Dissim, DissimConfig
from learners.forms.distance import DistanceForm
from learners.pieces import whole
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


def distances(S: np.ndarray, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    return np.array([[-(q - p) @ S @ (q - p) for p in items] for q in queries])


@KINDS
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_scores_are_minus_the_distances_of_the_psd_part(kind: str, seed: int) -> None:
    rng, W = np.random.default_rng(seed), learned(seed % 5).W
    queries, items = (block(rows(rng, n, DIM), kind) for n in (6, 9))
    form = DistanceForm.from_matrix(W)
    expected = distances(psd(W.astype(float)), dense(queries), dense(items))
    scores = form.scores(queries, items)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=2e-4)
    assert scores.max() <= 1e-4
    np.testing.assert_allclose(np.diag(form.scores(queries, queries)), 0, atol=1e-4)


@KINDS
def test_folded_queries_and_offsets_rank_by_the_distance(kind: str) -> None:
    rng, form = np.random.default_rng(3), DistanceForm.from_matrix(learned().W)
    queries, items = (block(rows(rng, n, DIM, 1.0), kind) for n in (8, 60))
    found = form.fold(queries) @ dense(items).astype(np.float32).T + form.offsets(items)
    exact = distances(psd(learned().W.astype(float)), dense(queries), dense(items))
    np.testing.assert_array_equal(np.argsort(-found, axis=1), np.argsort(-exact, axis=1))
    inner = np.argsort(-(form.fold(queries) @ dense(items).T), axis=1)
    assert not np.array_equal(inner, np.argsort(-exact, axis=1)), "items whose offsets decide"


@KINDS
def test_the_distance_is_euclidean_between_embeddings(kind: str) -> None:
    W, items = learned().W, block(rows(np.random.default_rng(4), 20, DIM, 1.0), kind)
    A, form = factor(W).astype(float), DistanceForm.from_matrix(W)
    np.testing.assert_allclose(A.T @ A, psd(W.astype(float)), atol=1e-4)
    at = dense(items) @ A.T
    expected = -np.square(at[:, None] - at).sum(axis=2)
    np.testing.assert_allclose(form.scores(items, items), expected, atol=1e-3)


def test_beyond_the_full_decomposition_the_most_negative_pairs_go() -> None:
    W, items = learned().W, block(rows(np.random.default_rng(4), 20, DIM, 1.0), "dense")
    form = DistanceForm.from_matrix(W, full_up_to=0, pairs=DIM - 1)
    assert form.S.matrix is None
    full = DistanceForm.from_matrix(W).scores(items, items)
    np.testing.assert_allclose(form.scores(items, items), full, atol=1e-3)


@pytest.mark.parametrize("full_up_to", [0, 100])
def test_its_arrays_give_it_back(full_up_to: int) -> None:
    W, items = learned().W, block(rows(np.random.default_rng(4), 20, DIM, 1.0), "dense")
    form = DistanceForm.from_matrix(W, full_up_to=full_up_to, pairs=5)
    again = DistanceForm.from_arrays(form.arrays(), W)
    assert again.scores(items, items).tobytes() == form.scores(items, items).tobytes()
    with pytest.raises(StateError, match="correction_vectors is missing"):
        DistanceForm.from_arrays({})


def test_it_is_never_normalised_and_refuses_what_does_not_fit() -> None:
    form = DistanceForm.from_matrix(learned().W)
    assert form.normalised is form.S.normalised is False
    assert form.dim == DIM
    with pytest.raises(BlockError, match="dimensions"):
        form.scores(np.ones((1, 3), np.float32), np.ones((1, DIM), np.float32))
    with pytest.raises(ConfigError, match="eigenpairs"):
        DistanceForm.from_matrix(learned().W, full_up_to=0, pairs=DIM)


def test_cutting_the_work_changes_no_bit() -> None:
    items = block(rows(np.random.default_rng(4), 50, DIM), "sparse")
    form = DistanceForm.from_matrix(learned().W)
    thirds = lambda n: [slice(start, min(start + 3, n)) for start in range(0, n, 3)]
    assert form.offsets(items, thirds).tobytes() == form.offsets(items, whole).tobytes()
