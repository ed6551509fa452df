"""Items as the search reads them: the vectors themselves, and beside them what makes a scan quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from learners.block import Block, DenseBlock, SparseBlock


@dataclass(frozen=True, slots=True, eq=False)
class SparseItems:
    """Sparse items, n rows. Made once per block by `of`, then only read; the block is referred to, not copied."""

    block: SparseBlock

    @classmethod
    def of(cls, block: SparseBlock) -> SparseItems:
        """Prepare a block. Raises BlockError naming the first row with a value that is not finite or an index
        out of range.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class DenseItems:
    """Dense items, n rows. Made once per block by `of`, then only read; the block is referred to, not copied."""

    block: DenseBlock

    @classmethod
    def of(cls, block: DenseBlock) -> DenseItems:
        """Prepare a block. Raises BlockError naming the first row with a value that is not finite."""
        raise NotImplementedError


Items: TypeAlias = SparseItems | DenseItems


def as_items(block: Block) -> Items:
    """The items of a block of either kind."""
    return SparseItems.of(block) if isinstance(block, SparseBlock) else DenseItems.of(block)
