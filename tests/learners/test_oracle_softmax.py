"""The oracle of the softmax learner against an example worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from .oracle_softmax import SoftmaxOracle

E1, E2, ONE, OTHER = (np.array(x) for x in ([1.0, 0], [0.0, 1], [0.6, 0.8], [0.8, 0.6]))


def test_a_step_on_two_pairs_on_paper() -> None:
    """Queries e1 and e2, clicked (3/5, 4/5) and (4/5, 3/5), both cosines 3/5 with 4/5 for the other's object.

    With p the softmax of the wrong object, the gradient of the first pair's loss at A = I is p times
    ((-.096, -.296), (-.296, .096)), that of the second the same with coordinates exchanged. Their mean is p
    ((0, -.296), (-.296, 0)): the first step of Adam adds rate / 2 = 1/10 off the diagonal.
    """
    oracle = SoftmaxOracle(2, temperature=1.0, rate=0.2, anneal=0, batch=2, every=2, memory=2)
    first = oracle.step(E1, ONE, E2)
    assert first == pytest.approx((0.6, 0.4, 1.0))
    assert oracle.score(E1, E2) == 0
    oracle.step(E2, OTHER, E1)
    assert oracle.score(E1, E2) == pytest.approx(0.2, abs=1e-3)
    assert oracle.score(E1, E1) == pytest.approx(1.01, abs=1e-3)


def test_the_same_click_again_and_what_has_no_direction_are_no_pairs() -> None:
    oracle = SoftmaxOracle(2, temperature=1.0, rate=0.1, anneal=0, batch=2, every=2, memory=2)
    assert oracle.step(E1, ONE, E2).tau == 1
    assert oracle.step(2 * E1, ONE, OTHER).tau == 0
    assert oracle.step(E1, np.zeros(2), OTHER).tau == 0
    assert oracle.step(E1, OTHER, ONE, 0.0).tau == 0
    assert oracle.score(E1, E2) == 0
    assert oracle.step(E1, OTHER, ONE, 0.5).tau == 0.5


def test_what_one_query_clicked_is_not_set_against_itself() -> None:
    oracle = SoftmaxOracle(2, temperature=1.0, rate=0.1, anneal=0, batch=2, every=2, memory=2)
    oracle.step(E1, ONE, E2)
    oracle.step(E1, OTHER, E2)
    assert oracle.score(E1, E2) == pytest.approx(0, abs=1e-6)
