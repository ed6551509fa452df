"""The oracle of LEGO against a step worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from .oracle_lego import LegoOracle, lego_objective

Q, C, S = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0])


def test_one_step_on_paper() -> None:
    """u = (1, -1), v = 0, so A'^-1 = I + g u u^T, whose margin is -2/(1 + 2g). g = 1 + 2/(1 + 2g) is
    2g^2 - g - 3 = 0: g = 3/2, and A' = I - 3/8 u u^T."""
    oracle = LegoOracle(2, eta=1.0)
    step = oracle.step(Q, C, S)
    assert step == pytest.approx((-2.0, 3.0, 1.5))
    np.testing.assert_allclose(oracle.A, [[0.625, 0.375], [0.375, 0.625]], atol=1e-9)


def test_the_step_is_where_the_objective_is_least() -> None:
    oracle = LegoOracle(2, eta=1.0)
    oracle.step(Q, C, S)
    best = lego_objective(oracle.A, np.eye(2), Q, C, S, 1.0)
    for g in (1.4, 1.6):
        u = Q - C
        other = np.linalg.inv(np.eye(2) + g * np.outer(u, u))
        assert lego_objective(other, np.eye(2), Q, C, S, 1.0) > best


def test_what_has_no_loss_or_direction_changes_nothing() -> None:
    for q, c, s in ((Q, S, 2 * C), (Q, C, C), ((C + S) / 2, C, S)):
        oracle = LegoOracle(2)
        assert oracle.step(q, c, s).tau == 0
        np.testing.assert_array_equal(oracle.A, np.eye(2))
