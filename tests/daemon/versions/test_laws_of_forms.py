"""Laws of what versions are served as, over every algorithm that a configuration can name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.config.learners import LEARNERS
from daemon.config.schema import ServingConfig
from daemon.versions.algorithms import ALGORITHMS, untrained
from learners import Block, Learner
from learners.forms.quadratic import FoldingForm, ServedForm, by_distance, folds
from tests.learners.examples import block, rows, triplets

DIM = 12
COLUMNS = {"x": range(5), "y": range(5, DIM)}
NORMALISED, RAW = ServingConfig(), ServingConfig(score="raw", psd="off")

NOT_FOLDING = ("oks", "omks")
"""Algorithms whose scores are no inner products: version 0 is their kernels, not the cosine."""

EVERY = pytest.mark.parametrize("algorithm", ALGORITHMS)
FOLDING = pytest.mark.parametrize("algorithm", [one for one in ALGORITHMS if one not in NOT_FOLDING])
BOTH = pytest.mark.parametrize("serving", [NORMALISED, RAW], ids=["normalised", "raw"])
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


def objects(seed: int, n: int, kind: str) -> Block:
    """Some objects that are nowhere 0, and one that is everywhere."""
    values = rows(np.random.default_rng(seed), n, DIM, 1.0)
    values[-1] = 0
    return block(values, kind)


def learner_of(algorithm: str, events: int) -> Learner:
    """After so many events."""
    sample = objects(9, 50, "dense")
    learner = untrained(LEARNERS[algorithm](algorithm=algorithm), DIM, COLUMNS, sample)
    learner.learn_many(triplets(3, events, DIM, "dense"))
    return learner


def form_of(algorithm: str, events: int, serving: ServingConfig) -> ServedForm:
    """The form of a version with so many events; 0 is version 0."""
    learner = learner_of(algorithm, events)
    return ALGORITHMS[algorithm].forms.make(learner, min(events, 1), serving)


def pairwise_scores(form: FoldingForm, queries: Block, items: Block) -> Any:
    """Scores as a server works them out: fold, inner products and self scores."""
    dense = np.asarray(items.kernel_rows()) if isinstance(items.kernel_rows(), np.ndarray) else None
    rows_of_items = dense if dense is not None else items.checked_csr().toarray()  # type: ignore[union-attr]
    scores = form.fold(queries).astype(float) @ rows_of_items.T.astype(float)
    if by_distance(form):
        scores -= form.self_scores(queries).astype(float)[:, None] + form.self_scores(items)
    if form.normalised:
        own = (form.self_scores(one).astype(float) for one in (queries, items))
        left, right = (np.where(s > 0, 1 / np.sqrt(np.where(s > 0, s, 1)), 0.0) for s in own)
        scores *= left[:, None] * right
    return scores


@EVERY
def test_which_forms_fold(algorithm: str) -> None:
    assert folds(form_of(algorithm, 200, NORMALISED)) is (algorithm not in NOT_FOLDING)


@FOLDING
@BOTH
@KINDS
@pytest.mark.parametrize("events", [0, 200])
def test_folded_queries_give_the_scores(
    algorithm: str, serving: ServingConfig, kind: str, events: int
) -> None:
    form = form_of(algorithm, events, serving)
    assert folds(form)
    queries, items = objects(1, 7, kind), objects(2, 11, kind)
    scores = form.scores(queries, items)
    assert scores.dtype == np.float32
    assert scores.shape == (7, 11)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores, pairwise_scores(form, queries, items), atol=2e-4)


@pytest.mark.parametrize("algorithm", ["dissim-oasis", "lego"])
@pytest.mark.parametrize("psd", ["full", "lanczos"])
@pytest.mark.parametrize("events", [0, 200])
def test_raw_scores_of_a_distance_are_minus_it(algorithm: str, psd: str, events: int) -> None:
    form = form_of(algorithm, events, ServingConfig(score="raw", psd=psd, lanczos_pairs=DIM - 1))
    assert by_distance(form)
    objects_of = rows(np.random.default_rng(5), 9, DIM, 1.0)
    learner = learner_of(algorithm, events)
    values, vectors = np.linalg.eigh(learner.state()["W"].astype(float))
    A = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    away = objects_of @ A.T
    expected = -np.square(away[:, None] - away).sum(axis=2)
    np.testing.assert_allclose(form.scores(objects_of, objects_of), expected, atol=5e-3)
    kept = ALGORITHMS[algorithm].forms
    again = kept.read(kept.arrays(form), learner)
    assert again.scores(objects_of, objects_of).tobytes() == form.scores(objects_of, objects_of).tobytes()


@EVERY
@BOTH
@KINDS
@pytest.mark.parametrize("events", [0, 200])
def test_self_scores_are_not_negative(algorithm: str, serving: ServingConfig, kind: str, events: int) -> None:
    form, items = form_of(algorithm, events, serving), objects(2, 11, kind)
    own = form.self_scores(items)
    assert own.dtype == np.float32
    assert np.isfinite(own).all()
    assert (own >= 0).all()
    assert own[-1] == 0


@FOLDING
@KINDS
def test_version_0_is_the_cosine(algorithm: str, kind: str) -> None:
    vectors = objects(1, 9, kind)
    scores = form_of(algorithm, 0, NORMALISED).scores(vectors, vectors)
    values = rows(np.random.default_rng(1), 9, DIM, 1.0)[:-1].astype(float)
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(scores[:-1, :-1], unit @ unit.T, atol=1e-5)


@EVERY
def test_normalised_scores_are_cosines(algorithm: str) -> None:
    vectors = objects(1, 30, "dense")
    scores = form_of(algorithm, 200, NORMALISED).scores(vectors, vectors)
    assert np.abs(scores).max() <= 1 + 1e-5
    np.testing.assert_allclose(scores, scores.T, atol=1e-5)


@EVERY
@BOTH
def test_a_form_and_its_scores_leave_the_learner_alone(algorithm: str, serving: ServingConfig) -> None:
    learner, items = learner_of(algorithm, 60), objects(2, 11, "dense")
    before = {name: array.tobytes() for name, array in learner.state().items()}
    form = ALGORITHMS[algorithm].forms.make(learner, 1, serving)
    first = form.scores(items, items).tobytes()
    assert form.scores(items, items).tobytes() == first
    form.self_scores(items)
    assert {name: array.tobytes() for name, array in learner.state().items()} == before


@EVERY
def test_a_stored_form_is_read_back_to_the_bit(algorithm: str) -> None:
    forms, learner, items = ALGORITHMS[algorithm].forms, learner_of(algorithm, 60), objects(2, 11, "dense")
    if not forms.kept:
        return
    form = forms.make(learner, 1, NORMALISED)
    again = forms.read(forms.arrays(form), learner)
    assert again.scores(items, items).tobytes() == form.scores(items, items).tobytes()


@EVERY
def test_learning_shows_in_the_scores(algorithm: str) -> None:
    vectors = objects(1, 9, "dense")
    before, after = (form_of(algorithm, events, NORMALISED).scores(vectors, vectors) for events in (0, 200))
    assert np.abs(before - after).max() > 1e-3


@EVERY
def test_scores_do_not_depend_on_what_else_is_asked(algorithm: str) -> None:
    form = form_of(algorithm, 200, NORMALISED)
    if folds(form):
        return  # a search sums their inner products itself, in one order
    queries, items = objects(1, 7, "dense"), objects(2, 11, "dense")
    scores = form.scores(queries, items)
    for row in range(7):
        alone = form.scores(queries.slice(row, row + 1), items.take([10, row]))
        assert alone.tobytes() == scores[row, [10, row]].tobytes()
