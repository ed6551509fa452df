"""OKS over a pool of known kernel values is the library's."""

from __future__ import annotations

import numpy as np
import pytest

from learners import DenseBlock, TripletBatch
from learners.multikernel import KernelConfig, Omks, one_kernel
from learners.oasis import Oasis, OasisConfig
from tests.quality.bench.sets import RawSet, unit
from tests.results.kernels import PRINTED, PoolRows, _hedged, _value
from tests.results.oks_pool import SIGMAS, ObjectPool, PoolFit, centred, printed, rbf

C, COUNT = 0.3, 300


@pytest.fixture(scope="module")
def pool() -> ObjectPool:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 20)
    views = {name: unit(rng.normal(size=(4, 6))[labels] + rng.normal(size=(80, 6))) for name in "ab"}
    return ObjectPool.drawn(RawSet("made", views, labels), 0, 3, (8, 5, 6))


def library_scores(learner: Omks | Oasis, X: np.ndarray, pool: ObjectPool) -> np.ndarray:
    rows = pool.train[pool.triplets(COUNT, 1)]
    learner.learn_many(TripletBatch(*(DenseBlock(X[one]) for one in rows)))
    return learner.similarity(X[pool.test], X[pool.test])


@pytest.mark.parametrize("is_centred", [False, True])
def test_each_kernel_learns_as_the_library_s(pool: ObjectPool, is_centred: bool) -> None:
    X = np.ascontiguousarray(pool.features("pca")[0], np.float32)
    of = centred if is_centred else printed
    configs = [KernelConfig("rbf", sigma, centred=is_centred) for sigma in SIGMAS]
    gamma = float(-1 / np.log(rbf(X, 1.0, pool.train)[0, 1]) * np.linalg.norm(X[0].astype(float) - X[1]))
    for K, config in zip(
        of(X, pool.train), [*configs, KernelConfig("cosine", centred=is_centred)], strict=True
    ):
        fit = PoolFit.of(K, pool, pool.triplets(COUNT, 1), C)
        settings = one_kernel(X.shape[1], config, gamma, C=C, triplets=COUNT, objects=COUNT)
        slow = library_scores(Omks(X.shape[1], settings), X, pool)
        np.testing.assert_allclose(fit.scores(K, pool, pool.test), slow, atol=2e-3)


def test_the_linear_kernel_is_oasis(pool: ObjectPool) -> None:
    X = np.ascontiguousarray(pool.features("given")[1], np.float32)
    K = X.astype(np.float64) @ X.T
    fit = PoolFit.of(K, pool, pool.triplets(COUNT, 1), C)
    slow = library_scores(Oasis(X.shape[1], OasisConfig(C=C)), X, pool)
    np.testing.assert_allclose(fit.scores(K, pool, pool.test), slow, atol=1e-3)


def test_a_budget_that_holds_all_changes_nothing_and_a_small_one_does(pool: ObjectPool) -> None:
    K, triplets = printed(pool.features("pca")[0], pool.train)[1], pool.triplets(COUNT, 1)
    whole = PoolFit.of(K, pool, triplets, C)
    np.testing.assert_array_equal(PoolFit.of(K, pool, triplets, C, COUNT).A, whole.A)
    few = PoolFit.of(K, pool, triplets, C, 10)
    assert 0 < np.count_nonzero(few.A) <= 20 < np.count_nonzero(whole.A)


def test_the_form_without_steps_is_the_kernel(pool: ObjectPool) -> None:
    K = centred(pool.features("whiten")[0], pool.train)[3]
    n = len(pool.train)
    served = PoolFit(np.zeros((n, n)), np.zeros(0)).served(K, pool, 1.5, without_mean=False)
    np.testing.assert_allclose(served, K, atol=1e-9)


def test_parts_have_as_many_of_each_class_and_no_object_twice(pool: ObjectPool) -> None:
    assert [len(part) for part in (pool.train, pool.validation, pool.test)] == [24, 15, 18]
    assert len(np.unique(np.concatenate([pool.train, pool.validation, pool.test]))) == 57
    q, c, s = pool.labels[pool.train[pool.triplets(COUNT, 3)]]
    assert (q == c).all()
    assert (q != s).all()


def test_hedge_leaves_the_kernel_that_errs(pool: ObjectPool) -> None:
    n = len(pool.train)
    right, wrong = (PoolFit(np.zeros((n, n)), np.full(500, margin)) for margin in (1.0, -1.0))
    weights = _hedged("hedge", [right, wrong])
    assert weights[0] > 0.9


def test_a_row_is_that_of_the_c_that_validation_chose(pool: ObjectPool) -> None:
    rows, labels = PoolRows(pool), pool.labels
    alike = (labels[:, None] == labels).astype(float)
    rows.whole(PRINTED, -alike)
    rows.whole(PRINTED, alike)
    assert rows.best(PRINTED) == 1
    assert rows.found[PRINTED][1] == (1.0, 1.0)
    assert _value([[(0.2, 0.9), (0.5, 0.4), (0.1, 0.3)]]) == "0.400 (0.300)"
