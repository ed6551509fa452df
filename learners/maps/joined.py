"""Mapped parts of the same objects, joined side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.block import Block, DenseBlock, SparseBlock
from learners.kernels.rows import append_dense, append_sparse


def joined(parts: Sequence[tuple[Block | None, int]], rows: int, sparse: bool) -> Block:
    """The parts side by side, each of its dimension; None is a part that is missing, all zero.

    sparse: whether the rows are CSR, which they must be where a part is. Values are copied, unless the only
    part is sparse. A malformed row stays malformed for the same reason.
    """
    if not sparse:
        return _dense(parts, rows)
    if len(parts) == 1 and isinstance(parts[0][0], SparseBlock):  # nothing to join
        return parts[0][0]
    return _sparse(parts, rows)


def _dense(parts: Sequence[tuple[Block | None, int]], rows: int) -> DenseBlock:
    values, offset = np.zeros((rows, sum(dim for _, dim in parts)), np.float32), 0
    for block, dim in parts:
        if isinstance(block, DenseBlock):
            values[:, offset : offset + dim] = block.values
        offset += dim
    return DenseBlock(values)


def _sparse(parts: Sequence[tuple[Block | None, int]], rows: int) -> SparseBlock:
    lengths = np.zeros(rows, np.int64)
    for block, _ in parts:
        if isinstance(block, DenseBlock):
            lengths += np.count_nonzero(block.values, axis=1)
        elif block is not None:
            lengths += np.diff(block.indptr)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    ends, total, offset = indptr[:-1].copy(), sum(dim for _, dim in parts), 0
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for block, dim in parts:
        if isinstance(block, DenseBlock):
            append_dense(block.values, offset, ends, indices, values)
        elif block is not None:
            append_sparse(block.kernel_rows(), dim, offset, total, ends, indices, values)
        offset += dim
    return SparseBlock(indptr, indices, values, total)
