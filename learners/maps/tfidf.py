"""Weight sparse term counts by inverse document frequency, then unit length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, Float32s, SparseBlock
from learners.errors import BlockError, MapError
from learners.kernels.rows import scale_sparse
from learners.maps.base import fitted_array, read_options, require_sparse
from learners.maps.unit import to_unit


@dataclass(frozen=True, slots=True, eq=False)
class TfidfMap:
    """x_j -> x_j idf_j / norm, with idf_j = ln((1 + n) / (1 + n_j)) + 1, n sample rows of which n_j hold term
    j.

    idf: float32 [dim]. No options.
    """

    kind: ClassVar[str] = "tfidf"
    sparse: ClassVar[bool] = True
    idf: Float32s

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors it reads."""
        return len(self.idf)

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return len(self.idf)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Count the rows of the sample that hold each term."""
        from sklearn.feature_extraction.text import TfidfTransformer

        read_options(cls.kind, options, {})
        rows = require_sparse(cls.kind, sample)
        if len(rows) == 0:
            raise MapError("the map tfidf needs at least one sample row")
        try:
            counts = rows.checked_csr()
        except BlockError as error:
            raise MapError(f"the sample of the map tfidf cannot be used: {error}") from error
        if not np.isfinite(counts.data).all():
            raise MapError("the sample of the map tfidf holds values that are not finite: drop those rows")
        return cls(TfidfTransformer(norm=None).fit(counts).idf_.astype(np.float32))

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of its array."""
        return cls(fitted_array(cls.kind, arrays, "idf", (int(spec["dim_in"]),)))

    def transform(self, block: Block) -> SparseBlock:
        """Weighted unit rows in new arrays."""
        rows = require_sparse(self.kind, block, self.dim_in)
        values = np.empty(int(rows.indptr[-1] - rows.indptr[0]), np.float32)
        scale_sparse(rows.kernel_rows(), self.idf, values)
        indices = rows.indices[rows.indptr[0] : rows.indptr[-1]]
        weighted = SparseBlock(rows.indptr - rows.indptr[0], indices, values, rows.dim)
        to_unit(weighted)
        return weighted

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights."""
        return {"idf": self.idf}

    def spec(self) -> dict[str, Any]:
        """The dimension."""
        return {"dim_in": self.dim_in}
