"""The diagonal form: cosine until there is evidence, then what was learned on top of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import DenseBlock
from learners.forms.quadratic import DiagonalForm
from learners.soml import SomlDa, SomlTg
from tests.learners.examples import block, rows, triplets
from tests.learners.oracle import normalised

DIM = 30
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
BOTH = pytest.mark.parametrize("learner", [SomlTg, SomlDa])


def served(w, rounds):
    """v by the formula, one coordinate after another."""
    positive = [one for one in w if one > 0]
    if not positive:
        return np.ones(len(w))
    mean, each = sum(positive) / len(positive), rounds / len(positive)
    return np.array([1 + np.sqrt(each) / 3 * max(one, 0) / mean for one in w])


@BOTH
@KINDS
def test_before_any_event_it_is_the_cosine(learner, kind):
    rng = np.random.default_rng(0)
    queries, items = rows(rng, 6, DIM), rows(rng, 9, DIM)
    queries[0] = 0
    scores = learner(DIM).form().scores(block(queries, kind), block(items, kind))
    np.testing.assert_allclose(scores, normalised(np.eye(DIM), queries, items), atol=1e-6)
    assert (scores[0] == 0).all()


@KINDS
@given(seed=st.integers(0, 2**32 - 1), rounds=st.sampled_from([0, 1, 1_000, 10**9]))
@settings(max_examples=30, deadline=None)
def test_scores_are_the_formula(kind, seed, rounds):
    rng = np.random.default_rng(seed)
    w, queries, items = rng.standard_normal(DIM) * 50, rows(rng, 5, DIM), rows(rng, 7, DIM)
    v = served(w, rounds)
    form = DiagonalForm.from_weights(w, rounds)
    np.testing.assert_allclose(form.weights, v, rtol=1e-6)
    left, right = block(queries, kind), block(items, kind)
    np.testing.assert_allclose(form.scores(left, right), normalised(np.diag(v), queries, items), atol=1e-5)
    raw = DiagonalForm.from_weights(w, rounds, normalised=False)
    np.testing.assert_allclose(raw.scores(left, right), (queries * v) @ items.T, atol=1e-5 * v.max())
    np.testing.assert_allclose(form.fold(left), queries * v, rtol=1e-6)
    np.testing.assert_allclose(form.self_scores(right), (items * items) @ v, rtol=1e-5)


@BOTH
def test_a_few_events_hardly_move_it_and_many_do(learner):
    few, many = learner(DIM), learner(DIM)
    few.learn_many(triplets(0, 5, DIM, "sparse"))
    many.learn_many(triplets(0, 20_000, DIM, "sparse"))
    assert 1 < few.form().weights.max() < 2
    assert many.form().weights.max() > 10
    assert many.form().weights.min() == 1


def test_what_was_learned_grows_with_the_rounds_behind_each_coordinate():
    w = np.array([4.0, -7.0, 0.0])
    assert DiagonalForm.from_weights(w, 9).weights.tolist() == [2, 1, 1]
    assert DiagonalForm.from_weights(w * 1e9, 900).weights.tolist() == [11, 1, 1]
    assert DiagonalForm.from_weights(np.float64([4, -7, 4]), 18).weights.tolist() == [2, 1, 2]
    assert DiagonalForm.from_weights(-np.abs(w), 900).weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize("w", [[1e308, 1e308, 1e-300], [5e-324, 0, 0], [-1e308, 1e308, 1e308]])
def test_any_finite_weights_make_a_finite_form(w):
    form = DiagonalForm.from_weights(np.array(w), 10**12)
    assert np.isfinite(form.weights).all()
    assert form.weights.min() >= 1


@KINDS
def test_how_work_is_cut_changes_no_bit_of_a_norm(kind):
    rng = np.random.default_rng(1)
    items = block(rows(rng, 300, DIM), kind)
    form = DiagonalForm.from_weights(rng.standard_normal(DIM), 5_000)

    def in_pieces(count):
        yield from (slice(start, min(start + 1, count)) for start in range(count))

    whole = form.self_scores(items)
    assert form.self_scores(items, in_pieces).tobytes() == whole.tobytes()
    alone = [form.self_scores(items.slice(row, row + 1))[0] for row in range(300)]
    assert np.array(alone, np.float32).tobytes() == whole.tobytes()


@KINDS
def test_a_slice_of_rows_scores_like_the_rows(kind):
    rng = np.random.default_rng(2)
    part = block(rows(rng, 20, DIM), kind).slice(7, 15)
    form = DiagonalForm.from_weights(rng.standard_normal(DIM), 5_000)
    copied = DenseBlock(form.fold(part))
    assert copied.values.tobytes() == form.fold(part.take(np.arange(8))).tobytes()
    np.testing.assert_allclose(form.scores(part, part).diagonal(), 1, atol=1e-5)
