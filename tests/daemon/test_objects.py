"""Objects by id and objects with features of their own in one block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.objects import overlay
from learners.block import Block, DenseBlock, SparseBlock


def sparse(rows: np.ndarray) -> SparseBlock:
    indptr = np.concatenate(([0], np.cumsum((rows != 0).sum(axis=1))))
    return SparseBlock(indptr, np.nonzero(rows)[1].astype(np.int32), rows[rows != 0], rows.shape[1])


def as_dense(block: Block) -> np.ndarray:
    return block.values if isinstance(block, DenseBlock) else block.checked_csr().toarray()


@pytest.mark.parametrize("make", [DenseBlock, sparse])
def test_overlay_takes_named_rows_from_the_catalog(make: Any) -> None:
    rng = np.random.default_rng(0)
    inline = (rng.random((5, 4)) * (rng.random((5, 4)) < 0.6)).astype(np.float32)
    catalog = rng.random((3, 4)).astype(np.float32)
    rows = np.array([-1, 2, -1, 0, 1], np.int32)
    expected = np.array([catalog[row] if row >= 0 else inline[i] for i, row in enumerate(rows)])
    assert np.array_equal(as_dense(overlay(make(inline), make(catalog), rows, rows >= 0)), expected)
