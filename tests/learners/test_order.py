"""Columns by falling count: the same numbers in other places, for maps, rankings, exports and steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from learners import Oasis, OasisConfig, SparseBlock, TripletBatch
from learners.block import as_block
from learners.errors import MapError
from learners.maps import ChainMap, FittedSpaceMap, OrderMap, SpaceMap, ViewConfig
from learners.maps.base import LinearRows
from learners.maps.linear import linear_space
from learners.maps.space import fit_map

DIM = 60
BY_COUNT = ViewConfig("by_count")


def rows(seed: int = 0, count: int = 80) -> SparseBlock:
    """Rows whose columns are frequent in an order of its own, positive."""
    rng = np.random.default_rng(seed)
    frequent = np.random.default_rng(7).permutation(DIM)
    drawn = rng.random((count, DIM)) < 1 / (1 + frequent)
    dense = drawn * rng.uniform(0.1, 1, (count, DIM))
    return _sparse(csr_array(dense.astype(np.float32)))


def _sparse(matrix: csr_array) -> SparseBlock:
    block = as_block(matrix)
    assert isinstance(block, SparseBlock)
    return block


def dense(block: SparseBlock) -> np.ndarray:
    found: np.ndarray = block.checked_csr().toarray()
    return found


def test_columns_that_more_rows_have_come_first() -> None:
    sample = rows()
    fitted = OrderMap.fit(sample, {})
    counts = (dense(sample) != 0).sum(axis=0)
    columns = fitted.given_columns()
    assert columns is not None
    assert (np.diff(counts[columns]) <= 0).all()
    equal = np.flatnonzero(np.diff(counts[columns]) == 0)
    assert (columns[equal] < columns[equal + 1]).all()  # equal ones as they were
    assert not np.array_equal(columns, np.arange(DIM))


def test_rows_are_the_same_numbers_in_other_places_and_rise() -> None:
    fitted, given = OrderMap.fit(rows(), {}), rows(1)
    mapped = fitted.transform(given)
    np.testing.assert_array_equal(dense(mapped)[:, fitted.place], dense(given))
    for start, end in zip(mapped.indptr, mapped.indptr[1:], strict=False):
        assert (np.diff(mapped.indices[start:end]) > 0).all()


@pytest.mark.parametrize("cut", [1, 7, 79])
def test_a_row_has_the_same_bits_in_every_batch(cut: int) -> None:
    fitted, given = OrderMap.fit(rows(), {}), rows(1)
    whole = fitted.transform(given)
    for part in (slice(0, cut), slice(cut, len(given))):
        here, there = fitted.transform(given.slice(part.start, part.stop)), whole.slice(part.start, part.stop)
        np.testing.assert_array_equal(dense(here), dense(there))


def test_a_malformed_row_stays_what_it_is_and_disturbs_no_other() -> None:
    fitted = OrderMap.fit(rows(), {})
    indices = np.array([3, 1, 5, 9, 2, 70, 4, 6, 8], np.int32)  # falling; sound; out of range; not finite
    values = np.array([1, 2, 3, 4, 5, 6, np.nan, 8, 9], np.float32)
    given = SparseBlock(np.array([0, 2, 4, 6, 9], np.int64), indices, values, DIM)
    mapped = fitted.transform(given)
    for row in (0, 2, 3):
        part = slice(int(given.indptr[row]), int(given.indptr[row + 1]))
        np.testing.assert_array_equal(mapped.indices[part], indices[part])
        np.testing.assert_array_equal(mapped.values[part], values[part])
    assert sorted(zip(mapped.indices[2:4].tolist(), mapped.values[2:4].tolist(), strict=True)) == sorted(
        [(int(fitted.place[5]), 3.0), (int(fitted.place[9]), 4.0)]
    )
    learner = Oasis(DIM, OasisConfig())
    good = fitted.transform(rows(2, 4))
    assert (
        learner.learn_many(TripletBatch(mapped, good, good)).reason.tolist()
        == Oasis(DIM, OasisConfig()).learn_many(TripletBatch(given, good, good)).reason.tolist()
    )


def test_malformed_rows_and_zeros_of_a_sample_are_not_counted() -> None:
    indptr = np.array([0, 2, 3, 4], np.int64)
    sample = SparseBlock(indptr, np.array([5, 2, 7, 9], np.int32), np.array([1, 1, 1, 0], np.float32), 10)
    assert OrderMap.fit(sample, {}).given_columns().tolist() == [7, 0, 1, 2, 3, 4, 5, 6, 8, 9]  # type: ignore[union-attr]


def test_steps_are_the_same_up_to_rounding() -> None:
    fitted = OrderMap.fit(rows(), {})
    given = [rows(seed, 200) for seed in (3, 4, 5)]
    plain, ordered = Oasis(DIM, OasisConfig(C=0.5)), Oasis(DIM, OasisConfig(C=0.5))
    plain.learn_many(TripletBatch(*given))
    ordered.learn_many(TripletBatch(*(fitted.transform(one) for one in given)))
    assert np.abs(plain.W - np.eye(DIM)).max() > 0.1
    np.testing.assert_allclose(ordered.W[np.ix_(fitted.place, fitted.place)], plain.W, atol=1e-5)


SPACES = {
    "unit": ViewConfig("chain", {"maps": [BY_COUNT, ViewConfig("unit")]}),
    "tfidf": ViewConfig("chain", {"maps": [BY_COUNT, ViewConfig("tfidf")]}),
    "behind": ViewConfig("chain", {"maps": [ViewConfig("tfidf"), BY_COUNT]}),
    "twice": ViewConfig("chain", {"maps": [BY_COUNT, ViewConfig("unit"), BY_COUNT]}),
    "alone": BY_COUNT,
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("similarity", ["cosine", ""])
def test_a_space_in_another_order_ranks_as_without(name: str, similarity: str) -> None:
    maps = [one for one in SPACES[name].options.get("maps", [BY_COUNT]) if one.kind != "by_count"]
    without = ViewConfig("chain", {"maps": maps}) if maps else ViewConfig("identity")
    sample = {"x": rows(), "y": np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)}
    several = name != "tfidf" and name != "behind"
    views = {"x": SPACES[name]} | ({"y": ViewConfig("unit")} if several else {})
    plain = {**views, "x": without}
    sample = {key: sample[key] for key in views}
    ordered = SpaceMap(views, similarity=similarity).fit(sample)  # type: ignore[arg-type]
    given = SpaceMap(plain, similarity=similarity).fit(sample)  # type: ignore[arg-type]
    moved, kept = _csr(ordered, sample), _csr(given, sample)
    columns = ordered.given_columns
    assert columns is not None
    assert given.given_columns is None
    np.testing.assert_allclose(moved.toarray(), kept.toarray()[:, columns], atol=1e-6)
    assert (ordered.own is None) == (given.own is None)
    if ordered.own is not None and given.own is not None:
        np.testing.assert_allclose(ordered.own.metric, given.own.metric[columns], rtol=1e-5)


def _csr(space: FittedSpaceMap, sample: dict[str, object]) -> csr_array:
    block = space.transform(sample)
    assert isinstance(block, SparseBlock)
    return block.checked_csr()


@pytest.mark.parametrize("name", ["unit", "tfidf", "behind", "twice"])
def test_folded_queries_come_back_in_the_order_of_the_given_vectors(name: str) -> None:
    space = SpaceMap({"x": SPACES[name]}, similarity="cosine").fit({"x": rows()})
    linear = linear_space(space)
    assert linear is not None
    mapped, given = _csr(space, {"x": rows(1)}), dense(rows(1))
    folded = np.random.default_rng(2).normal(size=(4, DIM)).astype(np.float32)
    back = linear.back(folded)
    ours, theirs = folded @ mapped.toarray().T, back @ given.T
    lengths = ours / theirs  # each object's own factor, for any query
    np.testing.assert_allclose(lengths, np.broadcast_to(lengths[0], lengths.shape), rtol=1e-3)
    assert (lengths > 0).all()


def test_an_order_behind_columns_that_were_mixed_is_not_linear() -> None:
    mixed = LinearRows(np.ones((3, 3)))
    assert mixed.then(LinearRows(np.ones(3), order=np.array([1, 0, 2]))) is None


def test_what_is_saved_is_loaded_and_another_permutation_is_refused() -> None:
    fitted = OrderMap.fit(rows(), {})
    again = OrderMap.load(fitted.spec(), fitted.arrays())
    np.testing.assert_array_equal(again.place, fitted.place)
    for place in (
        np.zeros(DIM, np.int32),
        fitted.place[:-1],
        fitted.place.astype(np.int64),
        np.where(fitted.place == 0, -1, fitted.place).astype(np.int32),
        None,
    ):
        with pytest.raises(MapError, match="array place of the map by_count must"):
            OrderMap.load(fitted.spec(), {} if place is None else {"place": place})


def test_dense_rows_are_refused_with_what_to_do() -> None:
    with pytest.raises(MapError, match="reads sparse vectors"):
        OrderMap.fit(as_block(np.eye(3, dtype=np.float32)), {})


def test_a_chain_knows_which_columns_were_given() -> None:
    fitted = fit_map(SPACES["twice"], rows())
    assert isinstance(fitted, ChainMap)
    columns = fitted.given_columns()
    assert columns is not None
    mapped = fitted.transform(rows(1))
    assert isinstance(mapped, SparseBlock)
    unit = dense(rows(1)) / np.linalg.norm(dense(rows(1)), axis=1, keepdims=True)
    np.testing.assert_allclose(dense(mapped), unit[:, columns], atol=1e-6)
    rff = fit_map(ViewConfig("chain", {"maps": [BY_COUNT, ViewConfig("rff", {"components": 8})]}), rows())
    assert rff.given_columns() is None
