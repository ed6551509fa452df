"""A form that gives way to the user's own ranking for queries unlike those that were clicked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from learners.block import DenseBlock, SparseBlock
from learners.errors import StateError
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import DiagonalForm
from learners.forms.serving import (
    BackoffForm,
    ServingForm,
    learned_of,
    linear_fold,
    usual_ratio,
    with_learned,
)

DIM = 12
METRIC = np.linspace(0.5, 2.0, DIM).astype(np.float32)


def learned(seed=0, dim=DIM, full_up_to=4096):
    """A form that weighs the first half of the columns more than the others."""
    noise = np.random.default_rng(seed).standard_normal((dim, dim)).astype(np.float32)
    W = np.diag(np.where(np.arange(dim) < dim // 2, 4.0, 0.5)).astype(np.float32) + 0.05 * noise
    return ServingForm.from_matrix(W, power=1.5, full_up_to=full_up_to, pairs=3)


def rows(seed, count=9, dim=DIM):
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def kinds(seed, clicked):
    """Queries in the columns that clicks taught, or in the others, with a little of all."""
    out = 0.1 * rows(seed, 40)
    half = slice(0, DIM // 2) if clicked else slice(DIM // 2, DIM)
    out[:, half] += rows(seed + 1, 40)[:, half]
    return out


def form(usual=None, **settings):
    S = learned()
    usual = usual_ratio(S, METRIC, kinds(1, clicked=True)) if usual is None else usual
    made = BackoffForm.beside(S, METRIC, 0.3, usual)
    return BackoffForm(made.learned, made.own, made.share, **settings) if settings else made


def by_hand(made, query, item):
    """Straight from the formula, in float64."""
    S = made.learned.matrix.astype(np.float64)
    u = np.diag(made.own.astype(np.float64)) / made.share
    q, p = query.astype(np.float64), item.astype(np.float64)
    g = min(1.0, q @ S @ q / (made.familiar * (q @ u @ q))) ** made.backoff
    mixed = S + made.share * u
    return (
        (q @ (g * S + made.share * u) @ p)
        * (q @ mixed @ q)
        / (q @ (g * S + made.share * u) @ q)
        / np.sqrt((q @ mixed @ q) * (p @ mixed @ p))
    )


def test_scores_are_those_of_the_formula():
    made = form()
    queries = np.vstack([kinds(3, clicked=True)[:4], kinds(5, clicked=False)[:4]])
    items = rows(7)
    expected = [[by_hand(made, q, p) for p in items] for q in queries]
    np.testing.assert_allclose(made.scores(queries, items), expected, atol=2e-5)


def test_queries_like_the_clicked_ones_are_known_and_others_are_not():
    made = form()
    assert np.median(made.known(kinds(1, clicked=True))) == pytest.approx(1, abs=1e-5)
    assert made.known(kinds(5, clicked=False)).max() < 0.5


def test_a_query_with_nothing_in_common_with_what_was_learned_is_answered_with_the_own_ranking():
    made = form(usual=1e4)
    queries, items = rows(8), rows(9, 30)
    own = queries * METRIC @ items.T / np.sqrt(made.self_scores(items))
    order = np.argsort(-made.scores(queries, items), axis=1)
    np.testing.assert_array_equal(order, np.argsort(-own, axis=1))


def test_a_known_query_is_answered_with_a_share_of_it_that_is_the_same_for_all():
    made = form(usual=1e-4)
    queries, items = rows(8), rows(9, 30)
    mixed = made.learned.matrix + np.diag(made.own)
    norms = [np.sqrt(np.einsum("nd,nd->n", one @ mixed, one)) for one in (queries, items)]
    expected = queries @ mixed @ items.T / np.outer(*norms)
    np.testing.assert_allclose(made.scores(queries, items), expected, atol=1e-5)


def test_a_folded_query_times_itself_is_its_self_score():
    """Search takes the one where scores take the other."""
    made, queries = form(), np.vstack([kinds(3, clicked=True)[:5], kinds(5, clicked=False)[:5]])
    own = np.einsum("nd,nd->n", made.fold(queries), queries)
    np.testing.assert_allclose(own, made.self_scores(queries), rtol=1e-5)


def test_sparse_rows_give_what_dense_ones_do():
    made, dense = form(), kinds(3, clicked=False)[:5]
    dense[:, ::3] = 0
    held = dense != 0
    pointers = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
    sparse = SparseBlock(pointers, np.nonzero(held)[1].astype(np.int32), dense[held], DIM)
    np.testing.assert_allclose(made.fold(sparse), made.fold(dense), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made.self_scores(sparse), made.self_scores(dense), rtol=1e-5)


def test_a_query_of_zeros_scores_0():
    made = form()
    np.testing.assert_array_equal(made.scores(np.zeros((1, DIM), np.float32), rows(3)), 0)


def test_the_parts_of_a_query_add_up():
    made, query = form(), kinds(5, clicked=False)[:1]
    fold = linear_fold(made, query)
    left, right = query.copy(), query.copy()
    left[:, 5:], right[:, :5] = 0, 0
    np.testing.assert_allclose(fold(left) + fold(right), made.fold(query), rtol=1e-5, atol=1e-6)
    assert not np.allclose(made.fold(left) + made.fold(right), made.fold(query), rtol=1e-3)


@pytest.mark.parametrize("full_up_to", [4096, 1])
def test_it_is_read_back_from_its_arrays(full_up_to):
    S = learned(full_up_to=full_up_to)
    made = BackoffForm.beside(S, METRIC, 0.3, 1.7, 0.8)
    arrays = made.arrays()
    inner = ServingForm.from_arrays(arrays, S.state_matrix)
    again = BackoffForm.from_arrays(arrays, inner)
    np.testing.assert_array_equal(again.fold(rows(2)), made.fold(rows(2)))
    assert (again.share, again.familiar, again.backoff) == (made.share, made.familiar, made.backoff)
    with pytest.raises(StateError, match="own"):
        BackoffForm.from_arrays(arrays | {"own": np.zeros(DIM, np.float32)}, inner)
    with pytest.raises(StateError, match="backoff"):
        BackoffForm.from_arrays({name: one for name, one in arrays.items() if name != "backoff"}, inner)


def test_the_scale_of_what_was_learned_does_not_matter():
    W = learned().matrix
    queries, items = kinds(5, clicked=False), rows(2)
    scores = []
    for factor in (1.0, 40.0):
        S = ServingForm.from_matrix(np.float32(factor) * W, power=1.0)
        usual = usual_ratio(S, METRIC, kinds(1, clicked=True))
        scores.append(BackoffForm.beside(S, METRIC, 0.3, usual).scores(queries, items))
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-5)


def test_what_was_learned_is_carried_on_inside():
    S = learned()
    made = BackoffForm.beside(S, METRIC, 0.3, 1.7)
    W = S.matrix.copy()
    carried = with_learned(made, CarriedForm.of(ServingForm.from_matrix(W, power=1.0), W))
    assert isinstance(learned_of(carried), CarriedForm)
    queries = rows(4)
    np.testing.assert_allclose(carried.fold(queries), made.fold(queries), rtol=1e-3, atol=1e-4)
    W += 0.01
    exact = with_learned(made, ServingForm.from_matrix(W, power=1.0))
    np.testing.assert_allclose(carried.fold(queries), exact.fold(queries), rtol=1e-2, atol=1e-3)
    assert with_learned(S, learned(1)) is not S


def shown_by_another():
    """A form that is the own ranking, and so shows nothing: another one shows which queries were clicked."""
    blind = ServingForm.from_matrix(np.diag(METRIC), power=1.0)
    S, clicked = replace(blind, familiarity=learned()), kinds(1, clicked=True)
    usual = [usual_ratio(one, METRIC, clicked) for one in (S, learned())]
    return BackoffForm.beside(S, METRIC, 0.3, usual[0], usual_familiarity=usual[1])


def test_another_form_shows_what_queries_have_in_common_with_what_was_learned():
    made = shown_by_another()
    assert np.median(made.known(kinds(1, clicked=True))) == pytest.approx(1, abs=1e-5)
    assert made.known(kinds(5, clicked=False)).max() < 0.5
    np.testing.assert_allclose(made.known(rows(2)), form().known(rows(2)), rtol=1e-4)
    alone = replace(made, familiarity=None)
    assert alone.known(kinds(5, clicked=False)).min() > 0.8
    queries = kinds(3, clicked=True)[made.known(kinds(3, clicked=True)) > 0.85]
    np.testing.assert_allclose(made.fold(queries), alone.fold(queries), rtol=1e-5)


def test_what_shows_it_is_read_back_too():
    made = shown_by_another()
    arrays = made.arrays()
    again = BackoffForm.from_arrays(arrays, ServingForm.from_arrays(arrays))
    np.testing.assert_array_equal(again.fold(rows(2)), made.fold(rows(2)))
    with pytest.raises(StateError, match="familiarity"):
        BackoffForm.from_arrays(arrays | {"familiarity": np.zeros((2, 2), np.float32)}, made.learned)


def test_the_usual_ratio_of_nothing_is_1():
    assert usual_ratio(learned(), METRIC, np.zeros((0, DIM), np.float32)) == 1
    assert usual_ratio(learned(), METRIC, np.zeros((3, DIM), np.float32)) == 1
    nothing = ServingForm.from_matrix(-np.eye(DIM, dtype=np.float32))
    assert usual_ratio(nothing, METRIC, rows(3)) == 1
    own = BackoffForm.beside(nothing, METRIC, 0.3, 1.0).scores(rows(3), rows(4))
    np.testing.assert_allclose(own, DiagonalForm(METRIC, True).scores(rows(3), rows(4)), atol=1e-5)


def test_a_query_is_folded_alike_whatever_is_beside_it():
    made, block = form(), DenseBlock(rows(6, 8))
    folded = made.fold(block)
    for row in range(8):
        np.testing.assert_allclose(folded[row : row + 1], made.fold(block.slice(row, row + 1)), rtol=1e-5)
