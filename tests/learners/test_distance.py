"""Learners of a distance compute what the formulas say, dense and sparse, also for objects nearly alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from learners import (
    DEGENERATE,
    PASSIVE,
    UPDATED,
    BlockError,
    ConfigError,
    StateError,
    StepBatch,
    TripletBatch,
)
from learners.distance import Dissim, DissimConfig, Lego, LegoConfig

from .examples import block, dense, matrices, rows, triplets
from .oracle import psd
from .oracle_lego import LegoOracle, distance_margin, gradient, lego_objective
from .oracle_oasis import DissimOracle
from .oracle_step import run

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
MAKERS: dict[str, Callable[[int], Dissim | Lego]] = {
    "dissim": Dissim,
    "dissim-psd": lambda dim: Dissim(dim, DissimConfig(psd_every=7)),
    "lego": Lego,
    "lego-firm": lambda dim: Lego(dim, LegoConfig(eta=3.0)),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
STREAM = {"seed": st.integers(0, 2**32 - 1), "dim": st.integers(1, 15), "n": st.integers(0, 25)}


@KINDS
@given(**STREAM, C=st.sampled_from([1e-3, 0.1, 1.0, 50.0]), every=st.sampled_from([0, 5]))
@settings(max_examples=60, deadline=None)
def test_dissim_equals_the_oracle(kind: str, seed: int, dim: int, n: int, C: float, every: int) -> None:
    batch = triplets(seed, n, dim, kind)
    learner = Dissim(dim, DissimConfig(C=C, psd_every=every))
    info = learner.learn_many(batch)
    oracle = DissimOracle(dim, C, every)
    steps = run(oracle, matrices(batch))
    scale = max(1.0, float(np.abs(oracle.W).max()))
    np.testing.assert_allclose(learner.W, oracle.W, atol=2e-4 * scale)
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=2e-3 * scale, rtol=1e-3)


@KINDS
@given(**STREAM, eta=st.sampled_from([0.02, 0.32, 5.0]))
@settings(max_examples=40, deadline=None)
def test_lego_equals_the_oracle(kind: str, seed: int, dim: int, n: int, eta: float) -> None:
    batch = triplets(seed, n, dim, kind)
    learner, oracle = Lego(dim, LegoConfig(eta=eta)), LegoOracle(dim, eta)
    info = learner.learn_many(batch)
    steps = run(oracle, matrices(batch))
    np.testing.assert_allclose(info.loss, [step.loss for step in steps], atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(info.tau, [step.tau for step in steps], atol=1e-3 * eta, rtol=1e-2)
    np.testing.assert_allclose(learner.W, oracle.A, atol=1e-3 * max(1.0, float(np.abs(oracle.A).max())))


@given(seed=st.integers(0, 2**32 - 1), eta=st.sampled_from([0.05, 1.0, 20.0]))
@settings(max_examples=30, deadline=None)
def test_no_positive_definite_matrix_is_better_than_the_lego_step(seed: int, eta: float) -> None:
    rng, dim = np.random.default_rng(seed), 5
    batch = triplets(seed, 12, dim, "dense")
    learner = Lego(dim, LegoConfig(eta=eta))
    learner.learn_many(batch)
    A = learner.W.astype(float)
    q, c, s = (rng.standard_normal(dim) for _ in range(3))
    info = learner.learn_one(q, c, s)
    assume(info.outcome[0] == UPDATED)
    best = lego_objective(learner.W.astype(float), A, q, c, s, eta)
    root = np.linalg.cholesky(learner.W.astype(float))
    for size in (1e-2, 1e-1, 1.0):
        change = rng.standard_normal((dim, dim)) * size
        other = root @ psd(np.eye(dim) + change + change.T) @ root.T + 1e-9 * np.eye(dim)
        assert lego_objective(other, A, q, c, s, eta) > best - 1e-4 * max(1, best)


@EVERY
@KINDS
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 30), cuts=st.lists(st.integers(0, 30), max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_cut_and_any_replay_give_the_same_bits(
    make: Callable[[int], Dissim | Lego], kind: str, seed: int, n: int, cuts: list[int]
) -> None:
    batch, dim = triplets(seed, n, 9, kind), 9
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0, -1.0, np.nan], n)
    whole, split, copy = make(dim), make(dim), make(dim)
    whole.learn_many(batch, weights)
    for start, stop in pairwise([0, *sorted(min(cut, n) for cut in cuts), n]):
        part, own = batch.slice(start, stop), weights[start:stop]
        for steps in split.taken(part, split.learn_many(part, own), own):
            copy.replay(steps)
    assert whole.W.tobytes() == split.W.tobytes() == copy.W.tobytes()
    assert whole.events == split.events == np.count_nonzero(weights >= 0)


@EVERY
@KINDS
def test_W_stays_symmetric_bit_for_bit(make: Callable[[int], Dissim | Lego], kind: str) -> None:
    learner = make(17)
    info = learner.learn_many(triplets(11, 500, 17, kind))
    assert np.count_nonzero(info.outcome == UPDATED) > 200
    assert learner.W.tobytes() == np.ascontiguousarray(learner.W.T).tobytes()


@KINDS
def test_lego_stays_positive_definite_where_dissim_does_not(kind: str) -> None:
    batch, dim = triplets(5, 4000, 10, kind), 10
    smallest = {}
    for name in ("dissim", "lego-firm"):
        learner = MAKERS[name](dim)
        learner.learn_many(batch)
        smallest[name] = np.linalg.eigvalsh(learner.W.astype(float))[0]
    assert smallest["lego-firm"] > 0
    assert smallest["dissim"] < -0.01, "examples that make a matrix without a guard indefinite"


@KINDS
@given(seed=st.integers(0, 2**32 - 1), nearness=st.sampled_from([1e-2, 1e-4, 1e-6, 1e-7]))
@settings(max_examples=60, deadline=None)
def test_steps_between_near_duplicates_keep_their_digits(kind: str, seed: int, nearness: float) -> None:
    """In float32, ||u||^4 + ||v||^4 - 2 (u^T v)^2 is noise there, or negative; tau would be C or refused."""
    rng, dim = np.random.default_rng(seed), 12
    q, c = rows(rng, 1, dim, 1.0), rows(rng, 1, dim, 1.0)
    s = (c + nearness * rng.standard_normal((1, dim))).astype(np.float32)
    assume(not np.array_equal(c, s))
    learner = Dissim(dim, DissimConfig(C=1e30))
    info = learner.learn_one(*(block(part, kind) for part in (q, c, s)))
    V = exact_gradient(q[0], c[0], s[0])
    assert info.outcome[0] == UPDATED
    assert info.tau[0] * np.sum(V * V) == pytest.approx(info.loss[0], rel=1e-4)


def exact_gradient(q: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """V' of float32 vectors in extended precision."""
    u, v = (q.astype(np.longdouble) - other.astype(np.longdouble) for other in (c, s))
    return (np.outer(v, v) - np.outer(u, u)).astype(float)


