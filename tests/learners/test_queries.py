"""The map from another model's vectors: fitted on pairs, against NumPy on all of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.errors import MapError
from learners.maps import FittedSpaceMap, PairFit, QueryMap, SpaceMap, UnitMap, ViewConfig
from learners.maps.queries import HELD, LEFT_OUT

NEW, OLD, PAIRS = 12, 8, 600


def pairs(noise: float = 0.05, count: int = PAIRS) -> tuple[Any, Any]:
    draw = np.random.default_rng(3)
    old = draw.standard_normal((count, OLD))
    new = old @ draw.standard_normal((OLD, NEW)) + noise * draw.standard_normal((count, NEW))
    return new, old


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fitted(new: Any, old: Any, piece: int = 100, *, unit: bool = True) -> PairFit:
    fit = PairFit(unit)
    for start in range(0, len(new), piece):
        fit.add(new[start : start + piece], old[start : start + piece])
    return fit


def test_ridge_in_pieces_is_that_of_all_pairs_at_once() -> None:
    new, old = pairs()
    found = fitted(new, old).fit("ridge")
    X, Y = unit(new.astype(np.float32)).astype(np.float64), unit(old.astype(np.float32)).astype(np.float64)
    size = float(found.way.removeprefix("ridge ")) * np.trace(X.T @ X) / NEW
    expected = np.linalg.solve(X.T @ X + size * np.eye(NEW), X.T @ Y)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-5)
    left_out = np.arange(PAIRS) % LEFT_OUT == LEFT_OUT - 1
    M = np.linalg.solve(
        X[~left_out].T @ X[~left_out] + 0.9 * size * np.eye(NEW), X[~left_out].T @ Y[~left_out]
    )
    np.testing.assert_allclose(found.moved, X[left_out] @ M, atol=2e-3)
    np.testing.assert_allclose(found.wanted, Y[left_out], atol=1e-6)
    assert (found.pairs, found.left_out) == (PAIRS, PAIRS // LEFT_OUT)
    assert found.cosine > 0.99
    assert 0.97 < found.explained < 1
    other = fitted(new, old, piece=7).fit("ridge")
    np.testing.assert_allclose(other.matrix, found.matrix, atol=1e-6)


def test_procrustes_has_orthonormal_columns_and_finds_a_rotation() -> None:
    draw = np.random.default_rng(5)
    turn = np.linalg.qr(draw.standard_normal((NEW, OLD)))[0]
    old = draw.standard_normal((PAIRS, OLD))
    found = fitted(old @ turn.T, old).fit("procrustes")
    np.testing.assert_allclose(found.matrix, turn, atol=1e-5)
    np.testing.assert_allclose(found.matrix.T @ found.matrix, np.eye(OLD), atol=1e-5)
    assert found.cosine == pytest.approx(1)


def test_texts_without_a_direction_are_passed_over() -> None:
    new, old = pairs()
    sparse = old.copy()
    sparse[[5, 77]] = 0
    found = fitted(new, sparse).fit("ridge")
    kept = np.delete(np.arange(PAIRS), [5, 77])
    np.testing.assert_allclose(found.matrix, fitted(new[kept], old[kept], piece=PAIRS).fit("ridge").matrix)
    assert found.pairs == PAIRS - 2


def test_lengths_are_kept_where_they_count() -> None:
    new, old = pairs(noise=0)
    found = fitted(new, 5 * old, unit=False).fit("ridge")
    np.testing.assert_allclose(new[:9] @ found.matrix, 5 * old[:9], rtol=0, atol=0.05)


def test_pairs_left_out_are_bounded_and_the_others_are_fitted_on() -> None:
    new, old = pairs(count=LEFT_OUT * HELD + 200)
    fit = fitted(new, old, piece=10_000)
    assert fit.fit("ridge").left_out == HELD
    assert fit._sums is not None
    assert fit._sums.count == len(new)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda new, old: (new[:40], old[:40]), "40 pairs are too few"),
        (lambda new, old: (new, old[:-1]), "600 new vectors for 599 old ones"),
        (
            lambda new, old: (np.where(np.arange(600)[:, None] == 7, np.nan, new), old),
            "pair 7: its new vector",
        ),
        (
            lambda new, old: (new, np.where(np.arange(600)[:, None] == 9, np.inf, old)),
            "pair 9: its old vector",
        ),
        (lambda new, old: (new[0], old), "not numbers in rows"),
        (lambda new, old: (new.astype(str), old), "not numbers in rows"),
    ],
)
def test_pairs_that_cannot_be_used_are_refused(change: Any, told: str) -> None:
    new, old = change(*pairs())
    with pytest.raises(MapError, match=told):
        fitted(new, old, piece=1000).fit()


def test_a_space_keeps_its_id_and_is_read_back_with_it() -> None:
    plain = SpaceMap({"text": ViewConfig("unit")}).fit(np.eye(OLD, dtype=np.float32))
    matrix = np.random.default_rng(1).standard_normal((NEW, OLD)).astype(np.float32)
    wider = FittedSpaceMap(plain.views, plain.unit, queries={"new": QueryMap("text", matrix)})
    assert wider.id == plain.id, "objects are mapped alike"
    assert wider.spec()["format"] > plain.spec()["format"], "a program that knows no such maps refuses it"
    again = FittedSpaceMap.load(wider.spec(), wider.arrays())
    assert isinstance(again.views["text"], UnitMap)
    np.testing.assert_array_equal(again.queries["new"].matrix, matrix)
    assert FittedSpaceMap.load(plain.spec(), plain.arrays()).queries == {}
    with pytest.raises(MapError, match="incomplete"):
        FittedSpaceMap.load(wider.spec(), plain.arrays())
    with pytest.raises(MapError, match="leads to no view"):
        FittedSpaceMap.load(wider.spec(), wider.arrays() | {"@new": matrix[:, 1:]})
