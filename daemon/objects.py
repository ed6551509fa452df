"""The catalog's objects in the learner's space."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from learners.block import Block, DenseBlock, SparseBlock, concatenate
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.event import Column, DenseColumn


def as_blocks(views: Mapping[str, Column]) -> dict[str, Block]:
    """The same arrays under the learners' names."""
    return {name: as_block(column) for name, column in views.items()}


def as_block(column: Column) -> Block:
    """The same rows under the learners' name."""
    if isinstance(column, DenseColumn):
        return DenseBlock(column.values)
    return SparseBlock(column.indptr, column.indices, column.values, column.dim)


def map_catalog(catalog: Catalog, fitted: FittedSpaceMap) -> Block:
    """Every object of the catalog in the learner's space; row i is object i."""
    return fitted.transform(as_blocks(catalog.views))


def overlay(
    mapped: Block, catalog: Block, rows: npt.NDArray[np.int32], named: npt.NDArray[np.bool_]
) -> Block:
    """`mapped` with the rows marked in `named` taken from the catalog instead (`rows` are theirs there)."""
    if isinstance(mapped, DenseBlock):
        assert isinstance(catalog, DenseBlock)
        values = mapped.values.copy()
        values[named] = catalog.values[rows[named]]
        return DenseBlock(values)
    assert isinstance(catalog, SparseBlock)
    from_catalog = catalog.take(rows[named])
    places = np.arange(len(rows), dtype=np.int64)
    places[named] = len(rows) + np.arange(len(from_catalog))
    return concatenate([mapped, from_catalog]).take(places)
