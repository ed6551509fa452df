"""Steps on dense rows that wait to be added to the matrix: what they change, and what they must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from learners import (
    Dissim,
    DissimConfig,
    Keyed,
    KeyedConfig,
    Oasis,
    OasisConfig,
    StateError,
    StepBatch,
    TetherConfig,
    Tethered,
    TripletBatch,
    average_states,
)
from learners.averaged import Averaged
from learners.forms.carried import CarriedForm
from learners.forms.serving import ServingForm
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.pending import MOST, matrix_in, room_of, width_of

from .examples import block, dense, matrices, rows, triplets
from .learners_under_test import WaitingOasis
from .oracle_oasis import DissimOracle, OasisOracle
from .oracle_step import run
from .oracle_tether import TetheredOracle
from .under_test import bits, saved

DIM = 100
"""No whole number of panels, nor of vectors of eight."""

LEARNERS: dict[str, Any] = {
    "oasis": Oasis,
    "symmetric": lambda dim: Oasis(dim, OasisConfig(symmetric="online")),
    "dissim": Dissim,
}
ORACLES: dict[str, Any] = {
    "oasis": OasisOracle,
    "symmetric": lambda dim: OasisOracle(dim, symmetric=True),
    "dissim": DissimOracle,
}
EACH = pytest.mark.parametrize("name", LEARNERS)
TOLD = {"pending_tau", "pending_pairs", "pending_kind"}


def part(kind: str, seed: int, n: int = 30, dim: int = DIM) -> TripletBatch:
    return triplets(seed, n, dim, kind)


def test_the_room_is_a_share_of_the_matrix_and_none_beyond_or_below() -> None:
    assert [room_of(dim) for dim in (1, 47, 48, 95, 96, 383, 384, 4096, 4097)] == [
        0,
        0,
        4,
        4,
        8,
        28,
        MOST,
        MOST,
        0,
    ]
    for dim in range(48, 1000, 7):
        assert 2 * room_of(dim) * width_of(dim) <= 0.26 * dim**2
        assert room_of(dim) % 4 == 0
    assert not TOLD & set(Oasis(47).state())
    assert set(Oasis(48).state()) >= TOLD


@EACH
@pytest.mark.parametrize("dim", [48, 53, 72, 100, 401])
def test_margins_and_the_matrix_are_those_of_the_formulas(name: str, dim: int) -> None:
    """Also where tiles end inside the matrix, and where the rows of a chunk do."""
    learner, oracle = LEARNERS[name](dim), ORACLES[name](dim)
    batch = part("dense", dim, 80, dim)
    info = learner.learn_many(batch)
    steps = run(oracle, matrices(batch), np.ones(80))
    assert np.count_nonzero(info.tau) > room_of(dim), "the room was full at least once"
    for told in ("loss", "tau"):
        expected = [getattr(step, told) for step in steps]
        np.testing.assert_allclose(getattr(info, told), expected, atol=2e-5, rtol=2e-5, err_msg=told)
    np.testing.assert_allclose(learner.W, oracle.W, atol=1e-5)
    if name != "oasis":
        assert learner.W.tobytes() == np.ascontiguousarray(learner.W.T).tobytes()


@EACH
def test_how_many_are_pending_shows_nowhere_but_in_the_state(name: str) -> None:
    """After any number of events W is what a copy has that took the steps, and one that adds each at once."""
    learner, eager, lazy = (LEARNERS[name](DIM) for _ in range(3))
    batch = part("dense", 3, 45)
    for at in range(0, 45, 5):
        few = batch.slice(at, at + 5)
        info = learner.learn_many(few)
        for steps in learner.taken(few, info):
            assert isinstance(steps, StepBatch)
            lazy.replay(steps)
            for n in range(len(steps)):
                eager.replay(steps.slice(n, n + 1))
                eager.settled()
        assert learner.W.tobytes() == eager.W.tobytes() == lazy.W.tobytes()
        assert matrix_in(learner.state()).tobytes() == eager.base.tobytes()
    assert len(learner.pending) > 0
    assert learner.base.tobytes() != eager.base.tobytes()


def test_scoring_and_saving_leave_pending_steps_where_they_are() -> None:
    learner = Oasis(DIM)
    learner.learn_many(part("dense", 1, 6))
    before = bits(learner)
    learner.similarity(np.eye(DIM, dtype=np.float32), np.eye(DIM, dtype=np.float32))
    learner.form()
    assert learner.W is not learner.base
    learner.clone()
    assert bits(learner) == before


@pytest.mark.parametrize("order", ["dsd", "sds", "ddss"])
def test_dense_and_sparse_events_may_come_in_turn(order: str) -> None:
    kinds = {"d": "dense", "s": "sparse"}
    batches = [part(kinds[kind], n, 7) for n, kind in enumerate(order)]  # not a multiple of the room
    config = OasisConfig(C=10.0)  # no step is cut: each depends on what was learned before
    learner, single = WaitingOasis(DIM, config), WaitingOasis(DIM, config)
    oracle = OasisOracle(DIM, config.C)
    found = 0
    for batch, kind in zip(batches, order, strict=True):
        found += len(learner.pending) if kind == "s" else 0
        learner.learn_many(batch)
        for t in range(len(batch)):
            single.learn_many(batch.slice(t, t + 1))
        run(oracle, matrices(batch), np.ones(len(batch)))
    assert found, "a sparse batch finds steps pending"
    assert bits(learner) == bits(single)
    np.testing.assert_allclose(learner.W, oracle.W, atol=1e-5)


def test_a_pull_finds_the_matrix_whole() -> None:
    how = (7, 0.2, 0.1)
    batch = part("dense", 5, 60)
    learner, single = (Tethered(DIM, TetherConfig(OasisConfig(), *how)) for _ in range(2))
    free = OasisOracle(DIM)
    oracle = TetheredOracle(free, *how)
    learner.learn_many(batch)
    for t in range(60):
        single.learn_many(batch.slice(t, t + 1))
    run(oracle, matrices(batch), np.ones(60))
    assert bits(learner) == bits(single)
    scores = learner.similarity(np.eye(DIM, dtype=np.float32), np.eye(DIM, dtype=np.float32))
    np.testing.assert_allclose(scores, learner.W, atol=1e-7)
    np.testing.assert_allclose(scores, free.W, atol=1e-4)


OF_EARLIER_RELEASES = {
    "oasis": (Oasis, OasisConfig()),
    "dissim": (Dissim, DissimConfig()),
    "averaged": (Averaged, OasisConfig()),
    "tethered": (Tethered, TetherConfig(OasisConfig(), 7, 0.2)),
    "maps": (OmksMaps, OmksMapsConfig((50, 60))),
    "keyed": (Keyed, KeyedConfig.of(Oasis, slots=2)),
}


@pytest.mark.parametrize("name", OF_EARLIER_RELEASES)
def test_a_state_from_before_steps_could_wait_is_gone_on_from(name: str) -> None:
    learner, config = OF_EARLIER_RELEASES[name]
    dim = 110 if name == "maps" else DIM
    one = learner(dim, config)
    lacking = {*one.added_later(config, dim)} if name != "keyed" else TOLD
    assert lacking
    old = {key: array for key, array in saved(one).items() if key not in lacking}
    resumed = learner.from_state(old, config)
    assert bits(resumed) == bits(one)
    batch = replace(part("dense", 2, 40, dim), keys=np.array([b"one"] * 40, "S64"))
    for each in (one, resumed):
        each.learn_many(batch)
    assert bits(resumed) == bits(one)


def broken_tau(arrays: dict[str, Any]) -> None:
    arrays["pending_tau"][-1] = 1


def broken_row(arrays: dict[str, Any]) -> None:
    arrays["pending_pairs"][-1, 0] = 1


def broken_edge(arrays: dict[str, Any]) -> None:
    arrays["pending_pairs"][0, -1] = 1


def other_kind(arrays: dict[str, Any]) -> None:
    arrays["pending_kind"] = np.array(1, np.int64)


@pytest.mark.parametrize("change", [broken_tau, broken_row, broken_edge, other_kind])
def test_pending_steps_that_no_learner_has_are_refused(change: Any) -> None:
    learner = Oasis(DIM)
    learner.learn_many(part("dense", 1, 5))
    arrays = saved(learner)
    change(arrays)
    with pytest.raises(StateError, match="pending"):
        Oasis.from_state(arrays)


def test_the_mean_of_states_is_that_of_their_matrices() -> None:
    one, other = WaitingOasis(12), WaitingOasis(12)
    one.learn_many(triplets(1, 13, 12, "dense"))
    other.learn_many(triplets(2, 14, 12, "dense"))
    assert len(one.pending) + len(other.pending) > 0
    mean = average_states([one.state(), other.state()])
    expected = (one.W.astype(float) + other.W) / 2
    np.testing.assert_allclose(mean["W"], expected, atol=1e-7)
    assert len(WaitingOasis.from_state(mean).pending) == 0


@EACH
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("power", [1.5, None])
def test_a_carried_form_follows_pending_steps(name: str, kind: str, power: float | None) -> None:
    learner = LEARNERS[name](DIM)
    learner.learn_many(part("dense", 1, 30))
    form = ServingForm.from_matrix(learner.W) if power else learner.form(power=None)
    live = CarriedForm.of(form, learner.base, power or 1.0, pending=learner.pending)
    apart = CarriedForm.of(form, learner.W, power or 1.0)
    if not power:  # a form without a matrix of its own
        live = CarriedForm(
            learner.base, None, form.correction_vectors, form.correction_values, True, pending=learner.pending
        )
    learner.learn_many(part("dense", 2, 2))
    now = CarriedForm(
        learner.W, None if not power else apart.tangent, form.correction_vectors, form.correction_values, True
    )
    queries = block(rows(np.random.default_rng(0), 5, DIM), kind)
    assert len(learner.pending) > 0
    np.testing.assert_allclose(live.fold(queries), now.fold(queries), atol=2e-5)
    np.testing.assert_allclose(live.self_scores(queries), now.self_scores(queries), atol=2e-5)
    assert dense(queries).shape == (5, DIM)
