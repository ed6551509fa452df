"""Vectors as the tests compare them."""

import numpy as np

from streams.event import DenseColumn, SparseVector


def row_of_column(column, row):
    """The vector in `row` of a column."""
    if isinstance(column, DenseColumn):
        return column.values[row]
    part = slice(int(column.indptr[row]), int(column.indptr[row + 1]))
    return SparseVector(column.indices[part], column.values[part])


def same_vector(a, b):
    """Whether two vectors are of the same kind and equal bit for bit (NaN equals the same NaN)."""
    if isinstance(a, SparseVector) and isinstance(b, SparseVector):
        return a.indices.tobytes() == b.indices.tobytes() and a.values.tobytes() == b.values.tobytes()
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    return a.tobytes() == b.tobytes()
