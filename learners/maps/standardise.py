"""Standardise dense vectors: x -> (x - mean) / deviation, per column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s
from learners.kernels.rows import standardise_dense
from learners.maps.base import fitted_array, read_options, require_dense, require_sample


@dataclass(frozen=True, slots=True, eq=False)
class StandardiseMap:
    """Columns of mean 0 and deviation 1 on the sample; a constant column is only centred.

    mean, scale: float32 [dim]; scale = 1 / deviation. Computed per entry in float64. A zero row stays zero:
    that view is missing. No options.
    """

    kind: ClassVar[str] = "standardise"
    sparse: ClassVar[bool] = False
    mean: Float32s
    scale: Float32s

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors it reads."""
        return len(self.mean)

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return len(self.mean)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Mean and deviation of the non-zero rows of the sample."""
        from sklearn.preprocessing import StandardScaler

        read_options(cls.kind, options, {})
        scaler = StandardScaler().fit(require_sample(cls.kind, require_dense(cls.kind, sample)))
        return cls(scaler.mean_.astype(np.float32), (1 / scaler.scale_).astype(np.float32))

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of its arrays."""
        dim = int(spec["dim_in"])
        return cls(
            fitted_array(cls.kind, arrays, "mean", (dim,)), fitted_array(cls.kind, arrays, "scale", (dim,))
        )

    def transform(self, block: Block) -> DenseBlock:
        """Standardised rows in new arrays."""
        rows = require_dense(self.kind, block, self.dim_in).values
        out = np.empty_like(rows)
        standardise_dense(rows, self.mean, self.scale, out)
        return DenseBlock(out)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """mean and scale."""
        return {"mean": self.mean, "scale": self.scale}

    def spec(self) -> dict[str, Any]:
        """The dimension."""
        return {"dim_in": self.dim_in}
