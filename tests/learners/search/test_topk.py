"""The search answers its definition to the bit: against a slow twin, and near what float64 says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners import BlockError, SparseBlock, as_block
from learners.search import (
    NONE_GIVEN,
    DenseItems,
    EncodedQueries,
    SparseItems,
    TopK,
    as_items,
    best_among,
    score_rows,
    topk,
    topk_dense,
)
from tests.learners.examples import block, rows, turns_during
from tests.learners.search.twin import plain_topk

KINDS = ("dense", "sparse")
Floats = NDArray[np.float32]


def same(found: tuple[Floats, NDArray[np.int64]], expected: tuple[Floats, NDArray[np.int64]]) -> None:
    assert found[1].tolist() == expected[1].tolist()
    assert found[0].tobytes() == expected[0].tobytes()
    assert not np.isnan(found[0]).any()


def scales(rng: np.random.Generator, n: int, which: str) -> Floats | None:
    if which == "none":
        return None
    drawn = rng.uniform(0.1, 10, n).astype(np.float32)
    return np.where(rng.random(n) < 0.2, np.float32(0), drawn)


def offsets(rng: np.random.Generator, n: int, which: str) -> Floats | None:
    """None, of the size of products, or so large that all of a score but its last digits is offset."""
    if which == "none":
        return None
    return (rng.standard_normal(n) * (1 if which == "small" else 1e6)).astype(np.float32)


@settings(max_examples=90, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    shape=st.tuples(st.integers(0, 60), st.integers(1, 90)),
    queries=st.integers(0, 35),
    k=st.sampled_from([0, 1, 3, 10, 100]),
    scale=st.sampled_from(["none", "some"]),
    offset=st.sampled_from(["none", "small", "large"]),
    masked=st.booleans(),
    numbers=st.sampled_from(["ordinary", "ties", "steep", "huge", "tiny"]),
)
def test_it_answers_the_definition_to_the_bit(
    seed: int,
    kind: str,
    shape: tuple[int, int],
    queries: int,
    k: int,
    scale: str,
    offset: str,
    masked: bool,
    numbers: str,
) -> None:
    rng = np.random.default_rng(seed)
    items, folded = rows(rng, *shape), rows(rng, queries, shape[1], 1.0)
    if numbers == "ties":
        items, folded = np.round(items * 4), np.round(folded * 4)
    if numbers == "steep":  # one number decides, so that codes of 8 bits say little about the others
        items[:, 0], folded[:, 0] = items[:, 0] * 1e6, 0
    if numbers == "huge":
        items, folded = items * np.float32(1e20), folded * np.float32(1e19)
    if numbers == "tiny":
        items, folded = items * np.float32(1e-22), folded * np.float32(1e-22)
    factors = scales(rng, len(items), scale)
    allowed = rng.random(len(items)) < 0.7 if masked else None
    part = block(items, kind)
    added = offsets(rng, len(items), offset)
    found = topk(folded, as_items(part), factors, allowed, k, offset=added)
    same(found, plain_topk(folded, part, factors, allowed, k, added))


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_by_a_distance_are_found_by_an_offset(kind: str) -> None:
    rng = np.random.default_rng(6)
    items, folded = rows(rng, 2000, 40), rows(rng, 20, 40, 1.0)
    items *= rng.uniform(0.1, 3, (2000, 1)).astype(np.float32)  # of all lengths
    away = np.square(folded[:, None, :].astype(np.float64) - items).sum(axis=2)
    part = as_items(block(items, kind))
    own = -np.square(items.astype(np.float64)).sum(axis=1).astype(np.float32)
    scores, found = topk(2 * folded, part, None, None, 10, offset=own)
    nearest = np.argsort(away, axis=1)[:, :10]
    assert found.tolist() == nearest.tolist()
    without = topk(2 * folded, part, None, None, 10)[1]
    assert without.tolist() != found.tolist()
    named = score_rows(2 * folded[3], part, None, found[3], offset=own)
    assert named.tobytes() == scores[3].tobytes()


def test_offsets_that_do_not_fit_are_refused() -> None:
    part = as_items(block(np.ones((3, 2), np.float32), "dense"))
    folded = np.ones((1, 2), np.float32)
    for wrong in (np.zeros(2, np.float32), np.zeros(3), np.array([0, np.nan, 0], np.float32)):
        with pytest.raises(BlockError, match="offset"):
            topk(folded, part, None, None, 1, offset=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_float64(kind: str) -> None:
    rng = np.random.default_rng(3)
    items, folded = rows(rng, 500, 200), rows(rng, 17, 200, 1.0)
    factors = rng.uniform(0.5, 2, 500).astype(np.float32)
    exact = folded.astype(np.float64) @ items.astype(np.float64).T * factors
    scores, found = topk(folded, as_items(block(items, kind)), factors, None, 10)
    order = np.argsort(-exact, axis=1)[:, :10]
    assert found.tolist() == order.tolist()
    np.testing.assert_allclose(scores, np.take_along_axis(exact, order, axis=1), rtol=2**-23)


@pytest.mark.parametrize("dim", [70, 66_000])
def test_columns_of_16_and_of_32_bits_and_dense_rows_score_alike(dim: int) -> None:
    rng = np.random.default_rng(4)
    items = rows(rng, 40, 70)
    folded = rng.standard_normal((5, 70)).astype(np.float32)
    scattered = np.sort(rng.choice(dim, 70, replace=False))
    narrow = block(items, "sparse")
    assert isinstance(narrow, SparseBlock)
    wide = SparseBlock(narrow.indptr, scattered[narrow.indices].astype(np.int32), narrow.values, dim)
    spread = rng.standard_normal((5, dim)).astype(np.float32)
    spread[:, scattered] = folded
    expected = topk(folded, as_items(block(items, "dense")), None, None, 10)
    same(topk(folded, as_items(narrow), None, None, 10), expected)
    same(topk(spread, as_items(wide), None, None, 10), expected)
    chosen = np.array([3, 3, 39, 0])
    for part, query in ((narrow, folded[0]), (wide, spread[0]), (block(items, "dense"), folded[0])):
        scores = score_rows(query, as_items(part), None, chosen)
        all_scores, all_rows = topk(query[None], as_items(part), None, None, 40)
        by_row = all_scores[0][np.argsort(all_rows[0])]
        assert scores.tobytes() == by_row[chosen].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_neither_batch_nor_neighbours_change_an_answer(kind: str) -> None:
    rng = np.random.default_rng(5)
    items = as_items(block(rows(rng, 3000, 50), kind))
    folded = rows(rng, 37, 50, 1.0)
    together = topk(folded, items, None, None, 10)
    for n in range(37):
        alone = topk(folded[n : n + 1], items, None, None, 10)
        same(alone, (together[0][n : n + 1], together[1][n : n + 1]))
    for size in (2, 15, 16, 17):
        same(topk(folded[:size], items, None, None, 10), (together[0][:size], together[1][:size]))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_in_rising_order_are_all_looked_at(kind: str) -> None:
    items = np.linspace(-1, 1, 1000, dtype=np.float32)[:, None] * np.ones((1, 9), np.float32)
    folded = np.ones((3, 9), np.float32) * np.array([[1], [-1], [0]], np.float32)
    scores, found = topk(folded, as_items(block(items, kind)), None, None, 3)
    assert found.tolist() == [[999, 998, 997], [0, 1, 2], [0, 1, 2]]
    assert scores[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [1, 3])
def test_what_the_quick_scan_cannot_tell_apart_is_told_apart(kind: str, queries: int) -> None:
    """Large numbers cancel, so that neither a float32 sum nor 8-bit codes keep anything of the score."""
    rng = np.random.default_rng(13)
    large = rng.standard_normal((400, 32)).astype(np.float32) * 100_000
    order = rng.permutation(400)
    items = np.hstack([large, -large, 1e-4 * (order[:, None] + 1)]).astype(np.float32)
    folded = np.ones((queries, 65), np.float32)
    found = topk(folded, as_items(block(items, kind)), None, None, 10)[1]
    assert found.tolist() == [np.argsort(-order)[:10].tolist()] * queries


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_codes_of_a_query_leave_out_counts(kind: str) -> None:
    """One number of the query is so large that all others have code 0; the items' codes leave nothing out."""
    rng = np.random.default_rng(15)
    items = rng.integers(0, 2, (300, 40)).astype(np.float32)
    folded = (0.01 * rng.standard_normal((3, 40))).astype(np.float32)
    items[:, 0], folded[:, 0] = 1, 1000
    part = block(items, kind)
    same(topk(folded, as_items(part), None, None, 10), plain_topk(folded, part, None, None, 10))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [1, 3])
