"""Every learner computes what its oracle, written from the paper's formulas, says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from .examples import block as as_kind
from .examples import matrices, rows, triplets
from .learners_under_test import EVERY_ARITHMETIC_INPUT, EVERY_INPUT
from .oracle_step import all_scores, run
from .under_test import DIM, UnderTest, decided


@EVERY_INPUT
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(10, 16), size=st.sampled_from([0.3, 1.0, 3.0]))
@settings(max_examples=4)
def test_losses_steps_and_scores_are_those_of_the_formulas(
    subject: UnderTest, kind: str, seed: int, n: int, size: float
) -> None:
    batch = triplets(seed, n, DIM, kind, size)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], n)
    learner, oracle = subject.make(), subject.oracle(DIM)
    info = learner.learn_many(batch, weights)
    steps = run(oracle, matrices(batch), weights)
    same = decided(oracle, n)
    for name in ("loss", "tau"):
        expected = np.array([getattr(step, name) for step in steps[: same + 1]])
        got = getattr(info, name)[: same + 1]
        np.testing.assert_allclose(got, expected, atol=1e-3, rtol=1e-2, err_msg=name)
    if same < n:
        return
    some = rows(np.random.default_rng(seed), 4, DIM, 1.0)
    expected = all_scores(oracle, some.astype(float), some.astype(float))
    scores = learner.similarity(as_kind(some, kind), as_kind(some, kind))
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(scores, expected, atol=5e-4 * scale)


@EVERY_ARITHMETIC_INPUT
def test_small_dimensions(subject: UnderTest, kind: str) -> None:
    for dim in range(subject.least_dim, subject.least_dim + 3):
        batch = triplets(1, 20, dim, kind)
        learner, oracle = subject.make(dim), subject.oracle(dim)
        info = learner.learn_many(batch)
        assert learner.dim == dim
        losses = [step.loss for step in run(oracle, matrices(batch))]
        same = decided(oracle, 20) + 1
        np.testing.assert_allclose(info.loss[:same], losses[:same], atol=1e-3, rtol=1e-2, err_msg=str(dim))


@EVERY_INPUT
def test_before_any_event_it_scores_as_its_formula_does(subject: UnderTest, kind: str) -> None:
    rng = np.random.default_rng(0)
    queries, items = rows(rng, 5, DIM), rows(rng, 9, DIM)
    scores = subject.make().similarity(as_kind(queries, kind), as_kind(items, kind))
    expected = all_scores(subject.oracle(DIM), queries.astype(float), items.astype(float))
    assert scores.shape == (5, 9)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
