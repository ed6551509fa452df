"""The running average of W, and averaged rankers, against float64 sums; the symmetry index."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import REJECTED, BlockError, ConfigError, Oasis, OasisConfig, StateError, StepBatch
from learners.averaged import Averaged, AveragedConfig, average_states
from learners.distance import Dissim, DissimConfig
from learners.psd import symmetry_index

from .examples import block, dense, matrices, rows, triplets

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
CONFIGS = pytest.mark.parametrize(
    "config", [OasisConfig(), OasisConfig(symmetric="online"), DissimConfig()], ids=repr
)
DIM = 9


def plain(config: AveragedConfig) -> Oasis | Dissim:
    return Oasis(DIM, config) if isinstance(config, OasisConfig) else Dissim(DIM, config)


@KINDS
@CONFIGS
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 40))
@settings(max_examples=25, deadline=None)
def test_the_mean_is_that_of_W_after_each_accepted_event(
    config: AveragedConfig, kind: str, seed: int, n: int
) -> None:
    batch, weights = weighted(seed, n, kind)
    averaged, learner, states = Averaged(DIM, config), plain(config), []
    averaged.learn_many(batch, weights)
    for t in range(n):
        info = learner.learn_many(batch.slice(t, t + 1), weights[t : t + 1])
        if info.outcome[0] != REJECTED:
            states.append(learner.W.astype(float))
    expected = np.mean(states, axis=0) if states else np.eye(DIM)
    np.testing.assert_allclose(averaged.W, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))
    assert averaged.learner.W.tobytes() == learner.W.tobytes(), "it learns as without the average"
    assert averaged.events == len(states)


def weighted(seed: int, n: int, kind: str):  # type: ignore[no-untyped-def]
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0, -1.0, np.nan], n)
    return triplets(seed, n, DIM, kind), weights


@KINDS
@CONFIGS
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 30), max_size=5))
@settings(max_examples=20, deadline=None)
def test_any_cut_and_any_replay_give_the_same_bits(
    config: AveragedConfig, kind: str, seed: int, cuts: list[int]
) -> None:
    batch, weights = weighted(seed, 30, kind)
    whole, split, copy = (Averaged(DIM, config) for _ in range(3))
    whole.learn_many(batch, weights)
    for start, stop in pairwise([0, *sorted(cuts), 30]):
        part, own = batch.slice(start, stop), weights[start:stop]
        for steps in split.taken(part, split.learn_many(part, own), own):
            copy.replay(steps)
    resumed = Averaged.from_state(split.state(), config)
    for one in (split, copy, resumed, whole.clone()):
        for name, array in whole.state().items():
            assert one.state()[name].tobytes() == array.tobytes()


def test_after_a_long_stream_the_mean_keeps_its_digits() -> None:
    averaged, total = Averaged(DIM, OasisConfig(C=0.01)), np.zeros((DIM, DIM))
    for part in range(40):
        batch = triplets(part, 100, DIM, "dense")
        for t in range(100):
            averaged.learn_many(batch.slice(t, t + 1))
            total += averaged.learner.W
    np.testing.assert_allclose(averaged.W, total / 4000, atol=2e-5)


@KINDS
@CONFIGS
def test_it_scores_with_the_mean(config: AveragedConfig, kind: str) -> None:
    averaged, batch = Averaged(DIM, config), triplets(3, 60, DIM, kind)
    averaged.learn_many(batch)
    other = plain(config)
    other.W[...] = averaged.W
    assert not np.allclose(averaged.W, averaged.learner.W, atol=1e-3)
    np.testing.assert_array_equal(
        averaged.similarity(batch.query, batch.clicked), other.similarity(batch.query, batch.clicked)
    )


def test_what_an_average_cannot_be_made_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="psd_every must be 0"):
        Averaged(3, OasisConfig(psd_every=2))
    with pytest.raises(ConfigError, match="C must be at most"):
        Averaged(3, OasisConfig(C=1e7))
    one = block(np.ones((1, 3), np.float32), "dense")
    with pytest.raises(BlockError, match="not steps of rank one"):
        Averaged(3).replay(StepBatch(np.ones(1, np.float32), one, one))
    arrays = {**Averaged(3).state(), "sums": np.zeros((2, 2), np.float32)}
    with pytest.raises(StateError, match="sums has shape"):
        Averaged.from_state(arrays)
    with pytest.raises(StateError, match="sums is missing"):
        Averaged.from_state(Oasis(3).state())


@given(seed=st.integers(0, 2**32 - 1), rankers=st.integers(1, 5), dissim=st.booleans())
@settings(max_examples=25, deadline=None)
def test_averaged_rankers_lose_at_most_what_they_lose_on_average(
    seed: int, rankers: int, dissim: bool
) -> None:
    """The hinge loss is convex in W, so this holds on any triplets and for any weights."""
    config: AveragedConfig = DissimConfig() if dissim else OasisConfig()
    shares = np.random.default_rng(seed).random(rankers) + 0.01
    trained = [plain(config) for _ in range(rankers)]
    for number, learner in enumerate(trained):
        learner.learn_many(triplets(seed + number, 50 + number, DIM, "dense"))
    mean = average_states([learner.state() for learner in trained], shares.tolist())
    expected = sum(w * one.W.astype(float) for w, one in zip(shares / shares.sum(), trained, strict=True))
    np.testing.assert_allclose(mean["W"], expected, atol=1e-6)
    assert mean["events"] == sum(learner.events for learner in trained)
    judged = triplets(seed + 99, 40, DIM, "dense")
    losses = [loss(learner.W, judged, dissim) for learner in trained]
    assert loss(mean["W"], judged, dissim) <= np.average(losses, weights=shares) + 1e-4
    assert type(trained[0]).from_state(mean, config).dim == DIM  # type: ignore[arg-type]


def loss(W: np.ndarray, batch, dissim: bool) -> float:  # type: ignore[no-untyped-def]
    q, c, s = matrices(batch)
    W = W.astype(float)
    left = 2 * q - c - s if dissim else q
    return float(np.maximum(0, 1 - np.einsum("nd,de,ne->n", left, W, c - s)).sum())


def test_states_that_cannot_be_averaged_are_refused() -> None:
    one, two = Oasis(3).state(), Oasis(4).state()
    for states, weights, word in (
        ([], None, "no state"),
        ([one, two], None, "different shapes"),
        ([one, Averaged(3).state()], None, "state 1 has the arrays"),
    ):
        with pytest.raises(StateError, match=word):
            average_states(states, weights)
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan]):
        with pytest.raises(ConfigError, match="weights must be 2"):
            average_states([one, one], weights)


def test_one_state_averages_to_itself() -> None:
    learner = Oasis(DIM)
    learner.learn_many(triplets(1, 50, DIM, "dense"))
    assert average_states([learner.state()] * 3)["W"].tobytes() == learner.W.tobytes()


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 20), scale=st.sampled_from([1e-15, 1.0, 1e18]))
@settings(max_examples=30, deadline=None)
def test_symmetry_index(seed: int, dim: int, scale: float) -> None:
    W = (rows(np.random.default_rng(seed), dim, dim) * scale).astype(np.float32)
    whole = W.astype(float)
    expected = np.sum(((whole + whole.T) / 2) ** 2) / np.sum(whole**2) if whole.any() else 1.0
    assert symmetry_index(W) == pytest.approx(expected, abs=1e-9)
    assert symmetry_index(W + W.T) == pytest.approx(1.0)
    assert symmetry_index(np.triu(W, 1) - np.triu(W, 1).T) == (0.0 if np.triu(W, 1).any() else 1.0)


def test_the_symmetry_index_of_a_stream_falls_from_one_unless_kept_there() -> None:
    batch = triplets(4, 500, DIM, "sparse")
    assert dense(batch.query).any()
    index = {}
    for symmetric in ("off", "online"):
        learner = Oasis(DIM, OasisConfig(symmetric=symmetric))
        learner.learn_many(batch)
        index[symmetric] = symmetry_index(learner.W)
    assert index["off"] < 0.99
    assert index["online"] == 1.0
