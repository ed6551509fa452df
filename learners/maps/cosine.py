"""The cosine kernel brought to 0..1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock
from learners.kernels.map_rows import cosine_dense
from learners.maps.base import read_options, require_dense


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