def test_sums_that_leave_float32_on_the_way_are_found(kind: str, queries: int) -> None:
    items = np.full((50, 40), 1e-3, np.float32)
    items[7, [0, 8]], items[7, [16, 24, 32]] = -3e38, 3e38
    scores, found = topk(np.ones((queries, 40), np.float32), as_items(block(items, kind)), None, None, 1)
    assert found.tolist() == [[7]] * queries
    np.testing.assert_allclose(scores, 3e38, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [1, 3])
def test_scores_below_float32_are_the_least_there_is_and_tie(kind: str, queries: int) -> None:
    items = np.zeros((40, 20), np.float32)
    for row in range(40):
        items[row, : 20 - row // 2] = -1e20  # the later, the shorter
    folded, scale = np.full((queries, 20), 2, np.float32), np.full(40, 1e20, np.float32)
    scores, found = topk(folded, as_items(block(items, kind)), scale, None, 3)
    assert found.tolist() == [[0, 1, 2]] * queries
    assert np.all(scores == -np.finfo(np.float32).max)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [1, 3])
def test_products_below_float32_count_where_the_scale_is_large(kind: str, queries: int) -> None:
    rng = np.random.default_rng(16)
    part = block(rows(rng, 300, 30, 1.0) * np.float32(1e-25), kind)
    folded, scale = rows(rng, queries, 30, 1.0) * np.float32(1e-24), np.full(300, 1e38, np.float32)
    found = topk(folded, as_items(part), scale, None, 5)
    assert len(set(found[0][0])) == 5
    same(found, plain_topk(folded, part, scale, None, 5))


