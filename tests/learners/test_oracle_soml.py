"""The oracles of SOML against examples worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from .oracle_soml import SomlDaOracle, SomlTgOracle, soft


def test_the_soft_threshold() -> None:
    np.testing.assert_allclose(soft(np.array([3.0, -3.0, 0.5, -0.5, 0.0]), 1.0), [2, -2, 0, 0, 0])


def test_truncated_gradient_on_paper() -> None:
    """eta = 1, lambda = 1/2. q = (1, 2, 0), c - s = (1, -1, 0): g = (1, -2, 0), margin 0, loss 1, and
    w = T((1, -2, 0), 1/2) = (1/2, -3/2, 0). Then g = (0, 0, 2), margin 0: T((1/2, -3/2, 2), 1/2) =
    (0, -1, 3/2): all coordinates shrink. The same again has margin 3: nothing changes."""
    oracle = SomlTgOracle(3, eta=1.0, lam=0.5)
    one = oracle.step(*np.array([[1.0, 2, 0], [1, 0, 1], [0, 1, 1]]))
    assert list(one) == [0, 1, 1]
    np.testing.assert_allclose(oracle.w, [0.5, -1.5, 0])
    other = np.array([[0.0, 0, 1], [0, 0, 2], [0, 0, 0]])
    assert list(oracle.step(*other)) == [0, 1, 1]
    np.testing.assert_allclose(oracle.w, [0, -1, 1.5])
    assert list(oracle.step(*other)) == [3, 0, 0]
    np.testing.assert_allclose(oracle.w, [0, -1, 1.5])
    assert oracle.score(np.array([1.0, 1, 2]), np.array([5.0, 1, 1])) == -1 + 3


def test_a_weight_scales_the_gradient_and_not_the_shrinking() -> None:
    oracle = SomlTgOracle(2, eta=0.5, lam=0.2)
    oracle.step(np.ones(2), np.array([1.0, 0]), np.zeros(2), 3.0)
    np.testing.assert_allclose(oracle.w, [0.5 * 3 - 0.5 * 0.2, 0])


def test_dual_averaging_on_paper() -> None:
    """gamma = 1/2, rho = 1, lambda = 1/2. t = 1: g = (1, -2, 0), mean gradient (-1, 2, 0), lambda_1 = 1:
    w = (0, -(2 - 1) / (1/2), 0) = (0, -2, 0). t = 2: g = (0, -1, 0), margin 2: w stays, t counts. t = 3:
    g = (0, 0, 9), margin 0: means (-1/3, 2/3, -3), lambda_3 = 1/2 + 1/(2 sqrt 3) = .789 swallows the first
    two, w_3 = 2 sqrt 3 (3 - lambda_3) = 5 sqrt 3 - 1."""
    oracle = SomlDaOracle(3, gamma=0.5, rho=1.0, lam=0.5)
    assert oracle.step(*np.array([[1.0, 2, 0], [1, 0, 1], [0, 1, 1]]))[:2] == (0, 1)
    np.testing.assert_allclose(oracle.w, [0, -2, 0])
    assert oracle.step(*np.array([[0.0, 1, 0], [0, 0, 0], [0, 1, 0]])) == (2, 0, 0)
    np.testing.assert_allclose(oracle.w, [0, -2, 0])
    assert oracle.step(*np.array([[0.0, 0, 1], [0, 0, 9], [0, 0, 0]]))[:2] == (0, 1)
    np.testing.assert_allclose(oracle.w, [0, 0, 5 * np.sqrt(3) - 1])
    assert oracle.score(np.array([1.0, 0, 1]), np.array([1.0, 1, 2])) == pytest.approx(10 * np.sqrt(3) - 2)


@pytest.mark.parametrize("oracle", [SomlTgOracle(2), SomlDaOracle(2)])
def test_steps_go_towards_the_clicked_one(oracle: SomlTgOracle | SomlDaOracle) -> None:
    """The sign printed in the paper fails here."""
    event = np.array([[1.0, 1], [1, 0], [0, 1]])
    oracle.step(*event)
    assert oracle.step(*event).margin > 0