@KINDS
@pytest.mark.parametrize("make", [MAKERS["dissim"], MAKERS["lego"]])
def test_outcomes_name_what_happened(make: Callable[[int], Dissim | Lego], kind: str) -> None:
    unit = np.eye(3, dtype=np.float32)
    cases = [
        (unit[0], unit[1], unit[2], UPDATED),
        (unit[0], unit[0], 2 * unit[1], PASSIVE),
        (unit[0], unit[1], unit[1], DEGENERATE),
        (0.3 * (unit[0] + unit[1]), 0.6 * unit[0], 0.6 * unit[1], DEGENERATE),
        (0 * unit[0], unit[1], -unit[1], DEGENERATE),
    ]
    for query, clicked, skipped, expected in cases:
        learner = make(3)
        info = learner.learn_one(*(block(v[None], kind) for v in (query, clicked, skipped)))
        assert info.outcome[0] == expected
        assert (info.tau[0] > 0) == (expected == UPDATED) == (not np.array_equal(learner.W, np.eye(3)))
        assert learner.events == 1


@EVERY
@KINDS
def test_an_update_raises_the_margin(make: Callable[[int], Dissim | Lego], kind: str) -> None:
    """The sign of V': with the papers' printed one the clicked object would move away."""
    learner = make(12)
    for t in range(60):
        batch = triplets(t, 1, 12, kind)
        before, info = learner.W.astype(float), learner.learn_many(batch)
        if info.outcome[0] == UPDATED and learner.events % 7:
            parts = [part[0] for part in matrices(batch)]
            assert distance_margin(learner.W.astype(float), *parts) > distance_margin(before, *parts)
    uncapped = Dissim(12, DissimConfig(C=1e6))
    batch = triplets(7, 1, 12, kind)
    uncapped.learn_many(batch)
    parts = [part[0] for part in matrices(batch)]
    assert distance_margin(uncapped.W.astype(float), *parts) == pytest.approx(1.0, abs=1e-4)


