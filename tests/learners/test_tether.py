"""A matrix pulled back towards its start: by the formula, at exact numbers of events, for any cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Oasis, OasisConfig
from learners.block import TripletBatch, as_block
from learners.distance import DissimConfig, LegoConfig
from learners.errors import BlockError, ConfigError
from learners.outcome import REJECTED, UPDATED
from learners.psd import project_psd
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.steps import taken_steps
from learners.tether import TetherConfig, Tethered, pull

DIM = 7
INNER = (OasisConfig(), OasisConfig(symmetric="online", psd_every=4), DissimConfig(), LegoConfig())


def triplets(seed: int, count: int) -> TripletBatch:
    """Of unit length, one in nine malformed."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((3, count, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    rows[1, ::9, 0] = np.nan
    return TripletBatch(*(as_block(block) for block in rows))


def moved(W: Any) -> float:
    return float(np.linalg.norm(W.astype(np.float64) - np.eye(len(W))))


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 999),
    st.lists(st.integers(1, 49), max_size=6),
    st.sampled_from(INNER),
    st.integers(1, 12),
    st.sampled_from([(0.3, 0.0), (0.0, 0.05), (0.1, 0.2)]),
)
def test_any_cut_gives_the_same_bits(
    seed: int, cuts: list[int], inner: Any, every: int, how: tuple[float, float]
) -> None:
    config, batch = TetherConfig(inner, every, *how), triplets(seed, 50)
    whole, parts, copy = Tethered(DIM, config), Tethered(DIM, config), Tethered(DIM, config)
    info = whole.learn_many(batch, np.ones(50))
    ends = sorted({*cuts, 50})
    for start, stop in zip([0, *ends], ends, strict=False):
        parts.learn_many(batch.slice(start, stop))
    for steps in copy.taken(batch, info):
        copy.replay(steps)
    assert whole.W.tobytes() == parts.W.tobytes() == copy.W.tobytes()
    again = Tethered.from_state(whole.state(), config)
    assert again.learn_many(batch).tau.tolist() == parts.learn_many(batch).tau.tolist()


DECAYS = st.just(0.0) | st.floats(1e-6, 0.9)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999), st.integers(1, 12), DECAYS, st.sampled_from([0.0, 0.02, 0.3]))
def test_it_is_the_formula(seed: int, every: int, decay: float, radius: float) -> None:
    tethered = Tethered(DIM, TetherConfig(OasisConfig(), every, decay, radius))
    batch, W, accepted = triplets(seed, 60), np.eye(DIM), 0
    info = tethered.learn_many(batch)
    for t in range(60):
        q, c, s = (
            block.values[t].astype(np.float64) for block in (batch.query, batch.clicked, batch.skipped)
        )
        if info.outcome[t] == REJECTED:
            continue
        if info.outcome[t] == UPDATED:
            V = np.outer(q, c - s)
            W += min(0.1, max(0.0, 1 - (V * W).sum()) / (V * V).sum()) * V
        accepted += 1
        if accepted % every == 0:
            W = np.eye(DIM) + (1 - decay) * (W - np.eye(DIM))
            if radius and moved(W) > radius:
                W = np.eye(DIM) + radius / moved(W) * (W - np.eye(DIM))
    assert np.allclose(tethered.W, W, atol=2e-5)


def test_an_untrained_similarity_stays_the_cosine() -> None:
    for keep in (0.0, 0.1, 1 / 3, 0.77, 1 - 1e-9):
        W = np.eye(5, dtype=np.float32)
        pull(W, keep, 0.01)
        assert W.tolist() == np.eye(5).tolist()


def test_an_endless_stream_stays_within_the_radius() -> None:
    tethered, free = Tethered(DIM, TetherConfig(OasisConfig(), 50, radius=0.5)), Oasis(DIM)
    for seed in range(40):
        batch = triplets(seed, 225)  # 200 of them accepted
        tethered.learn_many(batch)
        free.learn_many(batch)
        assert moved(tethered.W) <= 0.5 * (1 + 1e-5)
    assert moved(free.W) > 1.0


def test_a_ball_brings_w_nearer_to_every_matrix_in_it() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        W, U = (np.eye(DIM) + rng.standard_normal((DIM, DIM)) * size for size in (1.0, 0.1))
        pulled = W.astype(np.float32)
        pull(pulled, 0.0, max(moved(U), 0.5))
        assert np.linalg.norm(pulled - U) <= np.linalg.norm(W - U) + 1e-5


def test_a_psd_matrix_stays_psd_and_a_symmetric_one_symmetric() -> None:
    W = project_psd(np.random.default_rng(0).standard_normal((DIM, DIM)).astype(np.float32))
    pull(W, 0.4, 0.3)
    assert (W == W.T).all()
    assert np.linalg.eigvalsh(W.astype(np.float64)).min() > -1e-6


def test_step_sizes_alone_do_not_tell_of_pulls() -> None:
    tethered, batch = Tethered(DIM, TetherConfig(OasisConfig(), 5, 0.1)), triplets(0, 9)
    info = tethered.learn_many(batch)
    with pytest.raises(BlockError):
        tethered.replay(taken_steps(batch, info)[0])


@pytest.mark.parametrize(
    "wrong", [(0, 0.0, 0.0), (5, 1.0, 0.0), (5, -0.1, 0.0), (5, 1e-8, 0.0), (5, 0.0, -1.0), (5, 0.0, np.nan)]
)
def test_settings_say_what_is_wrong(wrong: tuple[int, float, float]) -> None:
    with pytest.raises(ConfigError):
        TetherConfig(OasisConfig(), *wrong)


@pytest.mark.parametrize("config", [SomlTgConfig(), SomlDaConfig()], ids=["tg", "da"])
def test_a_metric_that_forgets_follows_users_who_change(config: Any) -> None:
    """A taste, and after many events its opposite: who forgets errs less from then on."""
    rng = np.random.default_rng(0)
    taste = rng.standard_normal(DIM)

    def clicks(count: int, sign: float) -> TripletBatch:
        q, a, b = rng.random((3, count, DIM)).astype(np.float32)
        better = (sign * (q * (a - b)) @ taste > 0)[:, None]
        return TripletBatch(*map(as_block, (q, np.where(better, a, b), np.where(better, b, a))))

    kind: Any = SomlTg if isinstance(config, SomlTgConfig) else SomlDa
    free, forgets = kind(DIM, config), Tethered(DIM, TetherConfig(config, 200, 0.5))
    before, after = clicks(10_000, 1.0), clicks(1_000, -1.0)
    mistakes = []
    for learner in (free, forgets):
        assert np.count_nonzero(learner.learn_many(before).loss[-1_000:] >= 1) < 100
        mistakes.append(np.count_nonzero(learner.learn_many(after).loss >= 1))
    assert mistakes[1] < 0.8 * mistakes[0]


def test_what_is_behind_a_metric_is_forgotten_with_it() -> None:
    """Else what is served would go on to trust it more and more."""
    for config in (SomlTgConfig(), SomlDaConfig()):
        tethered = Tethered(DIM, TetherConfig(config, 50, 0.5))
        for seed in range(40):
            tethered.learn_many(triplets(seed, 225))
        assert tethered.events == 8_000
        assert tethered.learner.evidence <= 100


def test_a_metric_has_no_radius() -> None:
    with pytest.raises(ConfigError, match="decay"):
        TetherConfig(SomlTgConfig(), 10, 0.1, 1.0)
