"""Feature vectors of one object, and columns holding one view of many objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """One sparse vector: `indices` int32 [k], strictly increasing, and `values` float32 [k]."""

    indices: Int32Array
    values: Float32Array


Vector = Float32Array | SparseVector
"""A dense vector (float32, one-dimensional) or a `SparseVector`."""


@dataclass(frozen=True, slots=True)
class SparseColumn:
    """One sparse view of n objects, in compressed rows.

    `indptr` int64 [n + 1], `indices` int32 [nnz], `values` float32 [nnz]; row i is the slice
    `indptr[i]:indptr[i + 1]`. `dim` is the number of coordinates of the view.
    """

    indptr: Int64Array
    indices: Int32Array
    values: Float32Array
    dim: int

    def __len__(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """One dense view of n objects: `values` float32 [n, dim], one object per row."""

    values: Float32Array

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        """The number of coordinates of the view."""
        return int(self.values.shape[1])


Column = SparseColumn | DenseColumn
