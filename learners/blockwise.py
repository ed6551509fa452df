"""Blocks of columns, each with a square matrix of its own, kept one after another in one array."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the blocks lie.

    starts: int64 [m + 1], block k is columns starts[k]..starts[k + 1]. places: int64 [m + 1], its matrix
    [D_k, D_k] is entries places[k]..places[k + 1] of the flat array.
    """

    starts: Int64s
    places: Int64s

    @classmethod
    def of(cls, widths: tuple[int, ...]) -> Self:
        """The layout of blocks of these widths D_k."""
        columns = np.array(widths, np.int64)
        return cls(np.concatenate(([0], np.cumsum(columns))), np.concatenate(([0], np.cumsum(columns**2))))

    @property
    def dim(self) -> int:
        """Columns of all blocks."""
        return int(self.starts[-1])

    @property
    def entries(self) -> int:
        """Entries of all matrices."""
        return int(self.places[-1])

    @property
    def columns(self) -> list[slice]:
        """The columns of each block."""
        edges = self.starts.tolist()
        return [slice(*edge) for edge in pairwise(edges)]

    def matrices(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        """Views [D_k, D_k] of the flat array."""
        edges = self.places.tolist()
        return [
            flat[start:stop].reshape((columns.stop - columns.start,) * 2)
            for (start, stop), columns in zip(pairwise(edges), self.columns, strict=True)
        ]


def dense_part(block: Block, columns: slice) -> Float32s:
    """Some columns of the rows, dense. Raises BlockError on an index out of range."""
    if isinstance(block, DenseBlock):
        return block.values[:, columns]
    return np.asarray(block.checked_csr()[:, columns].toarray(), np.float32)
