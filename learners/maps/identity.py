"""The map that changes nothing.

Unit length: x -> x / ||x||.

The cosine kernel brought to 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, SparseBlock
from learners.kernels.map_rows import cosine_dense, unit_dense, unit_sparse
from learners.maps.base import read_options, require_dense, require_sparse


@dataclass(frozen=True, slots=True, eq=False)
class IdentityMap:
    """x -> x, dense or sparse. Only dimension and kind are taken from the sample; no options."""

    kind: ClassVar[str] = "identity"
    dim_in: int
    sparse: bool

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return self.dim_in

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take dimension and kind of the sample."""
        read_options(cls.kind, options, {})
        return cls(sample.dim, isinstance(sample, SparseBlock))

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec`; it has no arrays."""
        return cls(int(spec["dim_in"]), bool(spec["sparse"]))

    def transform(self, block: Block) -> Block:
        """The same rows, in new arrays."""
        if self.sparse:
            rows = require_sparse(self.kind, block, self.dim_in)
            return SparseBlock(rows.indptr, rows.indices, rows.values.copy(), rows.dim)
        return DenseBlock(require_dense(self.kind, block, self.dim_in).values.copy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Nothing is fitted."""
        return {}

    def spec(self) -> dict[str, Any]:
        """Dimension and kind of the rows."""
        return {"dim_in": self.dim_in, "sparse": self.sparse}


def to_unit(block: Block) -> None:
    """Bring rows to unit length in place (values must be writable); zero and malformed rows stay."""
    if isinstance(block, SparseBlock):
        unit_sparse(block.dim, block.indptr, block.indices, block.values)
    else:
        unit_dense(block.values)


class UnitMap(IdentityMap):
    """x -> x / ||x||, dense or sparse; a zero vector stays zero. No options."""

    __slots__ = ()
    kind = "unit"

    def transform(self, block: Block) -> Block:
        """Unit rows in new arrays."""
        rows: SparseBlock | DenseBlock = IdentityMap.transform(self, block)
        to_unit(rows)
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class CosineMap:
    """x -> (x / ||x||, 1) / sqrt(2), one column more: the dot product is exactly 0.5 cos + 0.5 (Xia, Hoi,
    Jin, Zhao, TPAMI 36 (2014), section 5). Dense; a zero row stays zero: that view is missing. No options."""

    kind: ClassVar[str] = "cosine"
    sparse: ClassVar[bool] = False
    dim_in: int

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return self.dim_in + 1

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take the dimension of the sample."""
        read_options(cls.kind, options, {})
        return cls(require_dense(cls.kind, sample).dim)

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec`; it has no arrays."""
        return cls(int(spec["dim_in"]))

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays."""
        rows = require_dense(self.kind, block, self.dim_in).values
        out = np.empty((len(rows), self.dim), np.float32)
        cosine_dense(rows, out)
        return DenseBlock(out)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Nothing is fitted."""
        return {}

    def spec(self) -> dict[str, Any]:
        """The dimension."""
        return {"dim_in": self.dim_in}
