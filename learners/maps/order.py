"""Columns of sparse vectors by falling count, so that what is touched together lies together.

A step of OASIS on sparse vectors touches the entries of W in the rows of the query's terms and the columns of
the others'. Terms are as frequent as Zipf's law says: most of what vectors have is in few columns. Where ids
are in alphabetical order, or hashes, these are scattered over W, and each entry is a line of memory of its
own, of which one number is used; numbered by count they share lines and pages, which stay in the cache.
Nothing else changes: the same numbers in other places, added in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, SparseBlock
from learners.errors import MapError
from learners.kernels.checks import NONE, fault_sparse
from learners.maps.base import LinearRows, Shapes, ViewMap, ViewMetric, option_whole, require_sparse


@dataclass(frozen=True, slots=True, eq=False)
class OrderMap(ViewMap):
    """x -> y with y_place(j) = x_j: columns that more rows of the sample have come first, equal ones as they
    were. place: int32 [dim], a permutation. Sparse; no options."""

    kind: ClassVar[str] = "by_count"
    sparse: ClassVar[bool] = True
    by_column: ClassVar[bool] = True
    fitted: ClassVar[Shapes] = {"place": ("dim_in",)}
    place: NDArray[np.int32]

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Count the rows of the sample that have each column; malformed ones, and zeros, do not count. Raises
        MapError for a dense sample."""
        cls.chosen(options)
        rows = require_sparse(cls.kind, sample)
        given = rows.entries
        counted = np.repeat(_sound(rows), np.diff(rows.indptr)) & (rows.values[given] != 0)
        counts = np.bincount(rows.indices[given][counted], minlength=rows.dim)
        place = np.empty(rows.dim, np.int32)
        place[np.argsort(-counts, kind="stable")] = np.arange(rows.dim, dtype=np.int32)
        return cls(place)

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of its array."""
        dim, place = option_whole(cls.kind, spec, "dim_in"), arrays.get("place")
        if not isinstance(place, np.ndarray) or place.dtype != np.int32 or place.shape != (dim,):
            raise MapError(f"array place of the map {cls.kind} must be int32 ({dim},)")
        if not np.array_equal(np.sort(place), np.arange(dim)):
            raise MapError(f"array place of the map {cls.kind} must name each of {dim} columns once")
        return cls(np.ascontiguousarray(place))

    def transform(self, block: Block) -> SparseBlock:
        """Rows in new arrays, their columns rising again."""
        rows = require_sparse(self.kind, block, self.dim_in)
        given, lengths = rows.entries, np.diff(rows.indptr)
        sound = np.repeat(_sound(rows), lengths)
        indices = rows.indices[given].copy()
        indices[sound] = self.place[indices[sound]]
        row = np.repeat(np.arange(len(rows), dtype=np.int64), lengths)
        # one sort for all rows; entries of a malformed row stay in their order
        key = (row << 32) | np.where(sound, indices, np.arange(len(indices)))
        order = np.argsort(key)
        indptr = rows.indptr - rows.indptr[0]
        return SparseBlock(indptr, indices[order], rows.values[given][order], rows.dim)

    def metric(self) -> ViewMetric | None:
        """The identity."""
        return ViewMetric(np.ones(self.dim_in), "kept")

    def linear(self) -> LinearRows | None:
        """The identity in other columns."""
        return LinearRows(np.ones(self.dim_in), order=self.place)

    def given_columns(self) -> NDArray[np.int64] | None:
        """Which column lies at each place."""
        columns = np.empty(self.dim_in, np.int64)
        columns[self.place] = np.arange(self.dim_in)
        return columns


def _sound(rows: SparseBlock) -> NDArray[np.bool_]:
    """bool [n]: which rows a step would take."""
    reason = np.full(len(rows), NONE, np.uint8)
    fault_sparse(rows.dim, rows.kernel_rows(), reason)
    sound: NDArray[np.bool_] = reason == NONE
    return sound
