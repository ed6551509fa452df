"""The oracles of OASIS and Dissim-OASIS against examples worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from .oracle import psd
from .oracle_oasis import DissimOracle, OasisDiagonalOracle, OasisOracle

EVENT = np.array([[1.0, 2], [1, 0], [0, 1]])


def test_a_step_on_paper() -> None:
    """q = (1, 2), c = (1, 0), s = (0, 1), W = I: margin 1 - 2 = -1, loss 2, V = [[1, -1], [2, -2]],
    ||V||^2 = 10, tau = 2/10: W = [[1.2, -.2], [.4, .6]], and the margin is 1."""
    oracle = OasisOracle(2, C=1.0)
    np.testing.assert_allclose(np.array(oracle.step(*EVENT)), [-1, 2, 0.2])
    np.testing.assert_allclose(oracle.W, [[1.2, -0.2], [0.4, 0.6]])
    np.testing.assert_allclose(np.array(oracle.step(*EVENT)), [1, 0, 0], atol=1e-12)


def test_C_caps_the_step_and_a_weight_scales_C() -> None:
    oracle = OasisOracle(2, C=0.05)
    np.testing.assert_allclose(np.array(oracle.step(EVENT[0], EVENT[1], EVENT[2], 2.0)), [-1, 2, 0.1])
    np.testing.assert_allclose(oracle.W, [[1.1, -0.1], [0.2, 0.8]])
    assert oracle.step(EVENT[0], EVENT[1], EVENT[2], 0.0).tau == 0


def test_a_diagonal_step_on_paper() -> None:
    """g = (1, -2), margin 1 - 2, loss 2, ||g||^2 = 5, tau = 2/5: w = (1.4, .2), and the margin is 1. Where g
    is 0 there is no direction to go."""
    oracle = OasisDiagonalOracle(2, C=1.0)
    np.testing.assert_allclose(np.array(oracle.step(*EVENT)), [-1, 2, 0.4])
    np.testing.assert_allclose(oracle.w, [1.4, 0.2])
    np.testing.assert_allclose(np.array(oracle.step(*EVENT)), [1, 0, 0], atol=1e-12)
    assert oracle.step(np.array([1.0, 0]), np.array([0.0, 1]), np.zeros(2)) == (0, 1, 0)
    assert oracle.score(np.array([2.0, 1]), np.array([1.0, 5])) == pytest.approx(2 * 1.4 + 5 * 0.2)


def test_a_symmetric_step_on_paper() -> None:
    """(V + V^T) / 2 = [[1, .5], [.5, -2]]: W = I + .2 of it."""
    oracle = OasisOracle(2, C=1.0, symmetric=True)
    oracle.step(*EVENT)
    np.testing.assert_allclose(oracle.W, [[1.2, 0.1], [0.1, 0.6]])


def test_a_projection_on_paper() -> None:
    """[[1, 2], [2, 1]] has the eigenvalues 3 along (1, 1) and -1 along (1, -1)."""
    np.testing.assert_allclose(psd(np.array([[1.0, 2], [2, 1]])), [[1.5, 1.5], [1.5, 1.5]])
    np.testing.assert_allclose(psd(np.array([[1.0, 4], [0, 1]])), [[1.5, 1.5], [1.5, 1.5]])


def test_projections_come_after_their_number_of_events() -> None:
    """q = (2, 0), c - s = (-1, 0): margin -2, loss 3, V = [[-2, 0], [0, 0]], ||V||^2 = 4, tau = 3/4, W_11 =
    -1/2: the projection makes it 0."""
    oracle = OasisOracle(2, C=9.0, psd_every=2)
    passive = np.array([[2.0, 0], [1, 0], [0, 0]])
    oracle.step(*passive)
    oracle.step(*passive[[0, 2, 1]])
    np.testing.assert_allclose(oracle.W, [[0, 0], [0, 1]], atol=1e-12)


def test_a_dissim_step_on_paper() -> None:
    """q = (1, 0), c = (0, 1), s = (1, 1): u = (1, -1), v = (0, -1), S'(q, c) = -2, S'(q, s) = -1, loss 2,
    V' = [[-1, 1], [1, 0]], ||V'||^2 = 3, tau = 2/3: W = [[1/3, 2/3], [2/3, 1]], margin 1."""
    oracle, event = DissimOracle(2, C=1.0), np.array([[1.0, 0], [0, 1], [1, 1]])
    np.testing.assert_allclose(np.array(oracle.step(*event)), [-1, 2, 2 / 3])
    np.testing.assert_allclose(oracle.W, [[1 / 3, 2 / 3], [2 / 3, 1]])
    assert oracle.step(*event).margin == pytest.approx(1)


@pytest.mark.parametrize("seed", range(20))
def test_dissim_is_the_symmetric_step_on_m_and_e(seed: int) -> None:
    """With e = c - s, m = 2 q - c - s: margin m^T W e, V' = (e m^T + m e^T) / 2, ||V'||^2 = (||e||^2 ||m||^2
    + (e^T m)^2) / 2."""
    rng = np.random.default_rng(seed)
    q, c, s = rng.standard_normal((3, 4))
    oracle, e, m = DissimOracle(4, C=0.7), c - s, 2 * q - c - s
    step = oracle.step(q, c, s)
    assert step.margin == pytest.approx(m @ e)
    V = (np.outer(e, m) + np.outer(m, e)) / 2
    norm = ((e @ e) * (m @ m) + (e @ m) ** 2) / 2
    assert np.sum(V * V) == pytest.approx(norm)
    assert step.tau == pytest.approx(min(0.7, max(0.0, 1 - m @ e) / norm))
    np.testing.assert_allclose(oracle.W, np.eye(4) + step.tau * V)


def test_nothing_to_go_by_is_no_step() -> None:
    same = np.array([[1.0, 2], [3, 1], [3, 1]])
    middle = np.array([[1.0, 1], [0, 2], [2, 0]])
    assert OasisOracle(2).step(*same) == (0, 1, 0)
    assert OasisOracle(2).step(*(0 * same[:1]), *np.eye(2)).tau == 0
    assert DissimOracle(2).step(*same).tau == DissimOracle(2).step(*middle).tau == 0
