"""Unit length: x -> x / ||x||."""

from __future__ import annotations

from learners.block import Block, DenseBlock, SparseBlock
from learners.kernels.rows import unit_dense, unit_sparse
from learners.maps.identity import IdentityMap


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
