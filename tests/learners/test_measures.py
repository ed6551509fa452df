"""Measures of rankings against scikit-learn (no ties) and against a slow plain-Python oracle (ties)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from learners import (
    average_precision,
    average_precision_at,
    judge_by_labels,
    macro_over,
    mean_over,
    precision_at_k,
    ranks_of,
)
from learners.measures import BY_ROW, RELEVANT_LAST


def slow_order(scores, relevant, exclude, ties):
    """Candidates by falling score, ties by row or the relevant ones last, the query's own row left out."""
    candidates = [i for i in range(len(scores)) if i != exclude]
    return sorted(candidates, key=lambda i: (-scores[i], ties == RELEVANT_LAST and i in relevant, i))


def slow_ap(order, relevant, k):
    if not relevant:
        return math.nan
    hits, total = 0, 0.0
    for place, candidate in enumerate(order[:k], 1):
        if candidate in relevant:
            hits += 1
            total += hits / place
    return total / min(len(relevant), k or len(relevant))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=30),
    st.sampled_from((BY_ROW, RELEVANT_LAST)),
    st.data(),
)
def test_ranks_and_measures_agree_with_the_slow_oracle_under_ties(values, ties, data):
    scores = np.array(values, np.float32)
    exclude = data.draw(st.none() | st.integers(0, len(values) - 1))
    candidates = [i for i in range(len(values)) if i != exclude]
    relevant = data.draw(st.lists(st.sampled_from(candidates), unique=True, max_size=8))
    order = slow_order(values, set(relevant), exclude, ties)
    ranks = ranks_of(scores, np.array(relevant, np.int64), exclude, ties=ties)
    assert [order[r - 1] for r in ranks] == relevant
    assert average_precision(ranks) == pytest.approx(slow_ap(order, set(relevant), None), nan_ok=True)
    assert average_precision_at(ranks, 4) == pytest.approx(slow_ap(order, set(relevant), 4), nan_ok=True)
    assert precision_at_k(ranks, 3) == pytest.approx(len(set(order[:3]) & set(relevant)) / 3)


def test_average_precision_equals_scikit_learn_without_ties():
    random = np.random.default_rng(0)
    for _ in range(20):
        scores = random.permutation(500).astype(np.float32)
        relevant = random.choice(500, size=170, replace=False)
        truth = np.zeros(500, int)
        truth[relevant] = 1
        ranks = ranks_of(scores, relevant)
        assert average_precision(ranks) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
        first = np.argsort(-scores)[:100]
        of_first = average_precision_score(truth[first], scores[first]) * truth[first].sum() / 100
        assert average_precision_at(ranks, 100) == pytest.approx(of_first, abs=1e-12)


def test_the_first_places_are_perfect_where_all_of_them_or_all_relevant_ones_are_right():
    assert average_precision_at(np.arange(1, 151), 100) == 1.0
    assert average_precision_at(np.array([1, 2, 3]), 100) == 1.0
    assert average_precision_at(np.array([101]), 100) == 0.0


def test_means_count_queries_that_have_something_relevant_and_classes_alike():
    values = np.array([1.0, 1.0, 1.0, 0.0, np.nan])
    assert macro_over(values, ["a", "a", "a", "b", "c"]) == 0.5
    assert mean_over(values) == 0.75
    assert math.isnan(macro_over(np.array([np.nan]), ["a"]))


def test_minus_infinity_is_the_last_place():
    scores = np.array([3.0, -np.inf, 3.0, 1.0], np.float32)
    assert ranks_of(scores, np.array([0, 2, 3])).tolist() == [1, 2, 3]


def test_labels_judge_each_query_over_all_others():
    labels = np.array(["dog", "dog", "cat", "dog", "hen", "cat"])
    table = np.array([[9, 3, 5, 4, 1, 0]] * 6, np.float32)
    found = judge_by_labels(lambda rows: table[rows], labels, np.array([0, 2, 4]), k=2, depth=2)
    np.testing.assert_allclose(found.ap, [(1 / 2 + 2 / 3) / 2, 1 / 5, np.nan])  # 2 3 1 4 5; 0 3 1 4 5
    np.testing.assert_allclose(found.ap_at, [1 / 4, 0, np.nan])
    np.testing.assert_allclose(found.precision, [1 / 2, 0, np.nan])
    assert found.labels == ("dog", "cat", "hen")
    assert found.map_at == pytest.approx(1 / 8)
    assert found.map == found.macro_map == pytest.approx((7 / 12 + 1 / 5) / 2)
    with pytest.raises(ValueError, match="ties 'fair'"):
        judge_by_labels(lambda rows: table[rows], labels, np.array([0]), ties="fair")
