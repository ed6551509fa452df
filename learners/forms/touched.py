"""The scores of a W of which only touched entries are kept: S(q, p) = q^T W p, raw or as a learned cosine.

A query folds to W^T q, for which the tables of its own rows are read and no other; to sym(W) q where those of
the transpose are at hand as well. On tf-idf texts the symmetric part retrieves better than W as it was
learned, and nearly as well as the projected form of `learners.forms.serving`, which is not to be had here: no
decomposition of a million columns is in reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, Int32s, Int64s, SparseBlock, as_block
from learners.errors import StateError, saved
from learners.forms.quadratic import Pieces, batches, score_pairs, whole
from learners.kernels import row_tables
from learners.kernels.oasis_rows import add_fold, self_products_rows

PROBES = 1 << 10
"""What the self score of an item costs, in multiplications, for each of its numbers."""
SPARE = 8
"""The part of all places that is free at least after tables were moved together: so it happens seldom."""


@dataclass(slots=True, eq=False)
class Tables:
    """Touched entries, as `learners.kernels.row_tables` keeps them; written in place, a longer array of cells
    takes the place of a full one.

    starts int64 [dim], sizes, counts int32 [dim], cells int64 [places], marks int64.
    """

    starts: Int64s
    sizes: Int32s
    counts: Int32s
    cells: Int64s
    marks: Int64s

    @classmethod
    def empty(cls, dim: int, places: int = 0) -> Self:
        """None touched; pages are not there before they are."""
        by_row = (np.zeros(dim, np.int64), np.zeros(dim, np.int32), np.zeros(dim, np.int32))
        return cls(*by_row, _cells(places), np.zeros(row_tables.MARKS, np.int64))

    @classmethod
    def of_entries(cls, dim: int, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Of arrays as `entries` gives them. Raises StateError naming what does not fit."""
        rows = saved(arrays, "rows", np.int32, (None,))
        pointers = saved(arrays, "starts", np.int64, (None,))
        columns = saved(arrays, "columns", np.int32, (None,))
        values = saved(arrays, "values", np.float32, (None,))
        fit = len(pointers) == len(rows) + 1 and len(values) == len(columns)
        if not fit or not _in_order(dim, rows, pointers, columns):
            raise StateError(
                "arrays dim, rows, starts, columns and values do not fit each other: they were altered"
            )
        rows, pointers, columns, values = map(np.ascontiguousarray, (rows, pointers, columns, values))
        tables = cls.empty(dim, row_tables.places_for(rows, pointers, dim))
        row_tables.fill(tables.for_kernels, rows, pointers, columns, values)
        return tables

    @property
    def dim(self) -> int:
        """Rows and columns of the matrix."""
        return len(self.starts)

    @property
    def count(self) -> int:
        """Entries."""
        return int(self.marks[row_tables.ENTRIES])

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, also of places that nothing was put in yet."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)

    @property
    def for_kernels(self) -> tuple[Any, ...]:
        """As kernels take them."""
        cells = self.cells
        views = (cells, cells.view(np.int32), cells.view(np.float32))
        return (self.starts, self.sizes, self.counts, *views, self.marks)

    def copy(self) -> Tables:
        """Independent ones."""
        by_row = (self.starts.copy(), self.sizes.copy(), self.counts.copy())
        return Tables(*by_row, self._in_room_of(len(self.cells)), self.marks.copy())

    def _in_room_of(self, places: int) -> Int64s:
        cells, top = _cells(places), int(self.marks[row_tables.TOP])
        cells[:top] = self.cells[:top]
        return cells

    def make_room(self) -> None:
        """As many places more as the last step wanted: by moving the tables together, or by more cells."""
        wanted = int(self.marks[row_tables.LIVE] + self.marks[row_tables.WANTED_PLACES])
        if wanted > len(self.cells) - len(self.cells) // SPARE:
            self.cells = self._in_room_of(wanted + wanted // 4)
        row_tables.move_together(self.for_kernels)

    def cut_for(self, most: int) -> tuple[int, int, int]:
        """What leaves so many entries, those of largest magnitude, for `drop_below`."""
        found: tuple[int, int, int] = row_tables.cut_for(self.for_kernels, most)
        return found

    def drop_below(self, cut: tuple[int, int, int], transposed: bool = False) -> int:
        """Drop the entries that a cut leaves out; how many went. transposed: it is one of the transpose."""
        return int(row_tables.drop_below(self.for_kernels, cut, transposed))

    def transposed(self) -> Tables:
        """Those of the transpose."""
        entries = entries_of(sparse.csr_array(self.matrix().T))
        return Tables.of_entries(self.dim, entries)

    def entries(self) -> dict[str, NDArray[Any]]:
        """The entries by row and column, whatever way they came in; copies.

        rows: int32 [r], those touched, ascending. starts: int64 [r + 1], where the entries of each begin, and
        where the last ones end. columns: int32 [n], ascending within a row. values: float32 [n].
        """
        rows = np.flatnonzero(self.counts).astype(np.int32)
        pointers = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.counts[rows], out=pointers[1:])
        columns, values = np.empty(self.count, np.int32), np.empty(self.count, np.float32)
        row_tables.gather(self.for_kernels, rows, pointers, columns, values)
        return {"rows": rows, "starts": pointers, "columns": columns, "values": values}

    def matrix(self) -> sparse.csr_array:
        """The matrix, float32 [dim, dim]; a copy."""
        return matrix_of(self.dim, self.entries())


