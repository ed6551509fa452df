"""The square root of each entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from learners.block import Block, DenseBlock, SparseBlock
from learners.errors import MapError
from learners.kernels.map_rows import roots
from learners.maps.identity import IdentityMap


class SqrtMap(IdentityMap):
    """x_j -> sqrt(x_j), dense or sparse: the dot product is then Bhattacharyya's kernel sum_j sqrt(x_j z_j),
    for histograms (Gong and Lazebnik, CVPR 2011, section 3.2.2).

    A row with a value below 0 is no histogram: it becomes NaN there, and the step rejects it. No options.
    """

    __slots__ = ()
    kind = "sqrt"

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take dimension and kind of the sample. Raises MapError when it holds a value below 0."""
        refuse_negative(cls.kind, sample)
        return super().fit(sample, options)

    def transform(self, block: Block) -> Block:
        """Roots in new arrays."""
        rows = IdentityMap.transform(self, block)
        values = np.empty_like(rows.values)
        roots(rows.values.reshape(-1), values.reshape(-1))
        if isinstance(rows, SparseBlock):
            return SparseBlock(rows.indptr, rows.indices, values, rows.dim)
        return DenseBlock(values)


def refuse_negative(kind: str, sample: Block) -> None:
    """Raises MapError when the sample of a map of histograms holds a value below 0."""
    values = sample.values
    if isinstance(sample, SparseBlock):
        values = values[sample.indptr[0] : sample.indptr[-1]]
    if (values < 0).any():
        raise MapError(f"the map {kind} is for histograms, the sample holds values below 0: use another map")
