"""A form carried on behind its state: exact where it was made, right where nothing is neglected."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from learners import Oasis, OasisConfig, ServingForm, TripletBatch, as_block
from learners.block import Block
from learners.forms.carried import CarriedForm, Mixed, Tangent, carried_error
from learners.forms.serving import DEFAULT_POWER as POWER
from learners.psd import psd_part, psd_tangent

DIM = 24


def rows(seed: int, n: int, kind: str = "dense") -> Block:
    values = np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)
    values[np.abs(values) < 0.7] = 0
    return as_block(sparse.csr_array(values) if kind == "sparse" else values)


def learned(steps: int = 60) -> Oasis:
    learner = Oasis(DIM, OasisConfig(C=0.02))
    go_on(learner, steps)
    return learner


def go_on(learner: Oasis, steps: int, seed: int = 0) -> None:
    learner.learn_many(TripletBatch(rows(seed, steps), rows(seed + 1, steps), rows(seed + 2, steps)))


def form_of(W: np.ndarray, kind: str) -> ServingForm:
    full = {"full": DIM, "lanczos": 0}[kind]
    return ServingForm.from_matrix(W, full_up_to=full, pairs=5)


@pytest.mark.parametrize("kind", ["full", "lanczos"])
@pytest.mark.parametrize("block", ["dense", "sparse"])
def test_at_its_base_it_is_the_form(kind: str, block: str) -> None:
    W = learned().W
    form = form_of(W, kind)
    carried = CarriedForm.of(form, W, POWER)
    queries, items = rows(7, 5, block), rows(8, 30, block)
    assert np.allclose(carried.fold(queries), form.fold(queries), atol=1e-5)
    assert np.allclose(carried.self_scores(items), form.self_scores(items), rtol=1e-4, atol=1e-4)
    assert np.allclose(carried.scores(queries, items), form.scores(queries, items), atol=1e-4)
    error = carried_error(carried.fold(queries), form.self_scores(items), form, (queries, items))
    assert error.fold < 1e-5
    assert error.norms == 0
    assert error.overlap == 1


@pytest.mark.parametrize("kind", ["full", "lanczos"])
def test_behind_its_base_it_answers_to_the_change_to_first_order(kind: str) -> None:
    learner = learned()
    form = form_of(learner.W.copy(), kind)
    before, P = learner.W.astype(np.float64), np.eye(DIM)
    if kind == "full":
        P = psd_tangent(learner.W, POWER).astype(np.float64)
    carried = CarriedForm.of(form, learner.W, POWER)
    go_on(learner, 40, seed=50)
    identity = np.eye(DIM, dtype=np.float32)
    change = learner.W - before
    wanted = form.fold(identity) + P @ (change + change.T) @ P / 2
    assert np.abs(change).max() > 1e-3
    assert np.allclose(carried.fold(identity), wanted, atol=1e-5)
    for block in (identity, sparse.csr_array(identity)):
        assert np.allclose(carried.self_scores(block), np.maximum(np.diag(wanted), 0), atol=1e-4)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_tangent_is_the_slope_of_the_psd_part(power: float) -> None:
    learner = learned(400)
    W = learner.W.astype(np.float64)
    values, V = np.linalg.eigh((W + W.T) / 2)
    assert values[0] < 0 < values[-2]
    for place in (0, DIM // 2, DIM - 2):
        direction = np.outer(V[:, place], V[:, place])
        step = 1e-3 * direction
        measured = psd_part((W + step).astype(np.float32), power)[0] - psd_part(learner.W, power)[0]
        P = psd_tangent(learner.W, power).astype(np.float64)
        assert np.allclose(measured, P @ step @ P, atol=1e-5), place


def test_matrices_are_written_where_they_are_wanted_also_over_the_forms_own() -> None:
    W = learned().W
    form = form_of(W, "full")
    apart = CarriedForm.of(form, W, POWER).tangent
    assert form.matrix is not None
    place = Tangent(form.matrix, np.empty_like(W))
    over = CarriedForm.of(form, W, POWER, place).tangent
    assert apart is not None
    assert over is place
    assert over.constant.tobytes() == apart.constant.tobytes()
    assert over.P.tobytes() == apart.P.tobytes()


def test_the_error_grows_with_what_was_neglected_and_counts_norms_that_stayed_behind() -> None:
    learner, errors = learned(), []
    form = form_of(learner.W.copy(), "full")
    carried = CarriedForm.of(form, learner.W, POWER)
    sample = rows(7, 5), rows(8, 30)
    norms = form.self_scores(sample[1])
    for seed in (50, 60, 70):
        go_on(learner, 60, seed)
        exact = form_of(learner.W, "full")
        errors.append(carried_error(carried.fold(sample[0]), norms, exact, sample))
    assert 0 < errors[0].fold < errors[2].fold
    assert errors[0].norms > 0
    assert errors[2].overlap < 1
    raw = ServingForm.from_matrix(learner.W, normalised=False)
    assert carried_error(raw.fold(sample[0]), norms, raw, sample).norms == 0


def test_a_matrix_that_W_is_mixed_into_is_carried_on_by_its_share() -> None:
    learner, other = learned(), learned(90).W
    mixed = Mixed((learner.W + 2 * other) / np.float32(3), 1 / 3)
    carried = CarriedForm.of(form_of(mixed.matrix.copy(), "full"), learner.W, POWER, mixed=mixed)
    errors = []
    for steps in (0, 1, 4):
        go_on(learner, steps, 40)
        exact = form_of((learner.W + 2 * other) / np.float32(3), "full")
        stayed = form_of(mixed.matrix.copy(), "full")
        queries = rows(7, 20)
        apart = np.linalg.norm(carried.fold(queries) - exact.fold(queries))
        errors.append(apart)
        if steps:
            assert apart < 0.5 * np.linalg.norm(stayed.fold(queries) - exact.fold(queries))
    assert errors[0] < 1e-3
