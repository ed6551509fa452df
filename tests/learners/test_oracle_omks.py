"""The oracles of OKS and OMKS: examples worked on paper, and the identities that join them to OASIS."""

from __future__ import annotations

import numpy as np
import pytest

from .examples import matrices, triplets
from .oracle_combination import Given, Hedge, PassiveAggressive
from .oracle_kernels import cosine, intersection, linear, mean, of_map, on_columns, polynomial, rbf
from .oracle_oasis import OasisOracle
from .oracle_oks import OksOracle
from .oracle_omks import MappedOasisOracle, OmksOracle
from .oracle_step import Doubles, Oracle, Rows, all_scores, run

SQUARE = polynomial(2, 1.0, 0.0)
FIRST = np.array([[1.0, 0], [1, 1], [2, 0]])
SECOND = np.array([[1.0, 0], [0, 1], [0, -1]])


def scores(oracle: Oracle, rows: Rows) -> Doubles:
    """Of some queries and clicked ones."""
    return all_scores(oracle, rows[0][:6], rows[1][:6])


def squares(x: Doubles) -> Doubles:
    """phi(x)^T phi(y) = (x^T y)^2."""
    return np.outer(x, x).ravel()


def test_kernels_on_paper() -> None:
    x, y = np.array([3.0, 0]), np.array([0.0, 4])
    assert (linear(x, y), linear(x, x + y)) == (0, 9)
    assert (cosine(x, y), cosine(x, x), cosine(x, -x), cosine(x, 0 * x)) == (0.5, 1, 0, 0.5)
    assert rbf(2.5)(x, y) == pytest.approx(np.exp(-2))
    assert intersection(np.array([0.5, 0.25]), np.array([0.25, 1])) == 0.5
    assert polynomial(3, 0.5, 1.0)(np.array([2.0, 1]), np.array([1.0, 0])) == 8
    assert mean([linear, SQUARE])(x, x) == (9 + 81) / 2
    assert on_columns(linear, 1, 2)(x, x) == 0


def test_a_kernel_step_on_paper() -> None:
    """k(x, y) = (x^T y)^2; q = (1, 0), c = (1, 1), s = (2, 0): margin 1 - 4 = -3, loss 4, k(q, q) = 1,
    k(c, c) - 2 k(c, s) + k(s, s) = 4 - 8 + 16 = 12, tau = 1/3; then S(q, c) = 1 + (4 - 4)/3 = 1, S(q, s) =
    4 + (4 - 16)/3 = 0."""
    oracle = OksOracle(SQUARE, C=1.0)
    np.testing.assert_allclose(oracle.step(*FIRST), (-3, 4, 1 / 3))
    assert oracle.score(FIRST[0], FIRST[1]) == pytest.approx(1)
    assert oracle.score(FIRST[0], FIRST[2]) == pytest.approx(0)
    assert len(oracle.support) == 1


def test_two_kernels_on_paper() -> None:
    """k_1 linear, k_2 = (x^T y)^2, beta = 1/2. First: margins -1 and -3, z = (1, 1), theta = (1/2, 1/2),
    f = -2. S_1: tau = 2/2, W = [[0, 1], [0, 1]]; S_2: tau = 1/3. Second: q = (1, 0), c = (0, 1), s = (0, -1):
    S_1 = 1 - (-1) = 2; S_2(q, c) = (1 - 0)/3 = S_2(q, s): margin 0, z = (0, 1), theta = (2/3, 1/3). Its k_2
    has k(c, c) - 2 k(c, s) + k(s, s) = 0: no step. f(q, c) = 2/3 + 1/9."""
    members = [OksOracle(linear, C=1.0), OksOracle(SQUARE, C=1.0)]
    oracle = OmksOracle(members, Hedge(2, beta=0.5))
    np.testing.assert_allclose(oracle.step(*FIRST), (-2, 3, 1))
    np.testing.assert_allclose(oracle.combination.theta, [0.5, 0.5])
    np.testing.assert_allclose(oracle.step(*SECOND), (1, 0, 0), atol=1e-12)
    np.testing.assert_allclose(oracle.combination.theta, [2 / 3, 1 / 3])
    assert oracle.wrong == [[1, 1], [0, 1]]
    assert oracle.score(SECOND[0], SECOND[1]) == pytest.approx(7 / 9)