def _cells(places: int) -> Int64s:
    """Free places, 8 of them in each line of the cache; pages are not there before they are written."""
    room = np.zeros(places + 8, np.int64)
    first = -(room.ctypes.data // 8) % 8
    return room[first : first + places]


def matrix_of(dim: int, entries: Mapping[str, NDArray[Any]]) -> sparse.csr_array:
    """Entries as `Tables.entries` gives them as a matrix [dim, dim], columns ascending."""
    pointers = np.zeros(dim + 1, np.int64)
    pointers[entries["rows"].astype(np.int64) + 1] = np.diff(entries["starts"])
    np.cumsum(pointers, out=pointers)
    return sparse.csr_array((entries["values"], entries["columns"], pointers), (dim, dim))


def entries_of(matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    """The entries of a matrix, those stored that are 0 too, as `Tables.entries` gives them."""
    matrix.sort_indices()
    rows = np.flatnonzero(np.diff(matrix.indptr)).astype(np.int32)
    starts = np.concatenate([matrix.indptr[rows], matrix.indptr[-1:]]).astype(np.int64)
    columns, values = matrix.indices.astype(np.int32), matrix.data.astype(np.float32)
    return {"rows": rows, "starts": starts, "columns": columns, "values": values}


def _in_order(dim: int, rows: Int32s, pointers: Int64s, columns: Int32s) -> bool:
    """Whether rows and columns are those of a matrix [dim, dim], ascending, and no row is without entries."""
    if pointers[0] != 0 or pointers[-1] != len(columns) or not (pointers[1:] > pointers[:-1]).all():
        return False
    if len(rows) and (rows[0] < 0 or rows[-1] >= dim or not (rows[1:] > rows[:-1]).all()):
        return False
    if len(columns) == 0:
        return True
    ascends = columns[1:] > columns[:-1]
    ascends[pointers[1:-1] - 1] = True  # from one row to the next
    return bool(ascends.all()) and columns.min() >= 0 and columns.max() < dim


@dataclass(frozen=True, slots=True, eq=False)
class TouchedForm:
    """S(q, p) = q^T W p, W = diag(diagonal) + what the tables hold, or its symmetric part.

    tables, transposed: W - diag(diagonal) and its transpose, read and never copied: the form follows them.
    Without `transposed` W is served as it is. normalised: divided by sqrt(S(q, q) S(p, p)), and 0 where one
    of them is not above 0. W is not positive semi-definite, so that such a score may be above 1.
    """

    tables: Tables
    transposed: Tables | None
    diagonal: Float32s
    normalised: bool

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.diagonal)

    def fold(self, queries: Any) -> Float32s:
        """W^T q, or sym(W) q, for each query, float32 [n, d]; search any index of items with it by inner
        product.

        Raises BlockError on another dimension or an index out of range.
        """
        rows = _checked(queries, self.dim, "queries")
        folded = np.zeros((len(rows), self.dim), np.float32)
        both = [self.tables] if self.transposed is None else [self.tables, self.transposed]
        for tables in both:
            add_fold(tables.for_kernels, np.float32(1 / len(both)), rows.kernel_rows(), folded)
        for n in range(len(rows)):
            own = slice(int(rows.indptr[n]), int(rows.indptr[n + 1]))
            columns = rows.indices[own]
            folded[n, columns] += rows.values[own] * self.diagonal[columns]
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T W p for each item, clipped at 0, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = _checked(items, self.dim, "items")
        products = np.zeros(len(block))
        each = (int(block.indptr[-1]) - int(block.indptr[0])) // max(1, len(block))
        for batch in batches(len(block), PROBES * each, pieces):
            rows = block.slice(batch.start, batch.stop)
            self_products_rows(self.tables.for_kernels, self.diagonal, rows.kernel_rows(), products[batch])
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        return score_pairs(self, queries, items)


def _checked(rows: Any, dim: int, name: str) -> SparseBlock:
    """As CSR rows whose indices lie within. Raises BlockError."""
    block: Block = as_block(rows, dim, name)
    if isinstance(block, DenseBlock):
        block = as_block(sparse.csr_array(block.values))
    assert isinstance(block, SparseBlock)
    block.check_indices()
    return block
