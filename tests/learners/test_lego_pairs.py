"""LEGO by pairs: distances come nearer to their targets by the step that minimises the printed objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist

from learners import BlockError, ConfigError, LegoPairs, LegoPairsConfig, Reason, pair_targets

from .examples import rows
from .oracle_lego import LegoPairsOracle, pair_objective

DIM = 5


def some(seed: int, n: int) -> Any:
    return rows(np.random.default_rng(seed), n, DIM, 1.0)


def test_a_step_on_paper() -> None:
    """z = (1, -1), d = 2, y = 0, eta = 1/2: d' = 1, g = 1/2, A = I - 1/4 z z^T."""
    oracle = LegoPairsOracle(2, eta=0.5)
    step = oracle.step(np.array([1.0, 0]), np.array([0.0, 1]), np.array([1.0, 0]))
    np.testing.assert_allclose(np.array(step), [-2, 3, 0.5])
    np.testing.assert_allclose(oracle.A, [[0.75, 0.25], [0.25, 0.75]], atol=1e-12)


@pytest.mark.parametrize("target", [0.0, 0.4, 9.0])
def test_the_step_minimises_divergence_plus_squared_loss(target: float) -> None:
    rng, oracle, eta = np.random.default_rng(3), LegoPairsOracle(3), 0.3
    root = rng.standard_normal((3, 3))
    oracle.A = root @ root.T + np.eye(3)
    before, z = oracle.A.copy(), rng.standard_normal(3)
    oracle.toward(z, target, eta)
    least = pair_objective(oracle.A, before, z, target, eta)
    for _ in range(50):
        away = rng.standard_normal((3, 3)) * 1e-3
        assert pair_objective(oracle.A + away + away.T, before, z, target, eta) > least


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_pairs_with_their_own_targets_are_learned_as_the_oracle_learns_them(kind: Any) -> None:
    left, right = some(1, 40), some(2, 40)
    targets = np.random.default_rng(4).uniform(0, 6, 40)
    learner, oracle = LegoPairs(DIM, LegoPairsConfig(eta=0.2)), LegoPairsOracle(DIM, 0.2)
    info = learner.learn_pairs(kind(left), kind(right), targets)
    for u, v, y, loss, tau in zip(left, right, targets, info.loss, info.tau, strict=True):
        z = u.astype(float) - v
        assert loss == pytest.approx((z @ oracle.A @ z - y) ** 2 / 2, rel=1e-3, abs=1e-4)
        assert tau == pytest.approx(abs(oracle.toward(z, float(y), 0.2)), rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(learner.W, oracle.A, atol=1e-4)
    assert np.array_equal(learner.W, learner.W.T)
    assert np.linalg.eigvalsh(learner.W.astype(float))[0] > 0


def test_a_distance_comes_nearer_to_its_target_from_either_side() -> None:
    u, v = some(1, 1), some(2, 1)
    start = float(-LegoPairs(DIM).similarity(u, v)[0, 0])
    for target in (start / 3, start * 3):
        learner = LegoPairs(DIM, LegoPairsConfig(eta=0.1))
        found = [start]
        for _ in range(60):
            learner.learn_pairs(u, v, [target])
            found.append(float(-learner.similarity(u, v)[0, 0]))
        away = np.abs(np.array(found) - target)
        assert (np.diff(away) <= 1e-4).all()
        assert away[-1] < 0.3 * away[0]


def test_a_triplet_is_a_similar_pair_and_then_a_dissimilar_one() -> None:
    q, c, s = some(1, 9), some(2, 9), some(3, 9)
    config = LegoPairsConfig(0.2, 0.1, 3.0)
    triplets, pairs = LegoPairs(DIM, config), LegoPairs(DIM, config)
    triplets.learn_many(q, c, s)
    left, right = np.repeat(q, 2, axis=0), np.stack([c, s], axis=1).reshape(-1, DIM)
    pairs.learn_pairs(left, right, [0.1, 3.0] * 9)
    assert triplets.W.tobytes() == pairs.W.tobytes()


def test_what_is_no_pair_is_rejected_and_changes_nothing() -> None:
    u, v = some(1, 4), some(2, 4)
    v[1, 2], v[3] = np.nan, u[3]
    learner = LegoPairs(DIM)
    info = learner.learn_pairs(u, v, [1.0, 1.0, -1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert info.reason.astype(bool).tolist() == [False, True, True, False]
    assert Reason(info.reason[1]) is Reason.NOT_FINITE
    assert info.tau[3] == 0
    with pytest.raises(BlockError, match="as many"):
        learner.learn_pairs(u, v, [1.0])


def test_targets_of_a_sample_are_percentiles_of_its_distances() -> None:
    sample = some(5, 30)
    near, far = pair_targets(sample)
    distances = pdist(sample.astype(float)) ** 2
    assert near == pytest.approx(np.percentile(distances, 5), rel=1e-6)
    assert far == pytest.approx(np.percentile(distances, 95), rel=1e-6)
    with pytest.raises(BlockError, match="two rows"):
        pair_targets(sample[:1])


@pytest.mark.parametrize("targets", [(-0.1, 1.0), (1.0, 1.0), (0.0, float("inf"))])
def test_targets_that_are_none_are_refused(targets: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="similar < dissimilar"):
        LegoPairsConfig(0.1, *targets)
