"""Served as learned: the scores that the papers give, over a search and as vectors, by float64 formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from learners import (
    BaseLearner,
    BilinearForm,
    ConfigError,
    DenseBlock,
    Embedding,
    Oasis,
    OasisConfig,
    SearchIndex,
    SomlDa,
    SomlDaConfig,
    SparseBlock,
)
from learners.distance import Dissim
from learners.forms.quadratic import folds

from .examples import block, matrices, rows, triplets
from .learners_under_test import BY_KEY, LEARNERS, WaitingDissim, WaitingOasis
from .oracle_oasis import OasisOracle
from .oracle_soml import SomlDaOracle
from .oracle_step import all_scores, run
from .under_test import DIM, UnderTest, decided

N = 60


def some(seed: int, n: int) -> Any:
    return rows(np.random.default_rng(seed), n, DIM, 1.0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("subject", [one for one in LEARNERS if one not in BY_KEY], ids=str)
def test_it_has_the_scores_of_the_formulas(subject: UnderTest, kind: str) -> None:
    batch, learner, oracle = triplets(5, 14, DIM, kind), subject.make(), subject.oracle(DIM)
    learner.learn_many(batch)
    run(oracle, matrices(batch))
    if decided(oracle, 14) < 14:
        return
    queries, items = some(1, 5), some(2, 9)
    expected = all_scores(oracle, queries.astype(float), items.astype(float))
    form = learner.as_learned()
    assert not form.normalised
    scores = form.scores(block(queries, kind), block(items, kind))
    np.testing.assert_allclose(scores, expected, atol=5e-4 * max(1.0, float(np.abs(expected).max())))


def asymmetric(learner: Any = Oasis) -> tuple[Any, np.ndarray]:
    """A learner whose W is far from symmetric, and the W of its oracle."""
    made, oracle = learner(DIM, OasisConfig(C=0.5)), OasisOracle(DIM, 0.5)
    batch = triplets(3, N, DIM, "dense")
    made.learn_many(batch)
    run(oracle, matrices(batch))
    assert np.abs(oracle.W - oracle.W.T).max() > 0.1
    return made, oracle.W


@pytest.mark.parametrize("learner", [Oasis, WaitingOasis])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_query_folds_to_the_transpose(learner: Any, copy: bool, kind: str) -> None:
    made, W = asymmetric(learner)
    queries = some(1, 6)
    folded = made.as_learned(copy).fold(block(queries, kind))
    np.testing.assert_allclose(folded, queries @ W, atol=1e-4)
    assert np.abs(folded - queries @ W.T).max() > 0.1


@pytest.mark.parametrize("learner", [WaitingOasis, WaitingDissim])
def test_in_place_it_follows_the_steps_and_a_copy_does_not(learner: Any) -> None:
    made = learner(DIM)
    made.learn_many(triplets(3, N + 1, DIM, "dense"))
    copied, followed = made.as_learned(), made.as_learned(copy=False)
    items = some(2, 9)
    before = copied.scores(items, items)
    np.testing.assert_allclose(followed.scores(items, items), before, atol=1e-5)
    made.learn_many(triplets(4, 5, DIM, "dense"))
    assert np.array_equal(copied.scores(items, items), before)
    now = made.similarity(items, items)
    assert np.abs(now - before).max() > 1e-3
    np.testing.assert_allclose(followed.scores(items, items), now, atol=1e-4)


def test_a_search_finds_the_best_by_the_asymmetric_score() -> None:
    made, W = asymmetric()
    queries, items = some(1, 7), some(2, 50)
    scores, found = SearchIndex(made.as_learned(), items).search(queries, k=5)
    expected = queries.astype(float) @ W @ items.T
    assert np.array_equal(found, np.argsort(-expected, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :5], atol=1e-4)


def test_a_distance_that_is_not_positive_keeps_its_sign() -> None:
    W = np.diag(np.array([1.0, -3.0, *np.ones(DIM - 2)], np.float32))
    made = Dissim.from_state({"W": W, "events": np.array(0, np.int64)})
    queries, items = some(1, 7), some(2, 50)
    apart = queries[:, None].astype(float) - items
    expected = -np.einsum("qid,de,qie->qi", apart, W, apart)
    assert expected.max() > 1
    form = made.as_learned()
    np.testing.assert_allclose(form.scores(queries, items), expected, atol=1e-4)
    scores, _ = SearchIndex(form, items).search(queries, k=3)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :3], atol=1e-4)
    assert (form.self_scores(items) < 0).any()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_it_is_an_embedding_of_two_vectors(kind: str) -> None:
    made, W = asymmetric()
    embedding = Embedding.of(made.as_learned())
    assert (embedding.symmetric, embedding.similarity, embedding.dim) == (False, "inner_product", DIM)
    queries, items = some(1, 7), some(2, 50)
    asked, held = embedding.queries(block(queries, kind)), embedding.documents(block(items, kind))
    documents = held.values if isinstance(held, DenseBlock) else held.checked_csr().toarray()
    assert isinstance(asked, DenseBlock)
    np.testing.assert_allclose(asked.values @ documents.T, queries @ W @ items.T, atol=1e-4)


def soml() -> tuple[SomlDa, np.ndarray]:
    """A metric with weights of both signs, most of them 0, and that of its oracle."""
    settings, batch = (0.3, 0.0, 0.01), triplets(3, N, DIM, "sparse")
    made, oracle = SomlDa(DIM, SomlDaConfig(*settings)), SomlDaOracle(DIM, *settings)
    made.learn_many(batch)
    run(oracle, matrices(batch))
    w = np.array([oracle.score(one, np.ones(DIM)) for one in np.eye(DIM)])
    assert (w < 0).any()
    assert (w > 0).any()
    assert (w == 0).any()
    return made, w


def test_soml_is_its_sparse_weights_of_either_sign() -> None:
    made, w = soml()
    form = made.as_learned()
    np.testing.assert_allclose(form.weights, w, atol=1e-5)
    assert np.array_equal(form.weights == 0, w == 0)
    queries, items = some(1, 7), some(2, 50)
    expected = (queries * w) @ items.T
    scores, found = SearchIndex(form, items).search(queries, k=5)
    assert np.array_equal(found, np.argsort(-expected, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :5], atol=1e-4)
    assert np.abs(expected - made.form(normalised=False).scores(queries, items)).max() > 0.1


def test_vectors_of_a_sparse_metric_stay_sparse() -> None:
    made, w = soml()
    embedding = Embedding.of(made.as_learned())
    queries, items = sparse.csr_array(some(1, 7)), sparse.csr_array(some(2, 9))
    rows_of = embedding.queries(queries), embedding.documents(items)
    assert not any(isinstance(one, DenseBlock) for one in rows_of)
    asked, held = (one.checked_csr() for one in rows_of if isinstance(one, SparseBlock))
    assert asked.nnz <= queries.nnz
    expected = (queries.toarray() * w) @ items.toarray().T
    np.testing.assert_allclose((asked @ held.T).toarray(), expected, atol=1e-4)


def test_a_learner_without_such_a_form_says_so() -> None:
    class Bare(Oasis):
        as_learned = BaseLearner.as_learned  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="Bare has no form of its scores"):
        Bare(3).as_learned()


def test_it_folds() -> None:
    form = BilinearForm(np.eye(3, dtype=np.float32))
    assert folds(form)
