"""Words are those of the pieces, a landmark's triplets are the paper's, validation alone chooses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from tests.results import landmarks
from tests.results.landmarks import LEARNED, LEARNERS, SERVED, TFIDF, BagSet, Metric
from tests.results.visual_words import SIDE, Pieces, Vocabulary, pieces_of


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    """Of forty pictures of noise, bright on the left or on the right."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (40, 20, 24)).astype(np.uint8)
    pictures[::2, :, :12] = 7
    pictures[1::2, :, 12:] = 7
    return pieces_of(list(pictures), 2)


def test_pieces_are_brought_to_one_contrast_and_background_is_left_out(pieces: Pieces) -> None:
    squares = pieces.vectors[:, : SIDE * SIDE]
    np.testing.assert_allclose(squares.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(squares, axis=1), 1, atol=1e-5)
    per_picture = np.bincount(pieces.of)
    assert (per_picture < 7 * 9).all()  # of so many places
    right = pieces.vectors[:, -1] > 0
    assert right[pieces.of % 2 == 0].mean() > 0.6 > 0.3 > right[pieces.of % 2 == 1].mean()


def test_a_word_of_one_size_is_ten_of_the_next_and_every_piece_is_in_one(pieces: Pieces) -> None:
    words = Vocabulary(pieces.of_pictures(np.arange(20)).vectors, 8, 3, seed=0)
    bags = words.bags(pieces, 40)
    assert words.sizes == (8, 80, 800)
    for larger, smaller in pairwise(bags):
        each = smaller.toarray().reshape(40, larger.shape[1], 10).sum(axis=2)
        np.testing.assert_array_equal(each, larger.toarray())
    np.testing.assert_array_equal(bags[0].sum(axis=1), np.bincount(pieces.of))
    assert np.count_nonzero(bags[2].sum(axis=0)) > 80


@pytest.fixture
def data() -> BagSet:
    """Two classes with a column of their own, 600 others, in 30 columns."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [40, 40, 1200])
    rows = (rng.random((len(labels), 30)) < 0.3).astype(np.float32)
    rows[:, :2] = 0
    rows[labels == 0, 0], rows[labels == 1, 1] = 1, 1
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    order = rng.permutation(len(labels))
    parts = np.sort(order[:640]), np.sort(order[640:900]), np.sort(order[900:])
    return BagSet("made", {30: sparse.csr_array(rows)}, labels, *parts)


def test_triplets_are_all_of_seven_against_five_hundred_out_of_the_pool(data: BagSet) -> None:
    q, c, s = landmarks.triplets_of(data, 1, 0)
    assert len(q) == 7 * 6 * 500 == len(set(zip(q.tolist(), c.tolist(), s.tolist(), strict=True)))
    assert len(set(q.tolist())) == len(set(c.tolist())) == 7
    assert set(data.labels[q]) == set(data.labels[c]) == {1}
    assert 1 not in data.labels[s]
    assert (q != c).all()
    assert np.isin(np.concatenate([q, c, s]), data.pool).all()
    assert not np.array_equal(q, landmarks.triplets_of(data, 1, 1)[0])


@pytest.mark.parametrize("name", LEARNERS)
def test_a_landmark_is_found_by_what_it_has_of_its_own(data: BagSet, name: str) -> None:
    found = landmarks.learn(data, 30, name, 0, 0)
    assert found.test[LEARNED] > found.test[TFIDF] + 0.1
    assert found.test[SERVED] > found.test[TFIDF]
    assert (found.zeros > 0) == (name != "OASIS-diagonal")


def test_validation_alone_chooses_and_tf_idf_answers_where_nothing_is_better() -> None:
    def metric(*validation: float) -> Metric:
        named = dict(zip((TFIDF, LEARNED, SERVED), validation, strict=True))
        return Metric(1000, "SOML-TG", 0, 20, 0.5, 0.5, 1.0, named, {TFIDF: 0.9, LEARNED: 0.1, SERVED: 0.2})

    assert metric(0.5, 0.6, 0.4).answers == LEARNED
    assert metric(0.5, 0.5, 0.5).answers == TFIDF
    row = list(landmarks.table("made", [metric(0.5, 0.6, 0.4), metric(0.6, 0.5, 0.5)], 1))
    assert any("| 0.900 | 0.100 | 0.200 | 0.500 | 50 % |" in line for line in row)