@EVERY
@KINDS
def test_similarity_is_minus_the_distance(make: Callable[[int], Dissim | Lego], kind: str) -> None:
    batch, learner = triplets(4, 60, 10, kind), make(10)
    learner.learn_many(batch)
    W = learner.W.astype(float)
    expected = [[-(q - p) @ W @ (q - p) for p in dense(batch.clicked)] for q in dense(batch.query)]
    np.testing.assert_allclose(learner.similarity(batch.query, batch.clicked), expected, atol=1e-4)


@given(seed=st.integers(0, 2**32 - 1), C=st.sampled_from([0.01, 0.1, 1.0]), every=st.sampled_from([0, 20]))
@settings(max_examples=30, deadline=None)
def test_mistake_bound_of_dissim(seed: int, C: float, every: int) -> None:
    """Theorem 1 with V': mistakes <= max(R^2, 1/C) (||U - I||_F^2 + 2 C sum of U's losses), for every
    symmetric U, and with projections for every PSD one, since both only bring W nearer to U."""
    rng, dim, n = np.random.default_rng(seed), 6, 300
    truth = psd(rng.standard_normal((dim, dim))) * 2
    parts = [rows(rng, n, dim, 1.0).astype(float) for _ in range(3)]
    V = np.array([gradient(*triplet) for triplet in zip(*parts, strict=True)])
    swap = (V * truth).sum(axis=(1, 2)) <= 0
    parts[1][swap], parts[2][swap] = parts[2][swap].copy(), parts[1][swap].copy()
    V[swap] *= -1
    learner = Dissim(dim, DissimConfig(C=C, psd_every=every))
    info = learner.learn_many(TripletBatch(*(block(part.astype(np.float32), "dense") for part in parts)))
    mistakes, R = np.count_nonzero(info.loss >= 1), np.sqrt((V**2).sum(axis=(1, 2)).max())
    for U in (np.eye(dim), truth, 20 * truth, psd(learner.W.astype(float))):
        losses = np.maximum(0, 1 - (V * U).sum(axis=(1, 2))).sum()
        bound = max(R**2, 1 / C) * (((U - np.eye(dim)) ** 2).sum() + 2 * C * losses)
        assert mistakes <= bound * (1 + 1e-6)


@EVERY
def test_a_saved_state_goes_on_and_a_strange_one_is_refused(make: Callable[[int], Dissim | Lego]) -> None:
    learner = make(6)
    learner.learn_many(triplets(1, 32, 6, "sparse"))
    saved = {name: array.copy() for name, array in learner.state().items()}
    resumed = type(learner).from_state(saved, learner.config, copy=False)  # type: ignore[arg-type]
    for each in (learner, resumed):
        each.learn_many(triplets(2, 32, 6, "sparse"))
    assert learner.W.tobytes() == resumed.W.tobytes() == saved["W"].tobytes()
    saved["W"][0, 1] += 1
    with pytest.raises(StateError, match="not symmetric"):
        type(learner).from_state(saved, learner.config)  # type: ignore[arg-type]


def test_what_cannot_be_is_refused_by_name() -> None:
    for settings_, word in (({"C": 0}, "C must"), ({"psd_every": -1}, "psd_every")):
        with pytest.raises(ConfigError, match=word):
            DissimConfig(**settings_)
    for eta in (0, np.inf, np.nan, -1):
        with pytest.raises(ConfigError, match="eta must"):
            LegoConfig(eta=eta)
    with pytest.raises(ConfigError, match="psd_every needs dim <= 4096"):
        Dissim(4097, DissimConfig(psd_every=1))
    with pytest.raises(ConfigError, match="dim must be <= 4096"):
        Lego(4097)
    one = block(np.ones((1, 3), np.float32), "dense")
    with pytest.raises(BlockError, match="not steps of rank one"):
        Lego(3).replay(StepBatch(np.ones(1, np.float32), one, one))
    (triplet,) = Lego(3).taken(TripletBatch(one, one, one), Lego(3).learn_one(one, one, one))
    with pytest.raises(BlockError, match="not triplets"):
        Dissim(3).replay(triplet)


@pytest.mark.parametrize("learner", [Dissim, Lego])
def test_warm_up_checks_the_kernels(learner: type[Dissim | Lego], monkeypatch: pytest.MonkeyPatch) -> None:
    learner.warm_up()
    monkeypatch.setattr(learner, "KNOWN", replace(learner.KNOWN, loss=learner.KNOWN.loss + 0.1))
    with pytest.raises(RuntimeError, match="wrong answer"):
        learner.warm_up()
