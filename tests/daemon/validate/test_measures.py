"""Measures of shown lists against scikit-learn (no ties) and slow plain-Python oracles (ties)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from daemon.validate import measures, shown


def slow_order(scores):
    """Candidates by falling score, ties by index."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def slow_ap(order, relevant):
    hits, total = 0, 0.0
    for place, candidate in enumerate(order, 1):
        if candidate in relevant:
            hits += 1
            total += hits / place
    return total / len(relevant) if relevant else math.nan


tied_scores = st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=30)


def padded(random, lists, length, ties):
    scores = (
        random.integers(0, 4, (lists, length))
        if ties
        else random.permuted(np.tile(np.arange(length), (lists, 1)), axis=1)
    )
    valid = np.arange(length) < random.integers(2, length + 1, lists)[:, None]
    clicked = (random.random((lists, length)) < 0.4) & valid
    return scores.astype(np.float32), valid, clicked


@pytest.mark.parametrize("ties", [False, True])
def test_shown_measures_agree_with_scikit_learn_and_the_oracle(ties):
    random = np.random.default_rng(1)
    scores, valid, clicked = padded(random, 40, 9, ties)
    weights = random.random(scores.shape) + 0.1
    ranks = measures.shown_ranks(scores, valid)
    plain = measures.shown_average_precision(ranks, clicked)
    weighted = measures.shown_average_precision(ranks, clicked, weights)
    ndcg = measures.shown_ndcg(ranks, clicked)
    for i in range(len(scores)):
        n = valid[i].sum()
        order = slow_order(scores[i, :n].tolist())
        hits = set(np.flatnonzero(clicked[i]).tolist())
        assert plain[i] == pytest.approx(slow_ap(order, hits), nan_ok=True)
        if not hits:
            assert math.isnan(weighted[i])
            assert math.isnan(ndcg[i])
            continue
        precision = {c: len(set(order[: p + 1]) & hits) / (p + 1) for p, c in enumerate(order)}
        want = sum(weights[i, c] * precision[c] for c in hits) / sum(weights[i, c] for c in hits)
        assert weighted[i] == pytest.approx(want)
        if not ties:
            assert plain[i] == pytest.approx(average_precision_score(clicked[i, :n], scores[i, :n]))
            assert ndcg[i] == pytest.approx(ndcg_score([clicked[i, :n].astype(float)], [scores[i, :n]], k=10))


def test_equal_weights_are_plain_average_precision():
    scores, valid, clicked = padded(np.random.default_rng(2), 30, 6, True)
    ranks = measures.shown_ranks(scores, valid)
    np.testing.assert_allclose(
        measures.shown_average_precision(ranks, clicked, np.full(scores.shape, 7.0)),
        measures.shown_average_precision(ranks, clicked),
    )


def test_hinge_is_the_mean_over_clicked_unclicked_pairs():
    scores = np.array([[0.9, 0.2, 0.5, 99.0]], np.float32)
    valid = np.array([[True, True, True, False]])
    clicked = np.array([[True, False, False, False]])
    want = (max(0, 1 - 0.9 + 0.2) + max(0, 1 - 0.9 + 0.5)) / 2
    lists, all_clicked = (shown.ShownLists(valid, one, np.ones(valid.shape)) for one in (clicked, valid))
    assert measures.shown_hinge(scores, lists)[0] == pytest.approx(want, abs=1e-6)
    assert math.isnan(measures.shown_hinge(scores, all_clicked)[0])


def test_auc_of_each_list_agrees_with_scikit_learn_and_halves_ties():
    random = np.random.default_rng(3)
    scores = random.integers(0, 9, (20, 6)).astype(np.float32)
    clicked = random.random((20, 6)) < 0.4
    others = random.integers(0, 7, (20, 30)).astype(np.float32)
    counts = random.random((20, 30)) < 0.8
    clicked[3], counts[5] = False, False
    got = measures.auc_per_list(scores, clicked, others, counts)
    for n in range(20):
        if not clicked[n].any() or not counts[n].any():
            assert math.isnan(got[n])
            continue
        own, other = scores[n, clicked[n]], others[n, counts[n]]
        truth = np.r_[np.ones(len(own)), np.zeros(len(other))]
        assert got[n] == pytest.approx(roc_auc_score(truth, np.r_[own, other]))


def test_propensity_weights_are_clipped():
    assert shown.propensity_weights(np.array([1.0, 0.5, 0.001])).tolist() == [1.0, 2.0, 10.0]
