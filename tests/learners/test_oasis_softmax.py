"""Learning by OASIS and by a softmax together: both matrices, their mean, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from learners import ConfigError, Oasis, OasisSoftmax, OasisSoftmaxConfig, Softmax, StateError
from learners.psd import MAX_FULL_DIM

from .examples import triplets
from .under_test import bits, saved

DIM = 5
SMALL = OasisSoftmaxConfig(batch=4, every=2, memory=6)


def test_each_of_the_two_learns_as_it_does_alone() -> None:
    both, batch = OasisSoftmax(DIM, SMALL), triplets(1, 60, DIM, "dense")
    oasis, softmax = Oasis(DIM, SMALL.oasis), Softmax(DIM, SMALL.softmax)
    for learner in (both, oasis, softmax):
        learner.learn_many(batch)
    assert bits(both.oasis) == bits(oasis)
    assert bits(both.softmax) == bits(softmax)
    assert softmax.steps > 3


def test_they_weigh_alike_whatever_their_size() -> None:
    both, batch = OasisSoftmax(DIM, SMALL), triplets(2, 60, DIM, "dense")
    both.learn_many(batch)
    W_o, W_s = (one.W.astype(float) for one in (both.oasis, both.softmax))
    np.testing.assert_allclose(both.W, (W_o + W_s * np.trace(W_o) / np.trace(W_s)) / 2, rtol=1e-5)
    assert np.trace(both.W) == pytest.approx(np.trace(W_o), rel=1e-5)


def test_it_begins_where_it_is_told() -> None:
    start = np.linspace(0.5, 3, DIM).astype(np.float32)
    learner = OasisSoftmax(DIM, OasisSoftmaxConfig(start=start))
    np.testing.assert_allclose(learner.W, np.diag(start), rtol=1e-6)


def test_a_small_step_of_oasis_moves_what_is_scored_by_its_share() -> None:
    """As followers assume it between two decompositions."""
    learner = OasisSoftmax(DIM)
    before = learner.W.astype(float)
    learner.oasis.learn_many(triplets(3, 1, DIM, "dense"))
    moved = learner.oasis.W.astype(float) - np.eye(DIM)
    off = ~np.eye(DIM, dtype=bool)  # the diagonal also takes the change of the other's size
    np.testing.assert_allclose((learner.W - before)[off], (OasisSoftmax.SHARE * moved)[off], atol=1e-6)


def test_more_dimensions_than_can_be_decomposed_are_refused_with_what_to_take() -> None:
    with pytest.raises(ConfigError, match="take oasis"):
        OasisSoftmax(MAX_FULL_DIM + 1)


@pytest.mark.parametrize("settings", [{"C": 0.0}, {"temperature": 0.0}, {"every": 9, "batch": 8}], ids=str)
def test_settings_of_either_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        OasisSoftmaxConfig(**settings)  # type: ignore[arg-type]


def test_a_matrix_too_large_to_be_mixed_is_refused() -> None:
    learner = OasisSoftmax(DIM, SMALL)
    learner.learn_many(triplets(4, 20, DIM, "dense"))
    arrays = saved(learner)
    arrays["W"][...] = np.finfo(np.float32).max
    with pytest.raises(StateError, match="array W"):
        OasisSoftmax.from_state(arrays, SMALL)
