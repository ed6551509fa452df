"""Blocks read vectors from what people have, cut them without copying, and refuse the rest in clear words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from learners import BlockError, DenseBlock, SparseBlock, TripletBatch, as_block, concatenate

from .examples import block, dense, rows

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
VALUES = rows(np.random.default_rng(0), 9, 6)


@KINDS
@given(start=st.integers(0, 12), stop=st.integers(0, 12))
def test_a_slice_is_that_part_without_a_copy(kind: str, start: int, stop: int) -> None:
    whole = block(VALUES, kind)
    part = whole.slice(start, stop)
    np.testing.assert_array_equal(dense(part), VALUES[start:stop])
    assert np.shares_memory(part.values, whole.values) or part.values.size == 0


@KINDS
@given(chosen=st.lists(st.integers(0, 6), max_size=12))
def test_take_gives_rows_in_the_order_asked_also_of_a_slice(kind: str, chosen: list[int]) -> None:
    part = block(VALUES, kind).slice(2, 9)
    np.testing.assert_array_equal(dense(part.take(chosen)), VALUES[2:][chosen])


@KINDS
@pytest.mark.parametrize("row", [-1, 9])
def test_take_outside_the_block_is_refused(kind: str, row: int) -> None:
    with pytest.raises(BlockError, match="block of 9"):
        block(VALUES, kind).take([row])


@KINDS
@given(cuts=st.lists(st.integers(0, 9), max_size=4))
def test_blocks_put_together_are_the_rows_they_were_cut_from(kind: str, cuts: list[int]) -> None:
    whole = block(VALUES, kind)
    places = [0, *sorted(cuts), 9]
    joined = concatenate([whole.slice(start, stop) for start, stop in pairwise(places)])
    np.testing.assert_array_equal(dense(joined), VALUES)
    assert type(joined) is type(whole)
    assert not np.shares_memory(joined.values, whole.values)


def test_blocks_of_other_kinds_or_dimensions_and_no_blocks_are_not_put_together() -> None:
    for word, blocks in {
        "no blocks": [],
        "one kind": [block(VALUES, "dense"), block(VALUES, "sparse")],
        "6 and 3": [block(VALUES, "sparse"), block(VALUES[:, :3], "sparse")],
    }.items():
        with pytest.raises(BlockError, match=word):
            concatenate(blocks)


@pytest.mark.parametrize(
    "x",
    [VALUES, VALUES.astype(np.float64), VALUES.tolist(), np.asfortranarray(VALUES), sparse.csr_array(VALUES),
     sparse.csr_matrix(VALUES), sparse.coo_array(VALUES), block(VALUES, "sparse")],
)  # fmt: skip
def test_as_block_reads_the_usual_forms(x: object) -> None:
    made = as_block(x)
    np.testing.assert_array_equal(dense(made), VALUES)
    assert (len(made), made.dim) == VALUES.shape
    assert made.values.dtype == np.float32


def test_one_axis_is_one_row() -> None:
    assert len(as_block(VALUES[0])) == 1


def test_unaligned_bytes_are_read() -> None:
    raw = b"x" + VALUES.tobytes()
    made = as_block(np.frombuffer(raw, np.float32, offset=1).reshape(VALUES.shape))
    assert made.values.flags.aligned
    np.testing.assert_array_equal(dense(made), VALUES)


@pytest.mark.parametrize(
    "x", [np.zeros((2, 2, 2)), np.array(["a"]), [[1, 2], [3]], None, np.zeros((3, 0)), np.array([1j])]
)
def test_what_is_no_rows_of_vectors_is_refused(x: object) -> None:
    with pytest.raises(BlockError):
        as_block(x)


def test_another_dimension_is_refused() -> None:
    with pytest.raises(BlockError, match="6 dimensions where 7"):
        as_block(VALUES, 7)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "word"),
    [
        ([], [0], [1.0], "empty"),
        ([0, 2], [1], [1.0], "indptr"),
        ([0, 2, 1], [0, 1], [1.0, 1.0], "indptr"),
        ([-1, 1], [0], [1.0], "indptr"),
        ([0, 1], [0], [], "values"),
        ([0, 1], [0.5], [1.0], "integers"),
        ([0, 1], [2**31], [1.0], "beyond"),
        ([0, 1], [[0]], [1.0], "1-d"),
    ],
)
def test_row_pointers_that_would_read_out_of_bounds_are_refused(
    indptr: list[int], indices: list[int], values: list[float], word: str
) -> None:
    with pytest.raises(BlockError, match=word):
        SparseBlock(np.array(indptr, np.int64), np.array(indices), np.array(values, np.float32), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_out_of_range_never_reaches_scipy(index: int) -> None:
    bad = SparseBlock(np.array([0, 0, 1]), np.array([index], np.int32), np.ones(1, np.float32), 3)
    with pytest.raises(BlockError, match="row 1"):
        bad.checked_csr()


def test_a_batch_needs_three_alike_blocks() -> None:
    good = block(VALUES, "dense")
    others = {
        "rows": DenseBlock(VALUES[:3]),
        "dimensions": DenseBlock(VALUES[:, :3]),
        "SparseBlock": block(VALUES, "sparse"),
    }
    for word, bad in others.items():
        with pytest.raises(BlockError, match=word):
            TripletBatch(good, bad, good)
        with pytest.raises(BlockError, match=word):
            TripletBatch(good, good, bad)
    assert len(TripletBatch(good, good, good).slice(2, 5)) == 3


def test_rows_are_taken_from_the_three_blocks_alike() -> None:
    taken = TripletBatch(*(DenseBlock(VALUES + role) for role in range(3))).take([4, 1])
    for role, found in enumerate((taken.query, taken.clicked, taken.skipped)):
        np.testing.assert_array_equal(dense(found), (VALUES + role)[[4, 1]])
