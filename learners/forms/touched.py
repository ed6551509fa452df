"""The scores of a W of which only touched entries are kept: S(q, p) = q^T W p, raw or as a learned cosine.

A query folds to W^T q, for which the tables of its own rows are read and no other. W is neither made
symmetric nor projected: its transpose would have to be kept too, and no decomposition of a million columns is
in reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, Int32s, Int64s, SparseBlock, as_block
from learners.forms.quadratic import Pieces, batches, score_pairs, whole
from learners.kernels.oasis_rows import fold_rows, self_products_rows

PROBES = 1 << 10
"""What the self score of an item costs, in multiplications, for each of its numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Touched entries, as `learners.kernels.row_tables` keeps them; arrays are written in place.

    starts int64 [dim], sizes, counts int32 [dim], columns int32 [places], values float32 [places], marks
    int64.
    """

    starts: Int64s
    sizes: Int32s
    counts: Int32s
    columns: Int32s
    values: Float32s
    marks: Int64s

    @classmethod
    def empty(cls, dim: int, places: int, marks: int) -> Self:
        """None touched, in pages that are not there before they are."""
        by_row = (np.zeros(dim, np.int64), np.zeros(dim, np.int32), np.zeros(dim, np.int32))
        return cls(
            *by_row, np.zeros(places, np.int32), np.zeros(places, np.float32), np.zeros(marks, np.int64)
        )

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def for_kernels(self) -> tuple[Any, ...]:
        """As kernels take them."""
        bits = self.values.view(np.uint32)
        return (self.starts, self.sizes, self.counts, self.columns, self.values, bits, self.marks)

    def copy(self) -> Self:
        """Independent ones."""
        return type(self)(**{name: array.copy() for name, array in self.arrays.items()})

    def matrix(self) -> sparse.csr_array:
        """All entries, float32 [dim, dim], columns ascending; a copy."""
        dim, indptr = len(self.starts), np.zeros(len(self.starts) + 1, np.int64)
        np.cumsum(self.counts, out=indptr[1:])
        held = [
            start + np.flatnonzero(self.columns[start : start + size])
            for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
            if size
        ]
        at = np.concatenate(held) if held else np.zeros(0, np.int64)
        matrix = sparse.csr_array((self.values[at], self.columns[at] - 1, indptr), (dim, dim))
        matrix.sort_indices()
        return matrix


@dataclass(frozen=True, slots=True, eq=False)
class TouchedForm:
    """S(q, p) = q^T W p, W = diag(diagonal) + what the tables hold, which are read and never copied: the form
    follows them. normalised: divided by sqrt(S(q, q) S(p, p)), and 0 where one of them is not above 0.
    """

    tables: Tables
    diagonal: Float32s
    normalised: bool

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.diagonal)

    def fold(self, queries: Any) -> Float32s:
        """W^T q for each query, float32 [n, d]; search any index of items with it by inner product.

        Raises BlockError on another dimension or an index out of range.
        """
        rows = _checked(queries, self.dim, "queries")
        folded = np.empty((len(rows), self.dim), np.float32)
        fold_rows(self.tables.for_kernels, self.diagonal, rows.kernel_rows(), folded)
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