def test_combinations_on_paper() -> None:
    """z = (1, 0), beta = 1/2: Hedge (1/3, 2/3). With a share of 0.3: .7 of it and .15 each. Memory 1/2, the
    same again: log theta = 1.5 log(1/2). Passive-aggressive, margins (-1, 2) from (1/2, 1/2): loss 1/2,
    ||x||^2 = 5, tau = 1/10, theta = (.4, .7)."""
    margins, awake = np.array([-1.0, 2]), np.ones(2, bool)
    hedge, shared, short = Hedge(2, 0.5), Hedge(2, 0.5, share=0.3), Hedge(2, 0.5, memory=0.5)
    for rule in (hedge, shared, short, short):
        rule.update(margins, awake)
    np.testing.assert_allclose(hedge.theta, [1 / 3, 2 / 3])
    np.testing.assert_allclose(shared.theta, [0.7 / 3 + 0.15, 1.4 / 3 + 0.15])
    np.testing.assert_allclose(short.theta[0] / short.theta[1], 0.5**1.5)
    learned = PassiveAggressive(2, C=1.0)
    learned.update(margins, awake)
    np.testing.assert_allclose(learned.raw, [0.4, 0.7])
    np.testing.assert_allclose(learned.theta, [4 / 11, 7 / 11])
    given = Given([1, 3])
    given.update(margins, awake)
    np.testing.assert_allclose(given.theta, [0.25, 0.75])


def test_a_kernel_that_sleeps_keeps_its_weight_and_takes_no_step() -> None:
    views = [(0, 1), (1, 2)]
    members = [OksOracle(on_columns(linear, *view), C=1.0) for view in views]
    oracle = OmksOracle(members, Hedge(2, beta=0.5), views)
    oracle.step(np.array([1.0, 0]), np.array([1.0, 1]), np.array([2.0, 0]))
    assert [len(one.support) for one in members] == [1, 0]
    np.testing.assert_allclose(oracle.combination.theta, [1 / 2, 1 / 2])


def test_ten_thousand_mistakes_do_not_underflow() -> None:
    rule = Hedge(3, 0.5)
    for _ in range(10_000):
        rule.update(np.array([-1.0, -1, -1]), np.ones(3, bool))
    np.testing.assert_allclose(rule.theta, [1 / 3] * 3)


def test_those_awake_share_what_they_had_together() -> None:
    """theta = (1/3, 1/3, 1/3), the third sleeps, the first errs, beta = 1/2: (2/9, 4/9, 1/3)."""
    rule = Hedge(3, 0.5)
    rule.update(np.array([-1.0, 1, -1]), np.array([True, True, False]))
    np.testing.assert_allclose(rule.theta, [2 / 9, 4 / 9, 1 / 3])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("C", [0.1, 5.0])
def test_oks_with_the_linear_kernel_is_oasis(seed: int, C: float) -> None:
    rows = matrices(triplets(seed, 25, 5, "dense"))
    kernel, plain = OksOracle(linear, C), OasisOracle(5, C)
    np.testing.assert_allclose(run(kernel, rows), run(plain, rows), atol=1e-9)
    np.testing.assert_allclose(scores(kernel, rows), scores(plain, rows), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_omks_with_one_kernel_is_oks(seed: int) -> None:
    rows = matrices(triplets(seed, 25, 5, "dense"))
    many, one = OmksOracle([OksOracle(rbf(0.7))], Hedge(1, 0.9)), OksOracle(rbf(0.7))
    np.testing.assert_allclose(run(many, rows), run(one, rows), atol=1e-12)
    np.testing.assert_allclose(scores(many, rows), scores(one, rows), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_oasis_on_an_explicit_map_is_oks_on_its_kernel(seed: int) -> None:
    rows = matrices(triplets(seed, 25, 3, "dense"))
    mapped = OmksOracle([MappedOasisOracle(lambda x: x, 3), MappedOasisOracle(squares, 9)], Hedge(2, 0.8))
    kernels = OmksOracle([OksOracle(linear), OksOracle(of_map(squares))], Hedge(2, 0.8))
    np.testing.assert_allclose(run(mapped, rows), run(kernels, rows), atol=1e-9)
    np.testing.assert_allclose(scores(mapped, rows), scores(kernels, rows), atol=1e-9)
