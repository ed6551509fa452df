"""Packed texts and columns of ids are what lists and dicts would be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.ids import IdColumn, Packed, join

blobs = st.lists(st.binary(max_size=9), max_size=30)


@settings(max_examples=60, deadline=None)
@given(rows=blobs, more=blobs, draw=st.data())
def test_packed_is_a_list(rows, more, draw):
    packed = Packed.of(rows)
    assert [packed[row] for row in range(len(packed))] == rows
    for row in (-1, len(rows)):
        with pytest.raises(IndexError):
            packed[row]
    joined = join([packed, Packed.of(more)])
    assert [joined[row] for row in range(len(joined))] == rows + more
    chosen = draw.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
    taken = packed.take(np.array(chosen, np.int32))
    assert [taken[row] for row in range(len(taken))] == [rows[row] for row in chosen]


def test_nothing_joined_is_nothing():
    assert len(join([])) == 0


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.text(max_size=6), unique=True, max_size=60),
    wanted=st.lists(st.text(max_size=6), max_size=20),
)
def test_an_id_column_finds_rows_as_a_dict_does(ids, wanted):
    column = IdColumn(Packed.of_texts(ids))
    assert list(column) == ids
    assert column[:] == ids
    assert column[1:4] == ids[1:4]
    rows = {one: row for row, one in enumerate(ids)}
    asked = [*wanted, *ids[::3]]
    assert column.rows_of(Packed.of_texts(asked)).tolist() == [rows.get(one, -1) for one in asked]
