"""The compiled OASIS steps compute what the formulas say, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import DEGENERATE, PASSIVE, UPDATED, Oasis, OasisConfig, Outcome

from .examples import block, dense, matrices, rows, triplets
from .oracle_oasis import OasisOracle
from .oracle_step import run

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


@KINDS
@given(
    seed=st.integers(0, 2**32 - 1),
    dim=st.integers(1, 20),
    n=st.integers(0, 25),
    C=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    symmetric=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_steps_equal_the_oracle(kind: str, seed: int, dim: int, n: int, C: float, symmetric: bool) -> None:
    batch = triplets(seed, n, dim, kind)
    learner = Oasis(dim, OasisConfig(C=C, symmetric="online" if symmetric else "off"))
    info = learner.learn_many(batch)
    oracle = OasisOracle(dim, C, symmetric)
    steps, W = run(oracle, matrices(batch)), oracle.W
    scale = max(1.0, float(np.abs(W).max()))
    np.testing.assert_allclose(learner.W, W, atol=2e-4 * scale)
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=2e-3 * scale, rtol=1e-3)
    np.testing.assert_allclose(info.tau, [step.tau for step in steps], atol=1e-3 * C, rtol=1e-2)


@KINDS
def test_outcomes_name_what_happened(kind: str) -> None:
    unit = np.eye(3, dtype=np.float32)
    cases = [
        (unit[0], unit[1], unit[2], UPDATED),
        (unit[0], 2 * unit[0], unit[1], PASSIVE),
        (unit[0], unit[1], unit[1], DEGENERATE),
        (0 * unit[0], unit[1], unit[2], DEGENERATE),
    ]
    for query, clicked, skipped, expected in cases:
        info = Oasis(3).learn_one(*(block(v[None], kind) for v in (query, clicked, skipped)))
        assert info.outcome[0] == expected
        assert (info.tau[0] > 0) == (expected == UPDATED)
        assert info.loss[0] == (0 if expected == PASSIVE else 1)


@KINDS
def test_tau_is_the_loss_over_the_squared_norm_or_C(kind: str) -> None:
    query, clicked, skipped = (block(np.float32([v]), kind) for v in ([1, 0], [0, 2], [0, -2]))
    small_step = Oasis(2, OasisConfig(C=10.0)).learn_one(query, clicked, skipped)
    assert small_step.tau[0] == np.float32(1 / 16)
    capped = Oasis(2, OasisConfig(C=0.01)).learn_one(query, clicked, skipped)
    assert capped.tau[0] == np.float32(0.01)


@KINDS
def test_an_uncapped_step_makes_the_margin_one(kind: str) -> None:
    batch = triplets(7, 1, 12, kind)
    learner = Oasis(12, OasisConfig(C=1e6))
    learner.learn_many(batch)
    margin = learner.similarity(batch.query, batch.clicked) - learner.similarity(batch.query, batch.skipped)
    assert margin[0, 0] == pytest.approx(1.0, abs=1e-4)


@KINDS
def test_weights_scale_C(kind: str) -> None:
    batch = triplets(3, 40, 8, kind)
    heavy, plain = Oasis(8, OasisConfig(C=0.05)), Oasis(8, OasisConfig(C=0.1))
    one = heavy.learn_many(batch, np.full(40, 2.0))
    two = plain.learn_many(batch)
    np.testing.assert_array_equal(heavy.W, plain.W)
    np.testing.assert_array_equal(one.tau, two.tau)
    idle = Oasis(8)
    info = idle.learn_many(batch, np.zeros(40))
    assert info.count(Outcome.PASSIVE) == 40
    np.testing.assert_array_equal(idle.W, np.eye(8))


@given(seed=st.integers(0, 2**32 - 1), C=st.sampled_from([0.01, 0.1, 1.0]), clean=st.booleans())
@settings(max_examples=40, deadline=None)
def test_mistake_bound_holds_for_every_comparison_matrix(seed: int, C: float, clean: bool) -> None:
    """Theorem 1: mistakes <= max(R^2, 1/C) (||U - I||_F^2 + 2 C sum of U's losses), R >= ||V||_F, any U.

    A mistake is a margin <= 0. U: the identity, a random matrix, the learned one, and the one that made the
    clicks.
    """
    rng, dim, n = np.random.default_rng(seed), 6, 300
    truth = rng.standard_normal((dim, dim)) * 3
    q, a, b = (rows(rng, n, dim, 1.0) for _ in range(3))
    better = np.einsum("nd,de,ne->n", q, truth, a - b) > 0
    keep = better | (rng.random(n) < (0 if clean else 0.1))
    clicked, skipped = np.where(keep[:, None], a, b), np.where(keep[:, None], b, a)
    learner, mistakes = Oasis(dim, OasisConfig(C=C)), 0
    for t in range(n):
        info = learner.learn_one(q[t], clicked[t], skipped[t])
        mistakes += bool(info.loss[0] >= 1)
    V = q.astype(float)[:, :, None] * (clicked - skipped).astype(float)[:, None, :]
    R = np.sqrt((V**2).sum(axis=(1, 2)).max())
    for U in (np.eye(dim), truth, 20 * truth, learner.W.astype(float), rng.standard_normal((dim, dim))):
        losses = np.maximum(0, 1 - (V * U).sum(axis=(1, 2))).sum()
        bound = max(R**2, 1 / C) * (((U - np.eye(dim)) ** 2).sum() + 2 * C * losses)
        assert mistakes <= bound * (1 + 1e-6)


@KINDS
def test_symmetric_steps_keep_W_symmetric_bit_for_bit(kind: str) -> None:
    learner = Oasis(17, OasisConfig(symmetric="online"))
    info = learner.learn_many(triplets(11, 500, 17, kind))
    assert info.count(Outcome.UPDATED) > 200
    assert learner.W.tobytes() == np.ascontiguousarray(learner.W.T).tobytes()
    plain = Oasis(17)
    plain.learn_many(triplets(11, 500, 17, kind))
    assert not np.array_equal(plain.W, plain.W.T)


@KINDS
@pytest.mark.parametrize("symmetric", ["off", "online"])
def test_projections_happen_at_exact_event_counts(kind: str, symmetric: str) -> None:
    batch = triplets(5, 30, 9, kind)
    learner = Oasis(9, OasisConfig(psd_every=10, symmetric=symmetric))  # type: ignore[arg-type]
    learner.learn_many(batch)
    oracle = OasisOracle(9, 0.1, symmetric == "online", psd_every=10)
    run(oracle, matrices(batch))
    np.testing.assert_allclose(learner.W, oracle.W, atol=1e-4)
    assert learner.events == 30
    assert np.linalg.eigvalsh(learner.W.astype(float)).min() > -1e-5
    learner.learn_many(triplets(6, 9, 9, kind))
    assert not np.array_equal(learner.W, learner.W.T) or symmetric == "online"


def test_dense_and_sparse_input_learn_the_same() -> None:
    learned = []
    for kind in ("dense", "sparse"):
        learner = Oasis(15)
        learner.learn_many(triplets(2, 300, 15, kind))
        learned.append(learner.W)
    np.testing.assert_allclose(learned[0], learned[1], atol=1e-5)


@KINDS
def test_similarity_is_the_bilinear_form(kind: str) -> None:
    batch = triplets(4, 60, 10, kind)
    learner = Oasis(10)
    learner.learn_many(batch)
    expected = dense(batch.query) @ learner.W.astype(float) @ dense(batch.clicked).T
    np.testing.assert_allclose(learner.similarity(batch.query, batch.clicked), expected, atol=1e-5)
