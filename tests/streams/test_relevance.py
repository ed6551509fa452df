"""Relevance tables against the dense formulas, and the sampling against its distribution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.feed.readers.relevance import (
    NothingToDraw,
    co_click_relevance,
    item_relevance,
    query_object_probabilities,
    sample_triplets,
)


def random_counts(seed: int, queries: int, objects: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (queries, objects)) * (rng.random((queries, objects)) < 0.4)
    counts[0, 0] += 1
    return counts.astype(float)


def dense_item_relevance(counts: np.ndarray, theta: float) -> np.ndarray:
    """Straight from the formula, one query and one pair at a time."""
    total = counts.sum()
    objects = counts.shape[1]
    relevance = np.zeros((objects, objects))
    for row in counts:
        if row.sum() == 0:
            continue
        given_query = row / row.sum()
        relevance += np.outer(given_query, given_query) * (row.sum() / total)
    np.fill_diagonal(relevance, 0.0)
    return np.where(relevance > theta, relevance, 0.0)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.integers(1, 9),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.0101, 0.0503]),
)
def test_item_relevance_is_the_dense_formula(seed: int, q: int, p: int, block: int, theta: float) -> None:
    counts = random_counts(seed, q, p)
    ours = item_relevance(sp.csr_matrix(counts), theta, block).toarray()
    np.testing.assert_allclose(ours, dense_item_relevance(counts, theta), rtol=1e-12, atol=1e-15)


def test_what_is_exactly_at_the_threshold_is_no_relevance() -> None:
    counts = sp.csr_matrix(np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]))
    assert item_relevance(counts, 0.124).nnz == 4  # each pair: 1/2 . 1/2 . 1/2
    assert item_relevance(counts, 0.125).nnz == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 10), st.sampled_from([0.01, 0.2, 1.0]))
def test_co_click_keeps_the_largest_share(seed: int, block: int, share: float) -> None:
    counts = random_counts(seed, 6, 8)
    dense = counts.T @ counts
    np.fill_diagonal(dense, 0.0)
    values = np.sort(dense[dense > 0])[::-1]
    kept = co_click_relevance(sp.csr_matrix(counts), share, block).toarray()
    if len(values):
        cut = values[int(np.ceil(share * len(values))) - 1]
        np.testing.assert_array_equal(kept, np.where(dense >= cut, dense, 0.0))
    else:
        assert not kept.any()


def test_probabilities_sum_to_one_and_add_up_repeated_rows() -> None:
    counts = sp.coo_matrix(([1.0, 2.0, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    joint = query_object_probabilities(counts)
    np.testing.assert_allclose(joint.toarray(), [[0.0, 0.75], [0.25, 0.0]])


@pytest.mark.parametrize(
    "counts", [np.zeros((2, 3)), np.array([[1.0, -1.0]]), np.array([[np.nan, 1.0]]), np.array([[np.inf]])]
)
def test_tables_without_meaning_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(NothingToDraw):
        query_object_probabilities(sp.csr_matrix(counts))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_sampled_triplets_are_relevant_against_non_relevant(seed: int, same: bool) -> None:
    relevance = random_counts(seed, 7, 7)
    if same:
        np.fill_diagonal(relevance, 0.0)
        relevance[0, 1] += 1
    try:
        drawn = sample_triplets(sp.csr_matrix(relevance), 200, np.random.default_rng(seed), same)
    except NothingToDraw:
        usable = (relevance == 0).sum(axis=1) - (1 if same else 0) > 0
        assert not relevance[usable].any()
        return
    query, clicked, skipped = drawn
    assert (relevance[query, clicked] > 0).all()
    assert (relevance[query, skipped] == 0).all()
    if same:
        assert (skipped != query).all()


def test_pairs_follow_relevance_and_negatives_are_uniform() -> None:
    relevance = np.array([[0.0, 3.0, 1.0, 0.0, 0.0], [6.0, 0.0, 0.0, 0.0, 0.0]])
    count = 200_000
    rng = np.random.default_rng(7)
    query, clicked, skipped = sample_triplets(sp.csr_matrix(relevance), count, rng, same_objects=False)
    shares = np.zeros_like(relevance)
    np.add.at(shares, (query, clicked), 1.0 / count)
    np.testing.assert_allclose(shares, relevance / relevance.sum(), atol=0.006)
    of_first = np.bincount(skipped[query == 0], minlength=5) / (query == 0).sum()
    np.testing.assert_allclose(of_first, [1 / 3, 0, 0, 1 / 3, 1 / 3], atol=0.01)


def test_nearly_full_rows_are_drawn_exactly() -> None:
    # One non-relevant object in 3,000: rejection alone would hardly ever find it.
    row = np.ones((1, 3000))
    row[0, 1234] = 0.0
    _, _, skipped = sample_triplets(sp.csr_matrix(row), 500, np.random.default_rng(0), same_objects=False)
    assert (skipped == 1234).all()


def test_rows_without_a_non_relevant_object_are_never_drawn() -> None:
    relevance = np.array([[5.0, 5.0, 5.0], [0.1, 0.0, 0.0]])
    query, _, _ = sample_triplets(sp.csr_matrix(relevance), 100, np.random.default_rng(0), same_objects=False)
    assert (query == 1).all()


def test_one_seed_gives_one_sample() -> None:
    relevance = sp.csr_matrix(random_counts(3, 6, 6))
    first, again, other = (
        np.stack(sample_triplets(relevance, 50, np.random.default_rng(seed), same_objects=False))
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