def test_codes_of_many_large_numbers_do_not_overflow() -> None:
    items = np.ones((40, 1000), np.float32) * np.linspace(1, 2, 40, dtype=np.float32)[:, None]
    found = topk(np.ones((2, 1000), np.float32), as_items(block(items, "dense")), None, None, 3)[1]
    assert found.tolist() == [[39, 38, 37]] * 2


def among(
    folded: Floats,
    items: DenseItems,
    rows_: NDArray[np.int64],
    k: int,
    scale: Floats = NONE_GIVEN,
    allowed: NDArray[np.bool_] | None = None,
) -> TopK:
    encoded = EncodedQueries.of(folded, items.dim)
    return best_among(encoded, items, rows_, k, terms=(scale, NONE_GIVEN), allowed=allowed)


def test_a_score_that_is_rounded_up_to_another_ties_with_it() -> None:
    """Both have exact codes, so that nothing but the rounding of the score is between bound and score."""
    items, folded = np.zeros((6, 9), np.float32), np.full((1, 9), 32767, np.float32)
    items[[2, 5], :8], folded[0, 8] = 127, 1
    items[2, 8], items[5, 8] = 3, 4  # 33291275, a half that is rounded to even, and 33291276
    dense = as_items(block(items, "dense"))
    assert isinstance(dense, DenseItems)
    scores, found = among(folded, dense, np.array([5, 2]), 1)
    assert (scores.tolist(), found.tolist()) == ([[33291276]], [[2]])


def test_scores_that_are_rounded_to_the_smallest_number_tie() -> None:
    items = np.zeros((6, 3), np.float32)
    items[2, 0], items[5, 0] = 0.9, 1.2
    dense = as_items(block(items, "dense"))
    assert isinstance(dense, DenseItems)
    smallest = np.finfo(np.float32).smallest_subnormal
    scale = np.full(6, smallest, np.float32)
    found = among(np.ones((1, 3), np.float32), dense, np.array([5, 2]), 1, scale)
    assert (found[0].tolist(), found[1].tolist()) == ([[float(smallest)]], [[2]])


