"""Histograms of sum 1."""

from __future__ import annotations

from learners.block import Block, SparseBlock
from learners.kernels.map_rows import shares_dense, shares_sparse
from learners.maps.identity import IdentityMap


class SharesMap(IdentityMap):
    """x -> x / sum_j |x_j|, dense or sparse; a zero vector stays zero: what histogram intersection and
    Bhattacharyya's kernel compare. No options."""

    __slots__ = ()
    kind = "shares"

    def transform(self, block: Block) -> Block:
        """Rows of sum 1 in new arrays."""
        rows = IdentityMap.transform(self, block)
        if isinstance(rows, SparseBlock):
            shares_sparse(rows.dim, rows.kernel_rows(), rows.values)
        else:
            shares_dense(rows.values)
        return rows
