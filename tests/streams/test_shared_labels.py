"""Triplets of shared labels against the dense formulas: what may be drawn, and how often."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.feed.shared_labels import NothingToDraw, SharedLabels


def table_of(rng: np.random.Generator, labels: int, objects: int) -> np.ndarray:
    return rng.integers(1, 9, (labels, objects)) * (rng.random((labels, objects)) < 0.4).astype(float)


def by_labels(table: np.ndarray) -> np.ndarray:
    """Pr(q, c) straight from the words: q uniform over those that can be queries, c over its partners."""
    together = (table > 0).T.astype(float) @ (table > 0) > 0
    partners = together & ~np.eye(len(together), dtype=bool)
    usable = partners.any(axis=1) & ~related(table).all(axis=1)
    return (
        np.where(usable[:, None], partners / np.maximum(partners.sum(axis=1), 1)[:, None], 0) / usable.sum()
    )


def by_relevance(table: np.ndarray) -> np.ndarray:
    """Pr(q, c) of JMLR 2010, equation 20 without a threshold, of pairs of two objects that have a rest."""
    joint = table / table.sum()
    mass = joint.sum(axis=1, keepdims=True)
    both = joint.T @ np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
    np.fill_diagonal(both, 0.0)
    both[related(table).all(axis=1)] = 0.0
    return both / both.sum()


def related(table: np.ndarray) -> np.ndarray:
    """Which objects share a label, every one with itself."""
    return ((table > 0).T.astype(float) @ (table > 0) > 0) | np.eye(table.shape[1], dtype=bool)


@pytest.mark.parametrize(("draw", "formula"), [("draw", by_labels), ("draw_by_relevance", by_relevance)])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_pairs_come_as_often_as_the_formula_says_and_rests_are_uniform(draw, formula, seed):
    table = table_of(np.random.default_rng(seed), 5, 7)
    count = 60_000
    query, clicked, skipped = getattr(SharedLabels(sp.csr_matrix(table)), draw)(
        count, np.random.default_rng(0)
    )
    expected = formula(table)
    found = np.zeros_like(expected)
    np.add.at(found, (query, clicked), 1 / count)
    np.testing.assert_allclose(found, expected, atol=4.5 * np.sqrt(0.25 / count))
    assert ((found > 0) <= (expected > 0)).all()
    rest = ~related(table)
    for one in np.unique(query):
        shares = np.bincount(skipped[query == one], minlength=7) / (query == one).sum()
        error = np.sqrt(0.25 / (query == one).sum())
        np.testing.assert_allclose(shares, rest[one] / rest[one].sum(), atol=4.5 * error)
        assert not shares[~rest[one]].any()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 8), st.booleans())
def test_nothing_is_drawn_that_may_not_be(seed, labels, objects, one_each):
    rng = np.random.default_rng(seed)
    table = table_of(rng, labels, objects)
    if one_each:
        table[rng.permutation(labels)[1:][:, None], np.arange(objects)] = 0
    shared = SharedLabels(sp.csr_matrix(table))
    close = related(table)
    np.testing.assert_array_equal(shared.has_partner, (close & ~np.eye(objects, dtype=bool)).any(axis=1))
    has = (table > 0).any(axis=0)
    np.testing.assert_array_equal(shared.has_rest[has], ~close.all(axis=1)[has])
    for draw in (shared.draw, shared.draw_by_relevance):
        try:
            query, clicked, skipped = draw(300, np.random.default_rng(seed))
        except NothingToDraw:
            assert not shared.usable.any()
            continue
        assert close[query, clicked].all()
        assert (query != clicked).all()
        assert not close[query, skipped].any()


def test_one_object_of_thousands_is_found_exactly():
    most = np.ones((1, 3000))
    most[0, 1234] = 0.0
    rare = np.zeros((40, 3000))
    rare[np.arange(40), np.arange(40)] = 1.0  # labels that nobody else has
    rare[:, 0] = 1.0
    rare[0, [1, 2]] = 0.0
    rare[1, 2] = 1.0
    for table in (most, np.vstack([rare, most])):
        shared = SharedLabels(sp.csr_matrix(table))
        _, _, skipped = shared.draw(500, np.random.default_rng(0))
        assert (skipped == 1234).all()
    many = np.vstack([np.eye(200, 202), np.zeros((1, 202))])
    many[:200, 0] = 1.0
    many[:200, 1:200] = 0.0
    many[200, [0, 200]] = 1.0  # 200 labels of its own, and one that it shares
    query, clicked, _ = SharedLabels(sp.csr_matrix(many)).draw(200, np.random.default_rng(0))
    assert ((clicked == 200) == (query == 0)).all()


def test_one_object_that_outweighs_all_others_is_no_partner_of_itself():
    table = np.array([[1e9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    query, clicked, skipped = SharedLabels(sp.csr_matrix(table)).draw_by_relevance(
        1000, np.random.default_rng(0)
    )
    assert {frozenset(pair) for pair in zip(query.tolist(), clicked.tolist(), strict=True)} == {
        frozenset((0, 1))
    }
    assert abs((query == 0).mean() - 0.5) < 0.08
    assert (skipped == 2).all()


@pytest.mark.parametrize("table", [np.zeros((0, 0)), np.zeros((2, 3)), np.eye(3), np.ones((1, 4))])
@pytest.mark.parametrize("draw", ["draw", "draw_by_relevance"])
def test_a_table_without_a_partner_or_without_a_rest_gives_nothing(table, draw):
    with pytest.raises(NothingToDraw):
        getattr(SharedLabels(sp.csr_matrix(table)), draw)(1, np.random.default_rng(0))