@pytest.mark.parametrize(("kind", "most"), [("sparse", 1e-4), ("dense", 0.02)])
def test_bounds_are_narrow(kind: str, most: float) -> None:
    """Bounds that let everything through would be right and slow."""
    values = rows(np.random.default_rng(6), 2000, 300)
    items = as_items(block(values, kind))
    bounds = items.radius[items.places] if isinstance(items, SparseItems) else items.bounds[:, 2]
    assert np.all(bounds <= most * np.linalg.norm(values, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_searched_is_refused_by_name(kind: str) -> None:
    rng = np.random.default_rng(7)
    items, folded = as_items(block(rows(rng, 5, 4), kind)), rows(rng, 2, 4, 1.0)
    wrong = folded.copy()
    wrong[1, 2] = np.nan
    for arguments, word in (
        ((folded[:, :3], items, None, None, 1), "folded queries"),
        ((folded.astype(np.float64), items, None, None, 1), "folded queries"),
        ((folded[0], items, None, None, 1), "folded queries"),
        ((wrong, items, None, None, 1), "folded query 1"),
        ((folded, items, np.ones(4, np.float32), None, 1), "scale"),
        ((folded, items, np.array([1, 1, np.nan, 1, 1], np.float32), None, 1), "scale"),
        ((folded, items, np.array([1, 1, -1, 1, 1], np.float32), None, 1), "scale"),
        ((folded, items, None, np.ones(4, np.bool_), 1), "allowed"),
        ((folded, items, None, None, -1), "k must"),
    ):
        with pytest.raises(BlockError, match=word):
            topk(*arguments)
    for chosen in ([5], [-1]):
        with pytest.raises(BlockError, match="rows"):
            score_rows(folded[0], items, None, np.array(chosen))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_items_that_are_not_finite_are_refused_with_their_row(kind: str, value: float) -> None:
    items = rows(np.random.default_rng(8), 5, 4, 1.0)
    items[3, 1] = value
    with pytest.raises(BlockError, match="row 3"):
        as_items(block(items, kind))


@pytest.mark.parametrize("index", [-1, 4])
def test_items_with_an_index_out_of_range_are_refused(index: int) -> None:
    one = np.array([index], np.int32)
    with pytest.raises(BlockError, match="row 0"):
        as_items(SparseBlock(np.array([0, 1]), one, np.ones(1, np.float32), 4))


def test_a_slice_of_a_block_is_searched_as_its_rows() -> None:
    whole = block(rows(np.random.default_rng(9), 30, 12), "sparse")
    folded = rows(np.random.default_rng(10), 3, 12, 1.0)
    part = whole.slice(7, 20)
    same(topk(folded, as_items(part), None, None, 5), plain_topk(folded, part, None, None, 5))


def test_among_some_rows_they_alone_are_looked_at() -> None:
    rng = np.random.default_rng(14)
    values, folded = np.round(rows(rng, 80, 6) * 3), np.round(rows(rng, 18, 6, 1.0) * 3)
    allowed, some = rng.random(80) < 0.8, rng.permutation(80)[:30]
    items, mask = as_items(block(values, "dense")), np.zeros(80, np.bool_)
    assert isinstance(items, DenseItems)
    mask[some] = True
    found = among(folded, items, some, 7, allowed=allowed)
    same(found, topk_dense(folded, items, None, allowed & mask, 7))
    nothing = among(folded, items, np.zeros(0, np.int64), 2)
    assert nothing[1].tolist() == [[-1, -1]] * 18


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_releases_the_interpreter(kind: str) -> None:
    rng = np.random.default_rng(11)
    items, folded = as_items(block(rows(rng, 20_000, 200, 0.2), kind)), rows(rng, 1600, 200, 1.0)
    # on a busy machine this thread may have to wait for a processor meanwhile
    assert any(turns_during(lambda: topk(folded, items, None, None, 10)) > 100 for _ in range(3))


def test_items_refer_to_dense_rows_and_copy_none() -> None:
    values = rows(np.random.default_rng(12), 10, 4, 1.0)
    items = as_items(as_block(values))
    assert items.values is values
