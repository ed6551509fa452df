"""The map that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from learners.block import Block, DenseBlock, SparseBlock
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
